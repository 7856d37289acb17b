/* SPDX-License-Identifier: Apache-2.0 */
/* buffered.h — sequential reads of a file in pieces of any size, with few disk reads. The file is
 * read and not mapped, so a file that shrinks is an error that names it. */
#ifndef RP_CORPUS_BUFFERED_H
#define RP_CORPUS_BUFFERED_H

#include <stdint.h>

#include "base/fail.h"

/* Begins as the path, the descriptor and the size of a file, which stay the caller's. */
struct rp_buffered {
    const char *path;
    int fd;
    uint64_t file_bytes;
    uint8_t *bytes;
    uint64_t begin, end, capacity; /* the part of the file in `bytes` */
};

/** The bytes [first, first + count), which must be inside the file. Valid until the next call. */
RP_MUST_CHECK int rp_buffered_view(struct rp_buffered *file, uint64_t first, uint64_t count,
                                   const uint8_t **out, struct rp_error *error);
/** Free the memory. */
void rp_buffered_release(struct rp_buffered *file);

#endif
