/* SPDX-License-Identifier: Apache-2.0 */
/* state_fields.h — everything that a state token says, as named texts for people. */
#ifndef RP_TOOLS_STATE_FIELDS_H
#define RP_TOOLS_STATE_FIELDS_H

#include <jansson.h>

#include "base/fail.h"

/** All fields of a token: its contract (STREAM.md section 9), the position, and the counts, cursors
 * and pieces of each lane (section 8). An object of names and texts. NULL after a failure. */
json_t *rp_saved_fields(const void *token, size_t bytes, struct rp_error *error);

/** Compare the fields of a file with the token in the same file: -RP_E_MISMATCH names the first
 * field that differs, is missing, or is none of a token. */
RP_MUST_CHECK int rp_saved_fields_check(const json_t *fields, const void *token, size_t bytes,
                                        const char *path, struct rp_error *error);

#endif
