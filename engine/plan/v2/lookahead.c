/* SPDX-License-Identifier: Apache-2.0 */
/* lookahead.c — a row is the oldest piece, then the largest ones that fit; its last two are chosen
 * as a pair (STREAM2.md section 7).
 *
 * No piece of the FIFO is longer than a row: longer ones are in the pool. */
#include "plan/pair.h"
#include "plan/v2/stores.h"

static int take(struct rp_stores *stores, uint16_t slot, struct rp_error *error)
{
    int failed = rp_draft_take(stores, &stores->fifo[slot], rp_window_value(&stores->window, slot),
                               error);
    rp_window_remove(&stores->window, slot);
    return failed;
}

/* Fill the FIFO, and keep *best the largest piece that fits into the gap (or none). The older one
 * of equal pieces stays. Inlined, so that *best is in a register. */
static inline __attribute__((always_inline)) int top_up(struct rp_stores *stores, uint32_t gap,
                                                        uint16_t *best, struct rp_error *error)
{
    struct rp_window *window = &stores->window;
    while (window->count < stores->window_max && stores->pool_count < stores->spread) {
        struct rp_item_piece *piece = &stores->fifo[rp_window_next_slot(window)];
        uint32_t size, before = rp_window_value(window, *best);
        int given = rp_feed_next(&stores->feed, piece, &size, error);
        if (given <= 0)
            return given;
        if (piece->length > stores->seq_len) {
            rp_stores_enter_pool(stores, piece);
            continue;
        }
        uint16_t slot = rp_window_add(window, size);
        bool is_better = size - before - 1 < gap - before; /* before < size && size <= gap */
        *best = is_better ? slot : *best;
    }
    return 0;
}

/* Take *best, or a pair with a greater sum. Afterwards *best is the largest piece that fits into
 * the rest of the gap, or none. */
static int take_filler(struct rp_stores *stores, uint16_t *best, struct rp_error *error)
{
    const struct rp_window *window = &stores->window;
    uint32_t size = rp_window_value(window, *best), rest = stores->draft.gap - size;
    uint16_t taken = *best, other = RP_WINDOW_NONE;
    if (rest > 0) {
        uint32_t least = rp_window_value(window, rp_window_least(window));
        other = rp_window_floor_but(window, rest, taken);
        uint32_t second = rp_window_value(window, other);
        struct rp_pair pair;
        if (rest - second < least && stores->draft.pieces + 2 <= stores->pieces_max &&
            rp_pair_find(window, stores->draft.gap, taken, other, &pair)) {
            int failed = take(stores, pair.a, error);
            if (failed == 0)
                failed = take(stores, pair.b, error);
            *best = RP_WINDOW_NONE;
            if (stores->draft.gap > 0) /* seldom */
                *best = rp_window_floor(window, stores->draft.gap);
            return failed;
        }
    }
    *best = other;
    return take(stores, taken, error);
}

/* Close the gap with the front of the oldest piece that may be cut and is labelled there. */
static int split_oldest(struct rp_stores *stores, struct rp_error *error)
{
    struct rp_window *window = &stores->window;
    uint32_t gap = stores->draft.gap;
    for (uint16_t slot = rp_window_oldest(window); slot != RP_WINDOW_NONE;
         slot = rp_window_newer(window, slot)) {
        struct rp_item_piece *piece = &stores->fifo[slot];
        if (rp_feed_is_atomic(&stores->feed, piece->source))
            continue;
        int labelled = rp_feed_labelled(&stores->feed, piece, gap, error);
        if (labelled < 0)
            return labelled;
        if (labelled == 0)
            continue;
        rp_draft_cut(stores, piece, gap);
        int left = rp_feed_trim(&stores->feed, piece, error);
        if (left > 0)
            rp_window_change(window, slot, rp_feed_round(&stores->feed, piece->length));
        else
            rp_window_remove(window, slot);
        return left < 0 ? left : 0;
    }
    return 0;
}

int rp_plan_by_lookahead(struct rp_stores *stores, struct rp_error *error)
{
    struct rp_window *window = &stores->window;
    uint16_t best = RP_WINDOW_NONE;
    int failed = top_up(stores, 0, &best, error);
    if (failed < 0)
        return failed;
    if (rp_stores_pool_gives(stores))
        return rp_stores_pool_row(stores, error);
    if (window->count == 0)
        return 0;
    failed = take(stores, rp_window_oldest(window), error);
    if (failed < 0)
        return failed;
    best = rp_window_floor(window, stores->draft.gap);
    while (rp_draft_is_open(stores)) {
        failed = top_up(stores, stores->draft.gap, &best, error);
        if (failed < 0)
            return failed;
        if (best == RP_WINDOW_NONE)
            break;
        failed = take_filler(stores, &best, error);
        if (failed < 0)
            return failed;
    }
    if (stores->row_gap == RP_ROW_GAP_SPLIT && rp_draft_is_open(stores))
        return split_oldest(stores, error);
    return 0;
}
