/* SPDX-License-Identifier: Apache-2.0 */
/* packing lookahead — the oldest document, then the largest that fit, and a pair to close the row.
 *
 * The FIFO is a window whose values are lengths. All lengths above seq_len count as seq_len + 1: such a
 * piece never fits anywhere. At a row boundary there is no partial row, so the FIFO is the whole state. */
#include "base/bits.h"
#include "plan/packing.h"

enum { PAIR_TRIES = 48 };

/* Arrange a piece that was taken from by what is left of it. */
static void settle(struct rp_lane *lane, uint32_t slot)
{
    uint64_t length = lane->pieces[slot].length;
    if (length == 0)
        rp_window_remove(&lane->window, slot);
    else
        rp_window_change(&lane->window, slot,
                         (uint32_t)rp_min_u64(length, lane->config->seq_len + 1));
}

static void take_oldest(struct rp_lane *lane, struct rp_draft *row)
{
    uint32_t slot = lane->window.oldest;
    struct rp_piece *piece = &lane->pieces[slot];
    rp_draft_take(row, lane, piece, (uint32_t)rp_min_u64(row->gap, piece->length));
    settle(lane, slot);
}

static void take_all(struct rp_lane *lane, struct rp_draft *row, uint32_t slot)
{
    struct rp_piece *piece = &lane->pieces[slot];
    rp_draft_take(row, lane, piece, (uint32_t)piece->length);
    settle(lane, slot);
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
    uint32_t a, b; /* slots; `a` goes first */
    uint32_t sum;  /* of lengths */
};

/* The best pair whose sum lies in (sum_min, gap]. Going down through the candidates for `a`, the gap
 * left for `b` only grows, so `b` only moves up, and one sweep finds every partner. Where `b` would be
 * longer than `a`, the pair was seen before with the two exchanged, and so were all after it. */
static bool find_pair(const struct rp_window *window, uint32_t gap, uint32_t sum_min, struct pair *best)
{
    uint32_t least = rp_window_value(window, 0);
    uint32_t a = rp_window_count_below(window, gap - least + 1); /* candidates: indexes below a */
    uint32_t b = 0;                                              /* fitting partners: indexes below b */
    best->sum = sum_min;
    for (int tries = 0; tries < PAIR_TRIES && a-- > 0 && best->sum < gap; tries++) {
        uint32_t length = rp_window_value(window, a);
        while (b < window->count && rp_window_value(window, b) <= gap - length)
            b++;
        if (b > a + 1)
            break;
        uint32_t partner = b == a + 1 ? a : b; /* one above the partner; a piece is not its own */
        if (partner == 0)
            continue;
        uint32_t sum = length + rp_window_value(window, partner - 1);
        if (sum > best->sum)
            *best = (struct pair){rp_window_slot(window, a), rp_window_slot(window, partner - 1), sum};
    }
    return best->sum > sum_min;
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
            take_all(lane, row, pair.a);
            take_all(lane, row, pair.b);
            return true;
        }
    }
    take_all(lane, row, rp_window_slot(window, fitting - 1));
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
