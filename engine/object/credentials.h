/* SPDX-License-Identifier: Apache-2.0 */
/* credentials.h — the keys that sign requests to S3 and its relatives, from where AWS's own tools
 * search for them, in their order:
 *
 *   AWS_NO_SIGN_REQUEST                      requests are not signed
 *   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
 *   role_arn or SSO of the profile           refused by name, with a line of credential_process
 *   a web identity: of the environment, or of the profile    AssumeRoleWithWebIdentity of STS
 *   keys of the profile; its credential_process
 *   the container's endpoint (ECS, EKS Pod Identity); the instance's (EC2, IMDSv2)
 *
 * The first that is configured decides: one that is only half there, or that cannot be used, is an
 * error, so that no broader right is used in its place.
 *
 * They are kept for the process and got again five minutes before they expire. While that fails,
 * the last ones are used as long as they are good. Nothing here is ever logged: messages name the
 * place that was read, never what was found there. */
#ifndef RP_OBJECT_CREDENTIALS_H
#define RP_OBJECT_CREDENTIALS_H

#include <stdbool.h>
#include <time.h>

#include "base/fail.h"
#include "object/object.h"

struct rp_credentials {
    char *key_id, *secret; /* NULL: there are none, so that requests are not signed */
    char *session_token;   /* may be NULL */
    time_t expires;        /* 0 = never */
    const char *place;     /* where they were found, for people */
};

/** A copy of the credentials of this process; `renew`: get them anew, the last ones were refused.
 * -RP_E_TIMEOUT: they cannot be had now, but perhaps later. */
RP_MUST_CHECK int rp_credentials_get(struct rp_credentials *credentials, bool renew,
                                     const struct rp_patience *patience, struct rp_error *error);
void rp_credentials_free(struct rp_credentials *credentials);

#endif
