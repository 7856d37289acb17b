/* SPDX-License-Identifier: Apache-2.0 */
/* gunzip.h — sequential reads of text, plain or compressed by gzip, in constant memory. As gzip's
 * own tools it takes concatenated archives for one text, and zeros after the last one for padding;
 * unlike them it refuses any other trailing byte. */
#ifndef RP_CORPUS_GUNZIP_H
#define RP_CORPUS_GUNZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

#include "base/fail.h"

/* EITHER: the magic decides. */
enum rp_gunzip_form { RP_GUNZIP_PLAIN, RP_GUNZIP_ARCHIVE, RP_GUNZIP_EITHER };

struct rp_gunzip {
    const char *path; /* the caller's */
    int fd;           /* likewise: of a file or a pipe */
    enum rp_gunzip_form form;
    bool is_inside;   /* inside an archive, whose end is still to come */
    bool has_archive; /* one has begun */
    uint64_t at;      /* bytes that were read from the descriptor */
    uint8_t *input;
    z_stream stream; /* avail_in: bytes of `input` that are still to be taken */
};

/** The struct must not move until the end: zlib keeps its address. */
RP_MUST_CHECK int rp_gunzip_begin(struct rp_gunzip *text, int fd, const char *path,
                                  enum rp_gunzip_form form, struct rp_error *error);
/** The next bytes of the text, at most `bytes`; *got_out is 0 at its end. */
RP_MUST_CHECK int rp_gunzip_read(struct rp_gunzip *text, void *to, size_t bytes, size_t *got_out,
                                 struct rp_error *error);
/** Free the memory; the descriptor stays open. May be called after a failed begin. */
void rp_gunzip_end(struct rp_gunzip *text);

#endif
