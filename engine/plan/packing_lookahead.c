/* SPDX-License-Identifier: Apache-2.0 */
/* packing lookahead — the oldest document, then the largest that fit, and a pair to close the row.
 *
 * The FIFO is a window whose values are lengths. A document longer than a row never enters it: it
 * is the pending piece, gives full rows, and only its rest queues up. At a row boundary there is no
 * partial row, so FIFO and pending piece are the whole state.
 *
 * Invariants: no piece of the FIFO is longer than seq_len; the pending piece is; while one is
 * pending nothing is read, so the FIFO keeps the room for its rest. */
#include "base/bits.h"
#include "plan/packing.h"

enum { PAIR_TRIES = 48 };

/* Take from the oldest what the row has room for. What is left of it stays the oldest. */
static void take_oldest(struct rp_lane *lane, struct rp_draft *row)
{
    uint16_t slot = rp_window_oldest(&lane->window);
    struct rp_piece *piece = &lane->pieces[slot];
    rp_draft_take(row, lane, piece, (uint32_t)rp_min_u64(row->gap, piece->length));
    if (piece->length == 0)
        rp_window_remove(&lane->window, slot);
    else
        rp_window_change(&lane->window, slot, (uint32_t)piece->length);
}

static void take_whole(struct rp_lane *lane, struct rp_draft *row, uint16_t slot)
{
    struct rp_piece *piece = &lane->pieces[slot];
    rp_draft_take(row, lane, piece, (uint32_t)piece->length);
    rp_window_remove(&lane->window, slot);
}

/* A row of the pending piece alone. */
static void take_pending(struct rp_lane *lane, struct rp_draft *row)
{
    struct rp_piece *pending = &lane->pending;
    rp_draft_take(row, lane, pending, lane->config->seq_len);
    if (pending->length <= lane->config->seq_len) {
        rp_lane_add_piece(lane, pending);
        pending->length = 0;
    }
}

static int top_up(struct rp_lane *lane, struct rp_error *error)
{
    while (lane->window.count < lane->window.capacity && lane->pending.length == 0) {
        struct rp_piece piece;
        int delivered = rp_feed_next(&lane->feed, &piece, &lane->counts, error);
        if (delivered <= 0)
            return delivered;
        if (piece.length > lane->config->seq_len)
            lane->pending = piece;
        else
            rp_lane_add_piece(lane, &piece);
    }
    return 0;
}

struct pair {
    uint16_t a, b; /* slots; `a` goes first */
};

/* The best pair whose sum lies in (sum_min, gap].
 *
 * It ends where twice the length of `a` is no longer better: what follows was seen with the two
 * exchanged. No `a` is longer than sum_min, which the best piece has a part in, so no `a` is better
 * alone, when nothing fits beside it. */
static bool find_pair(const struct rp_window *window, uint32_t gap, uint32_t sum_min,
                      struct pair *pair)
{
    uint32_t best = sum_min;
    uint16_t best_a = RP_WINDOW_NONE, best_b = RP_WINDOW_NONE;
    uint16_t a = rp_window_floor(window, gap - rp_window_value(window, rp_window_least(window)));
    for (int tries = PAIR_TRIES; tries > 0 && best < gap; tries--) {
        uint32_t length = rp_window_value(window, a);
        if (2 * length <= best)
            break;
        uint16_t b = rp_window_floor_but(window, gap - length, a);
        uint32_t sum = length + rp_window_value(window, b);
        bool is_better = sum > best;
        best = is_better ? sum : best;
        best_a = is_better ? a : best_a;
        best_b = is_better ? b : best_b;
        a = rp_window_lower(window, a);
    }
    *pair = (struct pair){best_a, best_b};
    return best > sum_min;
}

/* Take what fits best. False if nothing fits. */
static bool take_filler(struct rp_lane *lane, struct rp_draft *row)
{
    const struct rp_window *window = &lane->window;
    uint32_t least = rp_window_value(window, rp_window_least(window));
    uint16_t best = least <= row->gap ? rp_window_floor(window, row->gap) : RP_WINDOW_NONE;
    if (best == RP_WINDOW_NONE)
        return false;
    uint32_t length = rp_window_value(window, best), rest = row->gap - length;
    if (rest > 0 && row->count + 2 <= lane->config->max_docs_per_row) {
        uint16_t other = rp_window_floor_but(window, rest, best);
        uint32_t second = rp_window_value(window, other);
        struct pair pair = {best, other};
        if (rest - second < least && find_pair(window, row->gap, length + second, &pair)) {
            take_whole(lane, row, pair.a);
            take_whole(lane, row, pair.b);
            return true;
        }
    }
    take_whole(lane, row, best);
    return true;
}

int rp_lookahead_row(struct rp_lane *lane, struct rp_draft *row, struct rp_error *error)
{
    int failed = top_up(lane, error);
    if (failed < 0)
        return failed;
    if (lane->pending.length > 0) {
        take_pending(lane, row);
        return 0;
    }
    if (lane->window.count == 0)
        return 0;
    take_oldest(lane, row);
    while (rp_draft_has_room(row, lane)) {
        failed = top_up(lane, error);
        if (failed < 0)
            return failed;
        if (!take_filler(lane, row))
            break;
    }
    if (lane->config->fill == RP_FILL_SPLIT && rp_draft_has_room(row, lane) &&
        lane->window.count > 0)
        take_oldest(lane, row);
    return 0;
}
