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
    uint16_t slot = lane->window.oldest;
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
 * `a` comes down through the longest, `b` up through the shortest that can still make the sum;
 * whichever step the sum allows is taken, until they meet. That sees the greatest partner of every
 * `a`: going down, the room beside `a` only grows, and a `b` that was passed made a greater sum
 * with the `a` before. Behind the meeting point every pair was seen with the two exchanged. No `a`
 * is longer than sum_min, which the best piece has a part in. */
static bool find_pair(const struct rp_window *window, uint32_t gap, uint32_t sum_min,
                      struct pair *pair)
{
    const struct rp_window_link *link = window->link;
    uint16_t a = rp_window_floor(window, gap - rp_window_least(window)), best_a = RP_WINDOW_NONE;
    if (a == RP_WINDOW_NONE || 2 * link[a].value <= sum_min)
        return false;
    uint16_t b = rp_window_ceiling(window, sum_min + 1 - link[a].value);
    uint32_t best = sum_min;
    int tries = PAIR_TRIES;
    while (a != b && tries > 0 && best < gap) {
        uint32_t sum = link[a].value + link[b].value;
        bool fits = sum <= gap, better = fits && sum > best;
        best = better ? sum : best;
        best_a = better ? a : best_a;
        uint16_t up = link[b].upper, down = link[a].lower;
        b = fits ? up : b;
        a = fits ? a : down;
        tries -= !fits;
    }
    if (best == sum_min)
        return false;
    uint16_t best_b = rp_window_floor(window, best - link[best_a].value);
    if (best_b == best_a) /* both of one length: the next oldest */
        best_b = link[best_a].lower;
    *pair = (struct pair){best_a, best_b};
    return true;
}

/* The greatest length up to `rest` of a piece other than `best`; 0 if there is none. */
static uint32_t second_length(const struct rp_window *window, uint16_t best, uint32_t rest)
{
    uint16_t second = rp_window_floor(window, rest);
    if (second == best)
        second = window->link[best].lower;
    return second != RP_WINDOW_NONE ? rp_window_value(window, second) : 0;
}

/* Take what fits best. False if nothing fits. */
static bool take_filler(struct rp_lane *lane, struct rp_draft *row)
{
    const struct rp_window *window = &lane->window;
    uint16_t best = rp_window_floor(window, row->gap);
    if (best == RP_WINDOW_NONE)
        return false;
    uint32_t length = rp_window_value(window, best), rest = row->gap - length;
    if (rest > 0 && row->count + 2 <= lane->config->max_docs_per_row) {
        uint32_t second = second_length(window, best, rest);
        struct pair pair;
        if (rest - second < rp_window_least(window) &&
            find_pair(window, row->gap, length + second, &pair)) {
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
