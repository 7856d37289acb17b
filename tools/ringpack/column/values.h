/* SPDX-License-Identifier: Apache-2.0 */
/* values.h — files with the values of a side column: .npy, .safetensors, and lists of the rows of
 * Parquet, Arrow, Lance or JSON Lines. Several are read one after another, as if they were one. */
#ifndef RP_TOOLS_COLUMN_VALUES_H
#define RP_TOOLS_COLUMN_VALUES_H

#include "corpus/side_file.h"

struct rp_values {
    const char *path;
    int fd;
    struct rp_side_type type;
    uint64_t at, rows; /* byte of the first row; rows, one for each token */
    /* Lists only: their number, and where the file has the length of each, a u64. */
    bool has_lists;
    uint64_t documents, lengths_at;
};

/* The choices of the command line. */
struct rp_values_choice {
    const char *field;  /* tensor, or field of a row */
    const char *type;   /* type of a value of lists; NULL: the type of the file */
    const char *folder; /* for a nameless file */
    bool bf16;          /* values of two bytes are bfloat16 */
};

/** Open a file by its name. The path stays the caller's. */
RP_MUST_CHECK int rp_values_open(struct rp_values *values, const char *path,
                                 const struct rp_values_choice *choice, struct rp_error *error);
void rp_values_close(struct rp_values *values);

/* npy.c: an array of one dimension, or of two with the values of a token in a row */
RP_MUST_CHECK int rp_values_open_npy(struct rp_values *values, bool bf16, struct rp_error *error);
/* safetensors.c: such a tensor */
RP_MUST_CHECK int rp_values_open_safetensors(struct rp_values *values, const char *name,
                                             struct rp_error *error);
/* lists.c: a worker process reads the lists into a nameless file */
RP_MUST_CHECK int rp_values_open_lists(struct rp_values *values, const char *form,
                                       const struct rp_values_choice *choice,
                                       struct rp_error *error);

#endif
