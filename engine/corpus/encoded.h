/* SPDX-License-Identifier: Apache-2.0 */
/* encoded.h — forms of files whose tokens are not contiguous, so that they must be converted first
 * (`ringpack convert`). They are recognized by name, so that a refusal has the command to type. */
#ifndef RP_CORPUS_ENCODED_H
#define RP_CORPUS_ENCODED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"

struct rp_encoded {
    const char *name;        /* as `ringpack convert --as` has it */
    const char *title;       /* in messages: "Parquet" */
    const char *suffixes[7]; /* ends of file names; NULL ends the list */
    bool has_text;           /* its documents may be text */
};

/** The form by a file's name, and by the form's own name; NULL: unknown. */
const struct rp_encoded *rp_encoded_of(const char *path);
const struct rp_encoded *rp_encoded_named(const char *name);

/** The command that converts `path`. */
void rp_encoded_hint(const struct rp_encoded *encoded, const char *path, char *hint, size_t bytes);

/** -RP_E_FORMAT: `path` is a file of this form, or a folder of such files. */
int rp_encoded_refuse(const struct rp_encoded *encoded, const char *path, bool is_folder,
                      struct rp_error *error);

#endif
