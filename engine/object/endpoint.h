/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.h — credentials from the machine: from a container's endpoint (ECS, EKS), which
 * variables of the environment name, or else from the instance's own (EC2, IMDSv2). Requests to
 * both use no proxy and short timeouts: most machines have neither endpoint. It also posts requests
 * to services that issue keys. */
#ifndef RP_OBJECT_ENDPOINT_H
#define RP_OBJECT_ENDPOINT_H

#include "base/fail.h"

/** 1: *text_out is the endpoint's JSON, which the caller frees, and *place_out names the endpoint.
 * 0: the machine has no endpoint. */
RP_MUST_CHECK int rp_endpoint_ask(char **text_out, const char **place_out, struct rp_error *error);

/** POST a form, by the proxy of the environment: *answer_out is the body of the reply, which the
 * caller frees with rp_free_secret, even if the status is no success. *status_out 0: no reply came.
 */
RP_MUST_CHECK int rp_endpoint_post(const char *url, const char *body, char **answer_out,
                                   long *status_out, struct rp_error *error);

#endif
