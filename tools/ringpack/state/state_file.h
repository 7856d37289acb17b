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

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

#define RP_STATE_KEY "ringpack_state"
#define RP_STATE_FIELDS_KEY "ringpack_fields"
#define RP_STATE_BYTES_MAX (64u << 20)

/* The bytes of a file, and the token that was found in them. */
struct rp_saved_search {
    const char *path;
    const uint8_t *data;
    uint64_t bytes;
    char *token; /* the caller frees it; NULL = none was found yet */
    size_t token_bytes;
};

/* A form of files, in the order of the tries. */
struct rp_saved_form {
    const char *suffix; /* for names of files to write: ".json" */
    const char *name;   /* "JSON" */
    bool (*claim)(const uint8_t *data, uint64_t bytes);
    RP_MUST_CHECK int (*read)(struct rp_saved_search *search, struct rp_error *error);
    /* NULL: this form is only read. The caller frees *file_out. */
    RP_MUST_CHECK int (*write)(const void *token, size_t bytes, uint8_t **file_out,
                               size_t *file_bytes, struct rp_error *error);
};
extern const struct rp_saved_form rp_saved_form_json, rp_saved_form_safetensors, rp_saved_form_zip;

/** Take a copy of a token that was found, without the zeros after it. -RP_E_CORRUPT if another
 * one was found before that is not equal, or if its hash is wrong. */
RP_MUST_CHECK int rp_saved_take(struct rp_saved_search *search, const void *data, size_t bytes,
                                struct rp_error *error);

/** Take a token from base64. */
RP_MUST_CHECK int rp_saved_take_text(struct rp_saved_search *search, const char *text,
                                     struct rp_error *error);

/** Whether a file has a state token in one of these forms, or seems to: a damaged one is one. */
bool rp_saved_claimed(const char *path);

/** Read the token of such a file. Returns 1 with *token, which the caller frees; 0 if the file has
 * none of these forms. */
RP_MUST_CHECK int rp_saved_read(const char *path, char **token, size_t *bytes,
                                struct rp_error *error);

/** Write a token in the form that the name of the file ends with; .token is only the token. */
RP_MUST_CHECK int rp_saved_write(const char *path, const void *token, size_t bytes,
                                 struct rp_error *error);

/** Base64, as RFC 4648 section 4 has it, with its padding and no other byte. NULL: out of memory,
 * or when decoding, no base64. The caller frees the result. */
char *rp_base64_encode(const void *data, size_t bytes);
uint8_t *rp_base64_decode(const char *text, size_t *bytes_out);

#endif
