/* SPDX-License-Identifier: Apache-2.0 */
/* outcome.h — the cause of a missing or partial reply: the network, the proxy, or the server's
 * certificate. The content of a reply is judged in reply.h. */
#ifndef RP_OBJECT_OUTCOME_H
#define RP_OBJECT_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"
#include "object/curl.h"

struct rp_outcome {
    const char *name;    /* name of the object, for messages */
    const char *url;     /* URL of the request; never shown */
    const char *said;    /* libcurl's text for the code */
    const char *detail;  /* and its text for this transfer; "" = none */
    CURLcode code;       /* CURLE_OK: the body ended too soon */
    long connect_status; /* a proxy's reply to CONNECT; 0 = no CONNECT was sent */
    uint32_t bytes;      /* size of the caller's buffer */
};

/** Did a proxy answer in place of the server? Then it is the cause, whatever else failed. */
bool rp_outcome_is_proxys(const struct rp_outcome *outcome);

/** Set *error to the cause. True: the request is to be tried again. */
bool rp_outcome_judge(const struct rp_outcome *outcome, struct rp_error *error);

#endif
