/* SPDX-License-Identifier: Apache-2.0 */
/* npy.h — the header of a true numpy .npy file. */
#ifndef RP_CORPUS_NPY_H
#define RP_CORPUS_NPY_H

#include "corpus/shard.h"

/** Read and check the header: one dimension, C order, a dtype of tokens, exactly as many bytes as
 * the shape says. Sets type and token_offset. */
RP_MUST_CHECK int rp_npy_layout(struct rp_opened *opened, int fd, struct rp_error *error);

#endif
