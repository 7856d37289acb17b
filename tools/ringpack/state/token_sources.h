/* SPDX-License-Identifier: Apache-2.0 */
/* token_sources.h — stage, deal window and ledger of a state token of stream version 2, read from
 * the token alone. */
#ifndef RP_TOOLS_TOKEN_SOURCES_H
#define RP_TOOLS_TOKEN_SOURCES_H

#include <jansson.h>
#include <stddef.h>

/** Lines of a listing. The token was checked (rp_state_info). */
void rp_token_sources_print(const void *token, size_t bytes);
/** The same as fields of the object of a token. */
void rp_token_sources_json(const void *token, size_t bytes, json_t *value);

#endif
