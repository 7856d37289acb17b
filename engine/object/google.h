/* SPDX-License-Identifier: Apache-2.0 */
/* google.h — the bearer token for Google's stores. The first of these that is set:
 * GOOGLE_OAUTH_ACCESS_TOKEN; gcloud's own CLOUDSDK_AUTH_ACCESS_TOKEN; the file
 * CLOUDSDK_AUTH_ACCESS_TOKEN_FILE, which is read for each request; the output of the command
 * RINGPACK_GOOGLE_TOKEN_COMMAND, which runs again after half an hour, or if its token was refused.
 * Threads: any. */
#ifndef RP_OBJECT_GOOGLE_H
#define RP_OBJECT_GOOGLE_H

#include "object/object.h"

/** *token_out NULL: no token is configured, and *place_out is not set. The caller frees it with
 * rp_free_secret. `renew`: the last token was refused. -RP_E_TIMEOUT: no token can be had now. */
RP_MUST_CHECK int rp_google_token(bool renew, const struct rp_patience *patience, char **token_out,
                                  const char **place_out, struct rp_error *error);

#endif
