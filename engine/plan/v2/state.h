/* SPDX-License-Identifier: Apache-2.0 */
/* state.h — the whole state of a plan of version 2 before a planned row, in plain arrays in the
 * order of the state token (STREAM2.md section 12.2). The plan makes it and continues from it;
 * planner_token.c writes and reads it. Private to engine/plan/v2. */
#ifndef RP_PLAN_V2_STATE_H
#define RP_PLAN_V2_STATE_H

#include <stdint.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/hash.h"

/* A piece (section 5), as the token has it. */
struct rp_item_piece {
    uint64_t item;
    uint32_t offset, length, epoch;
    uint16_t source; /* number in the stream */
    uint8_t pass, zero;
};
RP_STATIC_ASSERT(sizeof(struct rp_item_piece) == 24, "STREAM2.md section 12.2");

struct rp_pool_entry {
    struct rp_item_piece piece;
    uint32_t turn, rows;
};
RP_STATIC_ASSERT(sizeof(struct rp_pool_entry) == 32, "STREAM2.md section 12.2");

/* One source that has joined (section 6.3). */
struct rp_source_state {
    uint64_t documents; /* n of the epoch */
    uint64_t before;    /* documents of the epoch before */
    uint64_t position;  /* p */
    int64_t credit;
    uint64_t tokens; /* t */
    uint64_t taken;  /* documents */
    uint64_t withheld;
    uint32_t epoch;
    uint8_t pass;
};

/* In the order of the token. */
struct rp_stream_counts {
    uint64_t documents, passed_over, empty;                               /* documents */
    uint64_t tokens_read, truncated, dropped, left_out, emitted, padding; /* tokens */
    uint64_t placed;
};
RP_STATIC_ASSERT(sizeof(struct rp_stream_counts) == 80, "STREAM2.md section 12.2");

struct rp_open_row_state {
    uint64_t opened_at;
    uint32_t pieces; /* its pieces are the next ones of open_pieces */
};

struct rp_snapshot {
    uint64_t row; /* the planned row that comes next */
    struct rp_hash128 digest;
    uint64_t pool_row;
    uint32_t longest; /* X */
    bool stopped;
    struct rp_stream_counts counts;
    uint32_t source_count, fifo_count, pool_count, open_count, open_piece_count;
    struct rp_source_state *sources;
    struct rp_item_piece *fifo;
    struct rp_pool_entry *pool;
    struct rp_open_row_state *open;
    struct rp_item_piece *open_pieces;
};

/** Give the arrays of `snapshot` room for its five counts; they are filled by the caller. Arrays of
 * before are freed. On -ENOMEM all counts are 0. */
RP_MUST_CHECK int rp_snapshot_resize(struct rp_snapshot *snapshot, struct rp_error *error);
void rp_snapshot_free(struct rp_snapshot *snapshot);

/** The waiting pieces: first the FIFO, then the pool, then open rows. */
static inline uint64_t rp_snapshot_pieces(const struct rp_snapshot *snapshot)
{
    return (uint64_t)snapshot->fifo_count + snapshot->pool_count + snapshot->open_piece_count;
}
static inline const struct rp_item_piece *rp_snapshot_piece(const struct rp_snapshot *snapshot,
                                                            uint64_t index)
{
    if (index < snapshot->fifo_count)
        return &snapshot->fifo[index];
    index -= snapshot->fifo_count;
    return index < snapshot->pool_count ? &snapshot->pool[index].piece
                                        : &snapshot->open_pieces[index - snapshot->pool_count];
}

#endif
