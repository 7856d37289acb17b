/* SPDX-License-Identifier: Apache-2.0 */
/* npy.h — .npy files as the values of a side column: one after another, as if they were one. */
#ifndef RP_TOOLS_COLUMN_NPY_H
#define RP_TOOLS_COLUMN_NPY_H

#include "corpus/side_file.h"

struct rp_npy {
    const char *path;
    int fd;
    struct rp_side_type type;
    uint64_t at, rows; /* byte of the first row; rows */
};

/** Open a file of one dimension, or of two with the values of a token in a row. `bf16`: values of
 * two bytes are bfloat16. The path stays the caller's. */
RP_MUST_CHECK int rp_npy_open(struct rp_npy *npy, const char *path, bool bf16,
                              struct rp_error *error);
void rp_npy_close(struct rp_npy *npy);

#endif
