/* SPDX-License-Identifier: Apache-2.0 */
/* web_identity.h — keys for the token of a web identity, as Kubernetes gives one to a pod (EKS, IAM
 * roles for service accounts): AssumeRoleWithWebIdentity of AWS's STS. The token file is read each
 * time, because Kubernetes rewrites it before the token expires. */
#ifndef RP_OBJECT_WEB_IDENTITY_H
#define RP_OBJECT_WEB_IDENTITY_H

#include "base/fail.h"

struct rp_web_identity {
    char *role, *token_file, *session;
};

/** 1: a web identity is configured: AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE, or role_arn and
 * web_identity_token_file of the profile. 0: none is. One half of the first two is an error.
 * rp_web_identity_free releases it, whatever was returned. */
RP_MUST_CHECK int rp_web_identity_find(struct rp_web_identity *identity, struct rp_error *error);
void rp_web_identity_free(struct rp_web_identity *identity);

/** 1: *text_out has its keys, as a JSON object of the form of credential_process, which the caller
 * frees with rp_free_secret. -RP_E_TIMEOUT: STS does not answer. */
RP_MUST_CHECK int rp_web_identity_ask(const struct rp_web_identity *identity, char **text_out,
                                      struct rp_error *error);

#endif
