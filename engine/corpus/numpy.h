/* SPDX-License-Identifier: Apache-2.0 */
/* numpy.h — the header of a numpy .npy file. numpy writes it as the text of a Python dict, always
 * in the same form: {'descr': '<u2', 'fortran_order': False, 'shape': (1234,), } padded with spaces
 * and ended by a newline. That form and no other is read; a Python parser would accept more than
 * anybody writes. */
#ifndef RP_CORPUS_NUMPY_H
#define RP_CORPUS_NUMPY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

#define RP_NUMPY_MAGIC "\x93NUMPY"
#define RP_NUMPY_HEADER_BYTES_MAX 4096u

struct rp_numpy {
    const char *path, *hint; /* the hint of errors of the form; both the caller's */
    uint64_t file_bytes;
    uint64_t at;   /* first byte after the header */
    char descr[8]; /* the type of a number, as "<u2" */
    char text[RP_NUMPY_HEADER_BYTES_MAX + 1];
    const char *rest; /* the text after the type */
};

/** Read the header of a file, up to the type of its numbers. */
RP_MUST_CHECK int rp_numpy_begin(struct rp_numpy *npy, int fd, const char *path,
                                 uint64_t file_bytes, const char *hint, struct rp_error *error);
/** The sizes of its dimensions: of one, or with `may_have_two` of at most two. shape[1] is 1 if it
 * has one, and never 0. */
RP_MUST_CHECK int rp_numpy_shape(const struct rp_numpy *npy, bool may_have_two, uint64_t shape[2],
                                 struct rp_error *error);
/** -RP_E_CORRUPT unless the rest of the file is `count` things of `width` bytes. */
RP_MUST_CHECK int rp_numpy_check_size(const struct rp_numpy *npy, uint64_t count,
                                      const char *things, uint32_t width, struct rp_error *error);
/** -RP_E_FORMAT, with the hint. */
int rp_numpy_fail(const struct rp_numpy *npy, const char *expected, const char *found,
                  struct rp_error *error);

#endif
