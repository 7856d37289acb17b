/* SPDX-License-Identifier: Apache-2.0 */
/* state_file.h — files of users that hold a state token: JSON, safetensors, npz and PyTorch's zip.
 *
 * A trainer keeps a dict with the key RP_STATE_KEY, whose value is the token as an array of
 * bytes, or as base64 in forms of text. Zeros may follow the token in an array. A file is known by
 * its content, never by its name.
 *
 * Invariants:
 *
 *   - No file is unpickled. In a zip only the bytes of members are read: PyTorch and numpy
 *     store an array as a member of its own, which is a token if it begins with the magic of one.
 *   - A token is taken only if its hash is right (rp_state_info). If a file has several, all
 *     must be equal.
 *   - Forms for people have the token and its fields (state_fields.h). Fields that
 *     differ from the token are refused, because an edit of a field would have no effect. */
#ifndef RP_TOOLS_STATE_FILE_H
#define RP_TOOLS_STATE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

/** Whether a file has a state token in one of these forms, or seems to: a damaged one is one. */
bool rp_saved_claimed(const char *path);

/** Read the token of such a file. Returns 1 with *token, which the caller frees; 0 if the file has
 * none of these forms. */
RP_MUST_CHECK int rp_saved_read(const char *path, char **token, size_t *bytes,
                                struct rp_error *error);

/** Write a token in the form that the name of the file ends with; .token is only the token. */
RP_MUST_CHECK int rp_saved_write(const char *path, const void *token, size_t bytes,
                                 struct rp_error *error);

#endif
