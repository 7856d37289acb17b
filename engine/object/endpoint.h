/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.h — credentials from the machine: a container's endpoint (ECS, EKS), which variables of
 * the environment name, or else the instance's own (EC2, IMDSv2). Both are asked without a proxy
 * and with little patience: on most machines there is neither. And a request to a service that
 * gives keys. */
#ifndef RP_OBJECT_ENDPOINT_H
#define RP_OBJECT_ENDPOINT_H

#include "base/fail.h"

/** 1: *text_out is its JSON, which the caller frees, and *place_out says whose it is. 0: there is
 * none. */
RP_MUST_CHECK int rp_endpoint_ask(char **text_out, const char **place_out, struct rp_error *error);

/** POST a form, by the proxy of the environment: *answer_out is its body, which the caller frees
 * with rp_free_secret, also if the status is no success. *status_out 0: there was no answer. */
RP_MUST_CHECK int rp_endpoint_post(const char *url, const char *body, char **answer_out,
                                   long *status_out, struct rp_error *error);

#endif
