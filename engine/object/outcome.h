/* SPDX-License-Identifier: Apache-2.0 */
/* outcome.h — why a request got no reply, or only a part of one: the network, the proxy, or the
 * server's certificate. What a reply says is judged in reply.h. */
#ifndef RP_OBJECT_OUTCOME_H
#define RP_OBJECT_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"
#include "object/curl.h"

struct rp_outcome {
    const char *name;    /* of the object, for people */
    const char *url;     /* as it was asked for; never shown */
    const char *said;    /* libcurl's words for the code */
    const char *detail;  /* and for this transfer; "" = none */
    CURLcode code;       /* CURLE_OK: the body ended too soon */
    long connect_status; /* of a proxy, to CONNECT; 0 = it was not asked */
    uint32_t bytes;      /* that the caller has room for */
};

/** Has a proxy answered in the place of the server? Then it is the reason, whatever else failed. */
bool rp_outcome_is_proxys(const struct rp_outcome *outcome);

/** Say in *error what failed. True: the request is to be tried again. */
bool rp_outcome_judge(const struct rp_outcome *outcome, struct rp_error *error);

#endif
