/* SPDX-License-Identifier: Apache-2.0 */
/* block_reads.h — whole blocks of documents, read as one and kept while the plan draws from them.
 *
 * If the plan uses neighbouring documents at about the same time (`block` shuffle, or none), one
 * long read replaces about a thousand short ones, and a disk delivers many times more bytes a
 * second. A block is read by a separate ticket, which has no transfers and goes through the
 * prefetch ring like any other; later tickets take their tokens from its region (data_ring.h), and
 * packers wait for the ticket that reads it.
 *
 * The plan names the next blocks (plan/blocks.h), a window ahead of the documents that it takes. A
 * document whose block read is missing or already freed is read individually.
 *
 * Blocks are read only if two windows fit in the prefetch ring, and for lanes at least half of
 * whose rows go to ranks of this node. A window stays until its last document is packed, so with
 * two of them the disk has to wait for the packers at the end of each. Thread: the dispatch thread.
 */
#ifndef RP_FLOW_BLOCK_READS_H
#define RP_FLOW_BLOCK_READS_H

#include "flow/flow.h"
#include "flow/data_ring.h"
#include "plan/blocks.h"

#define RP_BLOCK_READS_MAX 4096u

/* Bytes [first, last) of a file, and the offset of the first of them in the data. */
struct rp_block_run {
    uint64_t first, last, data_offset;
};

/* If documents are contiguous, a block is one run. Other files have bytes that are no tokens
 * between documents (other columns, after each record batch of Arrow); these are not read. */
#define RP_BLOCK_RUNS_MAX 32u

/* A side column with longer entries is read for each document, whose entries make a read long
 * enough. */
#define RP_BLOCK_ENTRY_BYTES_MAX 16u
/** Is column c read by blocks? In a store, where each read is a request, it is in any case. */
bool rp_block_reads_take_column(const struct rp_corpus *corpus, uint32_t c);

struct rp_block_read {
    uint32_t source, shard;
    bool past_cache; /* as in struct rp_read */
    bool is_wanted;  /* in the page cache: it is worth a second read (residency.h) */
    uint64_t number; /* the block's number in its source */
    uint64_t epoch;  /* the epoch that uses the block; the next epoch needs another read of it */
    uint64_t region, ticket;
    uint32_t next_in_bucket; /* 1 + index, or 0 */
    uint32_t run_count;
    struct rp_block_run runs[RP_BLOCK_RUNS_MAX]; /* in ascending file order */
};

/* Positions of a lane in a source (plan/blocks.h), for the rows of a micro-batch. */
struct rp_block_at {
    uint64_t window;   /* where the lane's window begins, before the rows */
    uint64_t position; /* where the lane is, after the rows */
};

struct rp_block_reads {
    struct rp_plan_blocks blocks;  /* documents = 0: no blocks are read */
    struct rp_block_read *entries; /* [RP_BLOCK_READS_MAX], the youngest at (count - 1) mod that */
    uint32_t *buckets;             /* [RP_BLOCK_READS_MAX]: 1 + index, or 0 */
    uint64_t count;
    uint64_t *ahead;        /* [lane, source]: position of the next block to read */
    struct rp_block_at *at; /* [lane, source]: positions of the rows that are dispatched */
    bool *is_local;         /* [lane]: its blocks are read */
    bool leaves_lanes_out;  /* some lane is not local */
    uint32_t pair_count;    /* lanes x sources */
    uint32_t pair;          /* the pair of a lane and a source that is checked next */
};

/** Find the runs that a block occupies in the file of its first document: sets shard and runs of
 * *block_read, and cuts the block to its documents in that file. False if it has too many runs or a
 * damaged document: its documents are then read individually, as they are used. Any thread. */
bool rp_block_runs_find(const struct rp_corpus *corpus, struct rp_plan_block *block,
                        struct rp_block_read *block_read);

/** Decide whether blocks are read, with `data_bytes` of memory for them. If the memory is too
 * small, that is logged. */
RP_MUST_CHECK int rp_block_reads_open(struct rp_block_reads *b, const struct rp_plan *plan,
                                      const struct rp_flow_options *options, uint64_t base_row,
                                      uint64_t data_bytes, struct rp_error *error);
void rp_block_reads_close(struct rp_block_reads *b);

/** Data bytes with which reading and packing seldom wait for each other's window; 0 if block reads
 * do not help the stream, or would need more than `bytes_max`. Reads from the options the corpus
 * and the fields that select this node's rows. */
uint64_t rp_block_reads_data_bytes(const struct rp_plan *plan,
                                   const struct rp_flow_options *options, uint64_t base_row,
                                   uint64_t bytes_max);

/** Find the next block that is due. Until rp_block_reads_take or _defer, the next call finds the
 * same block. False if none is due. */
bool rp_block_reads_peek(struct rp_block_reads *b, const struct rp_data_ring *data_ring,
                         const struct rp_plan *plan, struct rp_plan_block *block);
/** Move to the block after the one found, which is read, or never will be. */
void rp_block_reads_take(struct rp_block_reads *b);
/** Move to another lane and source; the block found stays due. */
void rp_block_reads_defer(struct rp_block_reads *b);
/** Does the block found belong to the window of the rows that are dispatched? The caller then waits
 * for room, because without the block each of its documents would cost a read. */
bool rp_block_reads_is_in_window(const struct rp_block_reads *b);
/** Write the plan's positions into at[pair_count]. To be called twice for the rows of a
 * micro-batch: before they are planned for their windows, and after it (is_end) for their
 * positions. */
void rp_block_reads_locate(const struct rp_block_reads *b, const struct rp_plan *plan,
                           struct rp_block_at *at, bool is_end);
/** The rows with these positions are dispatched next. */
void rp_block_reads_move(struct rp_block_reads *b, const struct rp_block_at *at);

void rp_block_reads_add(struct rp_block_reads *b, const struct rp_block_read *block_read);

/** The block read that has the document, of this shard, or NULL. */
const struct rp_block_read *rp_block_reads_find(const struct rp_block_reads *b,
                                                const struct rp_data_ring *data_ring,
                                                uint32_t source, uint64_t document, uint32_t shard);

#endif
