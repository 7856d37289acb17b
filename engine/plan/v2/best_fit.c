/* SPDX-License-Identifier: Apache-2.0 */
/* best_fit.c — several rows are open at once; each piece enters the row that it leaves with the
 * smallest gap (STREAM2.md section 7).
 *
 * A row without a gap or with D' pieces is emitted at once, so every open row has room for a piece.
 */
#include "base/bits.h"
#include "plan/v2/stores.h"

static struct rp_item_piece *oldest_of(struct rp_stores *stores)
{
    return &stores->fifo[stores->head];
}

/* Make the row of an open row's pieces. */
static int emit(struct rp_stores *stores, uint16_t slot, struct rp_error *error)
{
    struct rp_waiting_row *row = &stores->rows[slot];
    int failed = 0;
    for (uint32_t node = row->first; node != 0;) {
        struct rp_piece_node *own = &stores->nodes[node];
        uint32_t next = own->next;
        if (failed == 0)
            failed = rp_draft_take(stores, &own->piece,
                                   rp_feed_round(&stores->feed, own->piece.length), error);
        own->next = stores->node_free;
        stores->node_free = node;
        node = next;
    }
    stores->draft.gap = row->gap;
    rp_window_remove(&stores->open, slot);
    return failed < 0 ? failed : 1;
}

/* Emit an open row, with the front of the oldest piece if rows are filled by cutting. */
static int close_row(struct rp_stores *stores, uint16_t slot, struct rp_error *error)
{
    struct rp_item_piece *oldest = oldest_of(stores);
    int emitted = emit(stores, slot, error);
    if (emitted < 0)
        return emitted;
    uint32_t tokens = (uint32_t)rp_min_u64(stores->draft.gap, oldest->length);
    if (stores->row_gap != RP_ROW_GAP_SPLIT || tokens == 0 ||
        rp_feed_is_atomic(&stores->feed, oldest->source))
        return 1;
    int labelled = rp_feed_labelled(&stores->feed, oldest, tokens, error);
    if (labelled <= 0)
        return labelled < 0 ? labelled : 1;
    rp_draft_cut(stores, oldest, tokens);
    stores->feed.counts.placed += oldest->length == 0;
    int failed = rp_stores_trim_oldest(stores, error);
    return failed < 0 ? failed : 1;
}

/* Add the oldest piece to an open row. 1: this completes the row, which is emitted. */
static int add_oldest(struct rp_stores *stores, uint16_t slot, struct rp_error *error)
{
    struct rp_waiting_row *row = &stores->rows[slot];
    rp_stores_append(stores, slot, oldest_of(stores));
    row->gap -= stores->fifo_sizes[stores->head];
    stores->feed.counts.placed++;
    rp_stores_pop(stores);
    if (row->gap == 0 || row->count >= stores->pieces_max)
        return emit(stores, slot, error);
    rp_window_change(&stores->open, slot, row->gap);
    return 0;
}

/* Steps 3 to 7 for the oldest piece. 1: the draft is a row. */
static int place_oldest(struct rp_stores *stores, struct rp_error *error)
{
    struct rp_stream_counts *counts = &stores->feed.counts;
    uint32_t size = stores->fifo_sizes[stores->head];
    uint16_t first = rp_window_oldest(&stores->open);
    if (first != RP_WINDOW_NONE && counts->placed - stores->rows[first].opened_at >=
                                       (uint64_t)RP_AGE_MAX_W * stores->window_max)
        return close_row(stores, first, error);
    if (size == stores->seq_len) {
        int failed = rp_draft_take(stores, oldest_of(stores), size, error);
        counts->placed++;
        rp_stores_pop(stores);
        return failed < 0 ? failed : 1;
    }
    uint16_t slot = rp_window_ceiling(&stores->open, size);
    if (slot == RP_WINDOW_NONE && stores->open.count >= stores->window_max)
        return close_row(stores, rp_window_least(&stores->open), error);
    if (slot == RP_WINDOW_NONE)
        slot = rp_stores_open_row(stores, counts->placed, stores->seq_len);
    return add_oldest(stores, slot, error);
}

int rp_plan_by_best_fit(struct rp_stores *stores, struct rp_error *error)
{
    for (;;) {
        if (rp_stores_pool_gives(stores))
            return rp_stores_pool_row(stores, error);
        if (stores->queued == 0) {
            int given = rp_stores_enter_next(stores, error);
            if (given < 0)
                return given;
            if (given > 0)
                continue;
            if (rp_stores_pool_gives(stores))
                return rp_stores_pool_row(stores, error);
            if (stores->open.count > 0)
                return emit(stores, rp_window_least(&stores->open), error);
            return 0;
        }
        int placed = place_oldest(stores, error);
        if (placed != 0)
            return placed < 0 ? placed : 0;
    }
}
