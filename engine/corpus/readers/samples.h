/* SPDX-License-Identifier: Apache-2.0 */
/* samples.h — the table at the beginning of an MDS shard and of a litData chunk:
 *
 *     u32  samples
 *     u32  offsets[samples + 1]   in the file: the begin of each sample, and the end of the last
 *
 * Invariants: no offset is used before it was compared with the one before it and with the size of
 * the file. Samples are contiguous, and the last one ends with the file: a truncated file is
 * refused. */
#ifndef RP_CORPUS_READERS_SAMPLES_H
#define RP_CORPUS_READERS_SAMPLES_H

#include "corpus/reader.h"

#define RP_SAMPLES_AT_ONCE 4096u

struct rp_samples {
    const struct rp_probe *probe;
    uint64_t count;
    uint64_t table_end; /* the first byte after the table */
    uint64_t next;      /* number of the next sample */
    uint64_t begin;     /* first byte of the next sample */
    uint32_t ends[RP_SAMPLES_AT_ONCE];
};

/** Whether the file may begin with such a table: the first offset is after a table of that count
 * and inside the file. */
bool rp_samples_are_in(const struct rp_probe *probe);

/** Read the head of the table. -RP_E_CORRUPT if it does not fit the file. */
RP_MUST_CHECK int rp_samples_begin(struct rp_samples *samples, const struct rp_probe *probe,
                                   struct rp_error *error);

/** Take the next sample, bytes [*begin, *end) of the file. `next` is less than `count`. */
RP_MUST_CHECK int rp_samples_next(struct rp_samples *samples, uint64_t *begin, uint64_t *end,
                                  struct rp_error *error);

#endif
