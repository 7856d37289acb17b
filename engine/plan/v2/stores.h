/* SPDX-License-Identifier: Apache-2.0 */
/* stores.h — pieces that were taken and are in no emitted row: the FIFO, the pool, and the open
 * rows of best_fit (STREAM2.md section 7); and the row that is being made of them.
 *
 * All packings share these stores. Only lookahead searches the FIFO by size, so only there it is an
 * rp_window; otherwise it is a queue. */
#ifndef RP_PLAN_V2_STORES_H
#define RP_PLAN_V2_STORES_H

#include "plan/v2/feed_next.h"
#include "plan/window.h"

#define RP_AGE_MAX_W 64u /* best_fit closes a row after this many times W pieces */

/* A row of best_fit that waits for more pieces, by slot of `open`; its pieces are a list. */
struct rp_waiting_row {
    uint64_t opened_at;
    uint32_t count, gap;  /* pieces; places */
    uint32_t first, last; /* nodes */
};

/* The order of the pool's entries: by turn, the oldest first among equals. */
struct rp_pool_place {
    uint64_t turn; /* turn of section 7, and all that was subtracted from it */
    uint32_t entry;
};

struct rp_piece_node {
    struct rp_item_piece piece;
    uint32_t next; /* node, or the next free one; 0: none */
};

/* The row that is being made. */
struct rp_row_draft {
    struct rp_fragment *fragments;
    uint32_t *epochs;       /* by fragment, for tools */
    uint32_t pieces, count; /* count: fragments */
    uint32_t gap, tokens;
};

struct rp_stores {
    struct rp_feed feed;
    /* In force (section 1.3). */
    uint32_t seq_len, window_max, spread, pieces_max; /* L, W, P, D' */
    enum rp_packing packing;
    enum rp_row_gap row_gap;

    uint32_t capacity;          /* pieces, all stores together */
    struct rp_item_piece *fifo; /* by slot of `window`, or from `head` on */
    uint32_t *fifo_sizes;       /* sizes in the queue */
    uint32_t head, queued;      /* the queue */
    struct rp_window window;    /* lookahead: sizes */
    uint32_t pool_count;
    struct rp_pool_entry *pool;   /* by arrival, without turns */
    struct rp_pool_place *places; /* the next entry last */
    uint64_t pool_turn;           /* subtracted from turns so far */
    uint64_t pool_row;
    struct rp_window open;       /* best_fit: gaps */
    struct rp_waiting_row *rows; /* by slot of `open` */
    struct rp_piece_node *nodes; /* node 0 is none */
    uint32_t node_free;

    uint32_t fragments_capacity;
    struct rp_row_draft draft;
};

/** Stores with room for every stage of the calendar. -RP_E_CONFIG: a stage may leave more pieces
 * than the FIFO of a later one can search. */
RP_MUST_CHECK int rp_stores_open(struct rp_stores *stores, const struct rp_calendar *calendar,
                                 struct rp_error *error);
void rp_stores_close(struct rp_stores *stores);
/** Room for a stage that begins with `pieces` waiting pieces. If the stores have to grow, they lose
 * their content. */
RP_MUST_CHECK int rp_stores_reserve(struct rp_stores *stores, const struct rp_stage *stage,
                                    uint64_t pieces, struct rp_error *error);

RP_MUST_CHECK int rp_stores_reserve_fragments(struct rp_stores *stores, uint32_t fragments,
                                              struct rp_error *error);

void rp_stores_change(struct rp_stores *stores);
/** Take over what is in force at a row (rp_feed_begin_row). */
static inline void rp_stores_begin_row(struct rp_stores *stores, uint64_t row)
{
    const struct rp_stage *before = stores->feed.stage;
    rp_feed_begin_row(&stores->feed, row);
    if (stores->feed.stage != before)
        rp_stores_change(stores);
}
/** Empty all stores, for the packing in force. */
void rp_stores_clear(struct rp_stores *stores);
static inline uint32_t rp_stores_fifo_count(const struct rp_stores *stores)
{
    return stores->packing == RP_PACKING_LOOKAHEAD ? stores->window.count : stores->queued;
}
static inline bool rp_stores_are_empty(const struct rp_stores *stores)
{
    return rp_stores_fifo_count(stores) == 0 && stores->pool_count == 0 && stores->open.count == 0;
}

