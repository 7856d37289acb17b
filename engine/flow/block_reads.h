/* SPDX-License-Identifier: Apache-2.0 */
/* block_reads.h — whole blocks of documents, read as one and kept while the plan draws from them.
 *
 * If the plan uses neighbouring documents at about the same time (`block` shuffle, or none), one
 * long read replaces about a thousand short ones: a disk delivers many times more bytes a second
 * that way. A block is read by a ticket of its own, which has no transfers and goes through the
 * prefetch ring like any other; later tickets take their tokens from its region (data_ring.h), and
 * packers wait for the ticket that reads it.
 *
 * The plan names the next blocks (plan/blocks.h): a window ahead of the documents it is taking. If
 * a document's block read is missing or already freed, the document is read individually; that is
 * the whole cost.
 *
 * Used only if two windows fit in the prefetch ring, and for lanes at least half of whose rows go
 * to ranks of this node. A window stays until its last document is packed, so with two of them the
 * disk has to wait for the packers at the end of each. Thread: dispatch's own. */
#ifndef RP_FLOW_BLOCK_READS_H
#define RP_FLOW_BLOCK_READS_H

#include "flow/flow.h"
#include "flow/data_ring.h"
#include "plan/blocks.h"

#define RP_BLOCK_READS_MAX 4096u

/* Bytes [first, last) of the token file, and where the first of them is in the data. */
struct rp_block_run {
    uint64_t first, last, data_offset;
};

/* If documents are contiguous, a block is one run. Other files have bytes that are no tokens
 * between documents (other columns, after each record batch of Arrow); these are not read. */
#define RP_BLOCK_RUNS_MAX 32u

/* Longer entries of a side column are read for each document: a document has enough of them. */
#define RP_BLOCK_ENTRY_BYTES_MAX 16u
/** Is column c read by blocks? In a store, where each read is a request, it is in any case. */
bool rp_block_reads_take_column(const struct rp_corpus *corpus, uint32_t c);

struct rp_block_read {
    uint32_t source, shard;
    bool past_cache; /* by direct reads, of a file that also has buffered ones (files.h) */
    bool is_wanted;  /* it is worth a second read, into the page cache */
    uint64_t number; /* the block's number in its source */
    uint64_t epoch;  /* the epoch that uses the block; the next epoch needs another read of it */
    uint64_t region, ticket;
    uint32_t next_in_bucket; /* 1 + index, or 0 */
    uint32_t run_count;
    struct rp_block_run runs[RP_BLOCK_RUNS_MAX]; /* in ascending file order */
};

/* Positions of a lane in a source (plan/blocks.h): of its window, and that which it has reached. */
struct rp_block_at {
    uint64_t window, position;
};

struct rp_block_reads {
    struct rp_plan_blocks blocks;  /* documents = 0: there are no block_reads */
    struct rp_block_read *entries; /* [RP_BLOCK_READS_MAX], the youngest at (count - 1) mod that */
    uint32_t *buckets;             /* [RP_BLOCK_READS_MAX]: 1 + index, or 0 */
    uint64_t count;
    uint64_t *ahead;        /* [lane, source]: position of the next block to read */
    struct rp_block_at *at; /* [lane, source]: where the rows are that are dispatched */
    bool *is_local;         /* [lane] */
    bool leaves_lanes_out;  /* some lane is not local, and has no block reads */
    uint32_t pair_count;    /* lanes x sources */
    uint32_t pair;          /* checked next */
};

/** Find the runs that a block occupies in the file of its first document: sets shard and runs of
 * *block_read. The block is cut to its documents in that file; the rest becomes another block read.
 * False if it has too many runs or a damaged document: its documents are then read individually, as
 * they are used. Any thread may call it. */
bool rp_block_runs_find(const struct rp_corpus *corpus, struct rp_plan_block *block,
                        struct rp_block_read *block_read);

/** Decide whether a stream benefits from block reads, with `data_bytes` of memory for them. If it
 * would and the memory is too small, that is logged. */
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

/** Find the next block that should be read now. Until rp_block_reads_take or _defer, the next call
 * finds the same block. False if none is due. */
bool rp_block_reads_peek(struct rp_block_reads *b, const struct rp_data_ring *data_ring,
                         const struct rp_plan *plan, struct rp_plan_block *block);
/** The block that was found is read, or never will be: the next one follows. */
void rp_block_reads_take(struct rp_block_reads *b);
/** Blocks of other lanes and sources are due before the block that was found. */
void rp_block_reads_defer(struct rp_block_reads *b);
/** Write the plan's positions into at[pair_count]: at the beginning of some rows their windows, at
 * the end their positions. */
void rp_block_reads_locate(const struct rp_block_reads *b, const struct rp_plan *plan,
                           struct rp_block_at *at, bool is_end);
/** The rows between the two are dispatched next. */
void rp_block_reads_move(struct rp_block_reads *b, const struct rp_block_at *at);
/** True if those rows take documents from the window of the block that was found: the caller then
 * waits for room, because without the block each of its documents would cost a read. */
bool rp_block_reads_is_wanted(const struct rp_block_reads *b);

void rp_block_reads_add(struct rp_block_reads *b, const struct rp_block_read *block_read);

/** The block read that covers the part of a document's block in this shard, or NULL. */
const struct rp_block_read *rp_block_reads_find(const struct rp_block_reads *b,
                                                const struct rp_data_ring *data_ring,
                                                uint32_t source, uint64_t document, uint32_t shard);

#endif
