/* SPDX-License-Identifier: Apache-2.0 */
/* credentials.h — the keys that sign requests to S3 and its relatives, searched for in the places
 * and the order of AWS's own tools:
 *
 *   AWS_NO_SIGN_REQUEST                      requests are not signed
 *   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
 *   role_arn or SSO of the profile           refused by name, with a line of credential_process
 *   a web identity: of the environment, or of the profile    AssumeRoleWithWebIdentity of STS
 *   keys of the profile; its credential_process
 *   the container's endpoint (ECS, EKS Pod Identity); the instance's (EC2, IMDSv2)
 *
 * The first configured place decides: if it is incomplete or unusable, that is an error, so that no
 * broader right is used in its place.
 *
 * Keys are kept for the process and renewed five minutes before they expire. While renewal fails,
 * the last keys are used until they expire. No content of these places is ever logged: messages
 * name the place that was read only. */
#ifndef RP_OBJECT_CREDENTIALS_H
#define RP_OBJECT_CREDENTIALS_H

#include <stdbool.h>
#include <time.h>

#include "base/fail.h"
#include "object/object.h"

struct rp_credentials {
    char *key_id, *secret; /* NULL: no keys, so requests are not signed */
    char *session_token;   /* may be NULL */
    time_t expires;        /* 0 = never */
    const char *place;     /* origin of the keys, for messages */
};

/** Copy the credentials of this process; `renew`: fetch new ones, because the store refused the
 * last ones. -RP_E_TIMEOUT: they are unavailable now, but perhaps not later. */
RP_MUST_CHECK int rp_credentials_get(struct rp_credentials *credentials, bool renew,
                                     const struct rp_patience *patience, struct rp_error *error);
void rp_credentials_free(struct rp_credentials *credentials);

#endif