/** Move the queue to the front of its array. */
void rp_stores_make_room(struct rp_stores *stores);
/** Append to the FIFO. */
static inline void rp_stores_push(struct rp_stores *stores, const struct rp_item_piece *piece,
                                  uint32_t size)
{
    if (stores->packing == RP_PACKING_LOOKAHEAD) {
        stores->fifo[rp_window_add(&stores->window, size)] = *piece;
        return;
    }
    if (stores->head + stores->queued > stores->capacity)
        rp_stores_make_room(stores);
    stores->fifo[stores->head + stores->queued] = *piece;
    stores->fifo_sizes[stores->head + stores->queued++] = size;
}
void rp_stores_add_entry(struct rp_stores *stores, const struct rp_pool_entry *entry);
void rp_stores_enter_pool(struct rp_stores *stores, const struct rp_item_piece *piece);
/** Enter a piece (section 7). */
static inline void rp_stores_enter(struct rp_stores *stores, const struct rp_item_piece *piece,
                                   uint32_t size)
{
    if (piece->length > stores->seq_len && stores->packing != RP_PACKING_CONCAT)
        rp_stores_enter_pool(stores, piece);
    else
        rp_stores_push(stores, piece, size);
}
/** Enter the next item, if the FIFO is an empty queue: as rp_feed_next. The piece is made in its
 * place, because a copy right after its members were stored waits for these stores. */
static inline int rp_stores_enter_next(struct rp_stores *stores, struct rp_error *error)
{
    struct rp_item_piece *piece = &stores->fifo[stores->head];
    int given = rp_feed_next(&stores->feed, piece, &stores->fifo_sizes[stores->head], error);
    if (given <= 0)
        return given;
    if (piece->length > stores->seq_len && stores->packing != RP_PACKING_CONCAT)
        rp_stores_enter_pool(stores, piece);
    else
        stores->queued = 1;
    return 1;
}
/** Remove the oldest piece of the queue. */
static inline void rp_stores_pop(struct rp_stores *stores)
{
    stores->head = --stores->queued == 0 ? 0 : stores->head + 1;
}
/** The oldest piece of the queue was cut: trim it, and remove it if it is gone. */
static inline int rp_stores_trim_oldest(struct rp_stores *stores, struct rp_error *error)
{
    struct rp_item_piece *oldest = &stores->fifo[stores->head];
    int left = rp_feed_trim(&stores->feed, oldest, error);
    if (left < 0)
        return left;
    if (left == 0)
        rp_stores_pop(stores);
    else
        stores->fifo_sizes[stores->head] = rp_feed_round(&stores->feed, oldest->length);
    return 0;
}

/** A new open row, without a piece. Returns its slot. */
uint16_t rp_stores_open_row(struct rp_stores *stores, uint64_t opened_at, uint32_t gap);
/** Append a piece to the list of an open row. Its gap is the caller's. */
void rp_stores_append(struct rp_stores *stores, uint16_t slot, const struct rp_item_piece *piece);

/* ---- the draft ------------------------------------------------------------------------------- */

static inline void rp_draft_begin(struct rp_stores *stores)
{
    stores->draft.pieces = stores->draft.count = stores->draft.tokens = 0;
    stores->draft.gap = stores->seq_len;
}
/** The oldest open row; a window that was never opened has none. */
static inline uint16_t rp_stores_oldest_row(const struct rp_stores *stores)
{
    return stores->open.count > 0 ? rp_window_oldest(&stores->open) : RP_WINDOW_NONE;
}
static inline bool rp_draft_is_open(const struct rp_stores *stores)
{
    return stores->draft.gap > 0 && stores->draft.pieces < stores->pieces_max;
}
/** Append a fragment of the front of a piece, which occupies `size` places. */
static inline void rp_draft_add(struct rp_stores *stores, const struct rp_item_piece *piece,
                                uint32_t tokens, uint32_t size)
{
    struct rp_row_draft *draft = &stores->draft;
    draft->epochs[draft->count] = piece->epoch;
    draft->fragments[draft->count++] = (struct rp_fragment){piece->item, piece->offset,
                                                            piece->source, tokens};
    draft->pieces++;
    draft->tokens += tokens;
    draft->gap -= size;
}
/** Cut tokens off the front of a piece into the row. */
static inline void rp_draft_cut(struct rp_stores *stores, struct rp_item_piece *piece,
                                uint32_t tokens)
{
    rp_draft_add(stores, piece, tokens, rp_feed_round(&stores->feed, tokens));
    piece->offset += tokens;
    piece->length -= tokens;
}
RP_MUST_CHECK int rp_draft_take_group(struct rp_stores *stores, const struct rp_item_piece *piece,
                                      uint32_t size, struct rp_error *error);
