/* SPDX-License-Identifier: Apache-2.0 */
/* packing lookahead — the oldest document, then the largest that fit, and a pair to close the row.
 *
 * The FIFO is a window whose values are lengths. All lengths above seq_len count as seq_len + 1: such a
 * piece never fits anywhere. At a row boundary there is no partial row, so the FIFO is the whole state. */
#include "base/bits.h"
#include "plan/packing.h"

enum { PAIR_TRIES = 48 };

/* Take from the oldest what the row has room for. What is left of it stays the oldest. */
static void take_oldest(struct rp_lane *lane, struct rp_draft *row)
{
    uint32_t slot = lane->window.oldest;
    struct rp_piece *piece = &lane->pieces[slot];
    rp_draft_take(row, lane, piece, (uint32_t)rp_min_u64(row->gap, piece->length));
    if (piece->length == 0)
        rp_window_remove(&lane->window, slot);
    else
        rp_window_change(&lane->window, slot,
                         (uint32_t)rp_min_u64(piece->length, lane->config->seq_len + 1));
}

/* Take the whole of the piece at an index of the window. */
static void take_at(struct rp_lane *lane, struct rp_draft *row, uint32_t index)
{
    struct rp_piece *piece = &lane->pieces[rp_window_slot(&lane->window, index)];
    rp_draft_take(row, lane, piece, (uint32_t)piece->length);
    rp_window_remove_at(&lane->window, index);
}

static int top_up(struct rp_lane *lane, struct rp_error *error)
{
    while (lane->window.count < lane->window.capacity) {
        struct rp_piece piece;
        int delivered = rp_feed_next(&lane->feed, &piece, &lane->counts, error);
        if (delivered <= 0)
            return delivered;
        rp_lane_add_piece(lane, &piece);
    }
    return 0;
}

struct pair {
    uint32_t a, b; /* indexes in the window, a > b; `a` goes first into the row */
};

/* The best pair whose sum lies in (sum_min, gap].
 *
 * `a` comes down through the longest, `b` up through the shortest that can still make the sum; whichever
 * step the sum allows is taken, until they meet. That sees the greatest partner of every `a`: going down,
 * the room beside `a` only grows, and a `b` that was passed made a greater sum with the `a` before.
 * Behind the meeting point every pair was seen with the two exchanged. No `a` is longer than sum_min, which
 * the best piece has a part in. */
static bool find_pair(const struct rp_window *window, uint32_t gap, uint32_t sum_min, struct pair *pair)
{
    const int32_t *value = window->value;
    uint32_t candidates = rp_window_count_below(window, gap - rp_window_value(window, 0) + 1);
    if (candidates < 2)
        return false;
    uint32_t a = candidates - 1, last = candidates > PAIR_TRIES ? candidates - PAIR_TRIES : 0;
    uint32_t b = rp_window_count_below(window, sum_min + 1 - (uint32_t)value[a]);
    uint32_t best = sum_min, best_a = 0;
    while (b < a && a >= last && best < gap) {
        uint32_t sum = (uint32_t)(value[a] + value[b]);
        bool fits = sum <= gap, better = fits && sum > best;
        best = better ? sum : best;
        best_a = better ? a : best_a;
        b += fits;
        a -= !fits;
    }
    if (best == sum_min)
        return false;
    uint32_t best_b = rp_window_count_below(window, best - (uint32_t)value[best_a] + 1) - 1;
    best_b -= best_b == best_a; /* both of one length: the next oldest */
    *pair = (struct pair){best_a, best_b};
    return true;
}

/* The greatest length that fits into `rest` behind the piece below index `fitting`; 0 if none does. */
static uint32_t second_length(const struct rp_window *window, uint32_t fitting, uint32_t rest)
{
    uint32_t seconds = rp_window_count_below(window, rest + 1);
    seconds -= seconds == fitting; /* not the same piece again */
    return seconds > 0 ? rp_window_value(window, seconds - 1) : 0;
}

/* Take what fits best. False if nothing fits. */
static bool take_filler(struct rp_lane *lane, struct rp_draft *row)
{
    struct rp_window *window = &lane->window;
    uint32_t fitting = rp_window_count_below(window, row->gap + 1);
    if (fitting == 0)
        return false;
    uint32_t best = rp_window_value(window, fitting - 1);
    uint32_t rest = row->gap - best;
    if (rest > 0 && row->count + 2 <= lane->config->max_docs_per_row) {
        uint32_t second = second_length(window, fitting, rest);
        struct pair pair = {0};
        if (rest - second < rp_window_value(window, 0) &&
            find_pair(window, row->gap, best + second, &pair)) {
            take_at(lane, row, pair.a);
            take_at(lane, row, pair.b);
            return true;
        }
    }
    take_at(lane, row, fitting - 1);
    return true;
}

int rp_lookahead_row(struct rp_lane *lane, struct rp_draft *row, struct rp_error *error)
{
    int failed = top_up(lane, error);
    if (failed < 0 || lane->window.count == 0)
        return failed;
    take_oldest(lane, row);
    while (rp_draft_has_room(row, lane)) {
        failed = top_up(lane, error);
        if (failed < 0)
            return failed;
        if (!take_filler(lane, row))
            break;
    }
    if (lane->config->fill == RP_FILL_SPLIT && rp_draft_has_room(row, lane) && lane->window.count > 0)
        take_oldest(lane, row);
    return 0;
}
