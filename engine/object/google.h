/* SPDX-License-Identifier: Apache-2.0 */
/* google.h — the bearer that Google's stores are shown: GOOGLE_OAUTH_ACCESS_TOKEN, or, in gcloud's
 * own words, CLOUDSDK_AUTH_ACCESS_TOKEN; else the file CLOUDSDK_AUTH_ACCESS_TOKEN_FILE, which is
 * read for each request; else what the command RINGPACK_GOOGLE_TOKEN_COMMAND prints, which is run
 * again half an hour later, or when its token was refused. Threads: any. */
#ifndef RP_OBJECT_GOOGLE_H
#define RP_OBJECT_GOOGLE_H

#include "object/object.h"

/** *token_out NULL: there is none, and *place_out is not set. The caller frees it with
 * rp_free_secret. `renew`: the last one was refused. -RP_E_TIMEOUT: it cannot be had now. */
RP_MUST_CHECK int rp_google_token(bool renew, const struct rp_patience *patience, char **token_out,
                                  const char **place_out, struct rp_error *error);

#endif