/** Take a whole piece into the row. */
static inline int rp_draft_take(struct rp_stores *stores, const struct rp_item_piece *piece,
                                uint32_t size, struct rp_error *error)
{
    if (stores->feed.group > 1)
        return rp_draft_take_group(stores, piece, size, error);
    rp_draft_add(stores, piece, piece->length, size);
    return 0;
}

/* ---- packings -------------------------------------------------------------------------------- */

/** Whether the pool gives this row; and this row of it. */
static inline bool rp_stores_pool_gives(const struct rp_stores *stores)
{
    uint64_t waited = rp_min_u64(stores->feed.row - stores->pool_row, UINT64_C(1) << 32);
    return stores->pool_count > 0 &&
           (stores->pool_count >= stores->spread || stores->feed.is_dry ||
            stores->feed.is_stopped || waited * stores->pool_count >= 4 * (uint64_t)stores->spread);
}
RP_MUST_CHECK int rp_stores_pool_row(struct rp_stores *stores, struct rp_error *error);

/** Fill the empty draft with the next row. Without a fragment the stream has ended. Errors: as
 * rp_feed_next. */
RP_MUST_CHECK int rp_plan_by_concat(struct rp_stores *stores, struct rp_error *error);
RP_MUST_CHECK int rp_plan_by_lookahead(struct rp_stores *stores, struct rp_error *error);
RP_MUST_CHECK int rp_plan_by_best_fit(struct rp_stores *stores, struct rp_error *error);

/* ---- the whole state ------------------------------------------------------------------------- */

/* A snapshot whose arrays are kept for the next one. */
struct rp_stores_saved {
    struct rp_snapshot snapshot;
    uint32_t sources, fifo, pool, open, open_pieces; /* room */
};

/** Counts of the snapshot of a state: its arrays must have this room. */
void rp_stores_measure(const struct rp_stores *stores, struct rp_snapshot *snapshot);
/** Fill a snapshot that was measured and has room. row and digest are the caller's. */
void rp_stores_copy(const struct rp_stores *stores, struct rp_snapshot *snapshot);
/** Save the state; memory is allocated only if there is more than before. */
RP_MUST_CHECK int rp_stores_save(const struct rp_stores *stores, struct rp_stores_saved *saved,
                                 struct rp_error *error);
/** Room for this many sources and no pieces, so that saving a state without pieces allocates
 * nothing. */
RP_MUST_CHECK int rp_stores_saved_reserve(struct rp_stores_saved *saved, uint32_t sources,
                                          struct rp_error *error);
void rp_stores_saved_free(struct rp_stores_saved *saved);
/** Tokens of a source's waiting pieces. */
uint64_t rp_stores_waiting(const struct rp_stores *stores, uint32_t source);
/** Go back to a snapshot of the state before a row. Afterwards the values of the row before it are
 * in force. -RP_E_CORRUPT: a piece does not fit; -ENOMEM. */
RP_MUST_CHECK int rp_stores_restore(struct rp_stores *stores, const struct rp_snapshot *snapshot,
                                    struct rp_error *error);
/** The actions of section 9.2 at the row that has begun, which is a boundary; `before` is the state
 * before them. */
RP_MUST_CHECK int rp_stores_boundary(struct rp_stores *stores, const struct rp_snapshot *before,
                                     struct rp_error *error);

#endif
