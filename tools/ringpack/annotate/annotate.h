/* SPDX-License-Identifier: Apache-2.0 */
/* annotate.h — `ringpack annotate`: numbers of documents become columns of an index.
 *
 * Flow: the files of a column are read one after the other (read.c, read_npy.c, read_lines.c,
 * read_worker.c); their values are gathered in a nameless file (values.c), because their number and
 * type are known only at the end. The verb (cmd_annotate.c) then appends all columns to the index
 * together, so a kill leaves it as it was. */
#ifndef RP_TOOLS_ANNOTATE_H
#define RP_TOOLS_ANNOTATE_H

#include <stdbool.h>
#include <stdint.h>

#include "corpus/index/index.h"

#define RP_ANNOTATE_IS_SAFE "the index is as it was"
#define RP_ANNOTATE_MEND "mend the file, and type the same command again"

/* values.c */

#define RP_ANNOTATE_BUFFERED 4096u

/* The values of a column: 8 bytes each, as u64, i64 or f64 by their type. */
struct rp_gathered {
    const char *column;             /* its name */
    const char *field;              /* field of a row */
    enum rp_index_column_type type; /* holds all values; NONE: there are none yet */
    uint64_t count;
    bool has_large;                     /* a value of 2^63 or more */
    const struct rp_progress *progress; /* may be NULL */
    uint64_t expected;                  /* values, for the progress */
    int fd;
    uint32_t buffered;
    uint64_t buffer[RP_ANNOTATE_BUFFERED];
    uint64_t *words; /* once they are mapped */
};

/** Begin in a nameless file of a folder. */
RP_MUST_CHECK int rp_gathered_open(struct rp_gathered *values, const char *folder,
                                   struct rp_error *error);
void rp_gathered_close(struct rp_gathered *values);

/** Append a value of a type; a mixture of types becomes one that holds all of them. `path` and
 * `row` are its place for messages. -RP_E_FORMAT: it is NaN, or no type holds it and the others. */
RP_MUST_CHECK int rp_gathered_add(struct rp_gathered *values, enum rp_index_column_type type,
                                  uint64_t word, const char *path, uint64_t row,
                                  struct rp_error *error);
/** Map all of them. */
RP_MUST_CHECK int rp_gathered_map(struct rp_gathered *values, struct rp_error *error);
/** Make them values of another type. False: it does not hold one of them. */
bool rp_gathered_become(struct rp_gathered *values, enum rp_index_column_type type);

/* read.c */

/** Read a file, a pattern, or the files of a folder in bytewise order. */
RP_MUST_CHECK int rp_annotate_read(struct rp_gathered *values, const char *place,
                                   struct rp_error *error);

/* read_npy.c, read_lines.c, read_worker.c: one file, by its form */
RP_MUST_CHECK int rp_annotate_read_npy(struct rp_gathered *values, const char *path,
                                       struct rp_error *error);
RP_MUST_CHECK int rp_annotate_read_lines(struct rp_gathered *values, const char *path,
                                         struct rp_error *error);
RP_MUST_CHECK int rp_annotate_read_worker(struct rp_gathered *values, const char *path,
                                          const char *form, struct rp_error *error);

#endif
