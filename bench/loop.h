/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h — the plain loop: plan a row, widen its documents into a batch, and nothing in between.
 *
 * One thread, no reads, no ring, no checks. The loop shares only the plan with the engine; its
 * digest shows that it does the same work. Tokens come from private memory on huge pages, or, with
 * `mapped`, from the files in the page cache, mapped with the pages that are there. A call that
 * fails ends the program with a message. */
#ifndef RP_BENCH_LOOP_H
#define RP_BENCH_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "stream.h"

struct batch {
    void *ids, *labels, *positions; /* [rows][seq_len]; the last two NULL in `min` */
    int32_t *ends;                  /* [rows * (D + 1) + 1] cu_seqlens */
    int32_t *lengths;               /* [rows][D] */
    struct rp_row_info *rows;
};

struct bench {
    struct rp_config config;
    uint32_t max_docs_per_row; /* the config's, or the plan's own */
    struct rp_corpus *corpus;
    uint8_t **shards; /* the token files */
    bool mapped;      /* from the page cache, and not in private memory */
    uint64_t bytes;
    struct batch *batches;
    uint64_t batch_count;
};

/* A walk through the stream. */
struct loop {
    struct rp_plan *plan;
    uint64_t batches, tokens, rows; /* so far */
    struct rp_hash128 digest;
};

_Noreturn void refuse(const char *text);
void check(int code, const struct rp_error *error);

void load_shards(struct bench *bench);
void make_batches(struct bench *bench);

/* Fill the next batch. False at the end of the stream, whose last batch may be short. */
bool pack_batch(const struct bench *bench, struct loop *loop, bool digest);

#endif
