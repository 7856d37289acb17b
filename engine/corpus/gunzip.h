/* SPDX-License-Identifier: Apache-2.0 */
/* gunzip.h — a file of text, as it is or compressed by gzip, that is read once from its
 * beginning to its end in pieces, with constant memory. Like gzip's own tools it takes several
 * archives that follow each other for one text; unlike them it refuses what follows the last one.
 */
#ifndef RP_CORPUS_GUNZIP_H
#define RP_CORPUS_GUNZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

#include "base/fail.h"

struct rp_gunzip {
    const char *path; /* the caller's */
    int fd;
    uint64_t file_bytes, at; /* bytes of the file, and of them read */
    uint8_t *input;          /* what was read last */
    uint8_t *output;         /* NULL: the file is not compressed */
    bool is_inside;          /* of an archive, whose end is still to come */
    z_stream stream;
};

RP_MUST_CHECK int rp_gunzip_open(struct rp_gunzip *text, const char *path, bool is_compressed,
                                 struct rp_error *error);
/** The next piece, which is valid until the next call. *bytes_out is 0 at the end of the text. */
RP_MUST_CHECK int rp_gunzip_next(struct rp_gunzip *text, const uint8_t **piece_out,
                                 size_t *bytes_out, struct rp_error *error);
/** Fine after a failed open, too. */
void rp_gunzip_close(struct rp_gunzip *text);

#endif
