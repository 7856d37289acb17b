/* SPDX-License-Identifier: Apache-2.0 */
/* io_run.h — random reads of a file of known bytes, through any method, every byte compared. */
#ifndef RP_TESTS_IO_RUN_H
#define RP_TESTS_IO_RUN_H

#include "io/io.h"

struct io_sample {
    char path[64]; /* in /tmp; removed by io_sample_free */
    int fd;        /* buffered, for reading */
    uint8_t *bytes;
    uint64_t size;
};

/** A file of `size` random bytes. */
void io_sample_make(struct io_sample *sample, uint64_t size, uint64_t seed);
void io_sample_free(struct io_sample *sample);

struct io_run {
    const struct rp_io_method *method;
    const struct io_sample *sample;
    int fd; /* the sample's, buffered or not */
    uint32_t depth, alignment, bytes_max, reads;
    bool may_fall_back; /* as in rp_io_options */
    bool in_region;     /* every other buffer is in the region that is offered for registration */
    uint64_t seed;
    struct rp_io_counts counts; /* out */
};

/** Returns how many reads came back wrong: with an error, with wrong bytes, with bytes outside the
 * buffer, or not at all. */
unsigned io_run_reads(struct io_run *run);

/** Open a file as the methods of files do. Returns the descriptor, or a negative code. */
int io_open(const char *path, bool direct, uint32_t *alignment_out, struct rp_error *error);

/** One read, waited for. */
struct rp_io_done io_read_once(const struct rp_io_method *method, const struct rp_io_read *read,
                               struct rp_io_counts *counts);

#endif
