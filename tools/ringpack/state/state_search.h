/* SPDX-License-Identifier: Apache-2.0 */
/* state_search.h — the token in the bytes of one file, and the forms of files (state_file.h). */
#ifndef RP_TOOLS_STATE_SEARCH_H
#define RP_TOOLS_STATE_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

#define RP_STATE_KEY "ringpack_state"
#define RP_STATE_FIELDS_KEY "ringpack_fields"
#define RP_SAVED_BYTES_MAX (64u << 20)

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

/** Base64, as RFC 4648 section 4 has it, with its padding and no other byte. NULL: out of memory,
 * or when decoding, no base64. The caller frees the result. */
char *rp_base64_encode(const void *data, size_t bytes);
uint8_t *rp_base64_decode(const char *text, size_t *bytes_out);

#endif
