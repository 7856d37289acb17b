/* SPDX-License-Identifier: Apache-2.0 */
/* credentials.h — the keys that sign requests to S3 and its relatives, from where AWS's own tools
 * search for them, in their order: the environment; the profile in ~/.aws/credentials and
 * ~/.aws/config, its credential_process among it; the container's endpoint; the instance's
 * (IMDSv2). Everything else (SSO, assumed roles, web identities) is reached through
 * credential_process.
 *
 * They are kept for the process and got again five minutes before they expire. Nothing here is ever
 * logged: messages name the place that was read, never what was found there. */
#ifndef RP_OBJECT_CREDENTIALS_H
#define RP_OBJECT_CREDENTIALS_H

#include <stdbool.h>
#include <time.h>

#include "base/fail.h"

struct rp_credentials {
    char *key_id, *secret; /* NULL: there are none, so that requests are not signed */
    char *session_token;   /* may be NULL */
    time_t expires;        /* 0 = never */
    const char *place;     /* where they were found, for people */
};

/** A copy of the credentials of this process; `renew`: get them anew, the last ones were refused.
 */
RP_MUST_CHECK int rp_credentials_get(struct rp_credentials *credentials, bool renew,
                                     struct rp_error *error);
void rp_credentials_free(struct rp_credentials *credentials);

#endif
