/* SPDX-License-Identifier: Apache-2.0 */
/* packing_lookahead.c — a row is the oldest document, then the longest ones that fit; its last two
 * are chosen as a pair.
 *
 * The FIFO is a window whose values are lengths. A document longer than a row never enters it: it
 * is the pending piece, gives full rows, and only its rest queues up. At a row boundary there is no
 * partial row, so FIFO and pending piece are the whole state.
 *
 * Invariants: no piece of the FIFO is longer than seq_len; the pending piece is; while one is
 * pending no document is read, so the FIFO keeps the room for its rest. */
#include "base/bits.h"
#include "plan/packing.h"
#include "plan/pair.h"

/* Take as much of the oldest piece as the row has room for. The rest of the piece stays the oldest.
 */
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
    const struct rp_piece *piece = &lane->pieces[slot];
    uint32_t length = rp_window_value(&lane->window, slot);
    row->fragments[row->count++] = (struct rp_fragment){piece->document, piece->offset,
                                                        piece->source, length};
    row->gap -= length;
    rp_window_remove(&lane->window, slot);
}

/* Make a row of seq_len tokens of the pending piece. */
static void take_pending(struct rp_lane *lane, struct rp_draft *row)
{
    struct rp_piece *pending = &lane->pending;
    rp_draft_take(row, lane, pending, lane->config->seq_len);
    if (pending->length <= lane->config->seq_len) {
        rp_lane_add_piece(lane, pending);
        pending->length = 0;
    }
}

/* Fill the FIFO. *best is the longest piece that fits into the gap, or none, before and after: a
 * new piece takes its place only if it is longer, because the older of two equal ones comes first.
 * Inlined, so that *best is in a register. */
static inline __attribute__((always_inline)) int top_up(struct rp_lane *lane, uint32_t gap,
                                                        uint16_t *best, struct rp_error *error)
{
    struct rp_window *window = &lane->window;
    while (window->count < window->capacity && lane->pending.length == 0) {
        struct rp_piece *piece = &lane->pieces[rp_window_next_slot(window)];
        int delivered = rp_piece_source_next(&lane->piece_source, piece, &lane->counts, error);
        if (delivered <= 0)
            return delivered;
        if (piece->length > lane->config->seq_len) {
            lane->pending = *piece;
            return 0;
        }
        uint32_t length = (uint32_t)piece->length, before = rp_window_value(window, *best);
        uint16_t slot = rp_window_add(window, length);
        bool is_better = length - before - 1 < gap - before; /* before < length && length <= gap */
        *best = is_better ? slot : *best;
    }
    return 0;
}

/* Take `best`, or a pair with a greater sum. Returns the longest piece that fits into the rest of
 * the gap, or none. */
static uint16_t take_filler(struct rp_lane *lane, struct rp_draft *row, uint16_t best)
{
    const struct rp_window *window = &lane->window;
    uint32_t length = rp_window_value(window, best), rest = row->gap - length;
    uint16_t other = RP_WINDOW_NONE;
    if (rest > 0) {
        uint32_t least = rp_window_value(window, rp_window_least(window));
        other = rp_window_floor_but(window, rest, best);
        uint32_t second = rp_window_value(window, other);
        struct rp_pair pair;
        if (rest - second < least && row->count + 2 <= lane->config->max_docs_per_row &&
            rp_pair_find(window, row->gap, best, other, &pair)) {
            take_whole(lane, row, pair.a);
            take_whole(lane, row, pair.b);
            return rp_window_floor(window, row->gap);
        }
    }
    take_whole(lane, row, best);
    return other;
}

int rp_lookahead_row(struct rp_lane *lane, struct rp_draft *row, struct rp_error *error)
{
    uint16_t best = RP_WINDOW_NONE;
    int failed = top_up(lane, 0, &best, error);
    if (failed < 0)
        return failed;
    if (lane->pending.length > 0) {
        take_pending(lane, row);
        return 0;
    }
    if (lane->window.count == 0)
        return 0;
    take_oldest(lane, row);
    best = rp_window_floor(&lane->window, row->gap);
    while (rp_draft_has_room(row, lane)) {
        failed = top_up(lane, row->gap, &best, error);
        if (failed < 0)
            return failed;
        if (best == RP_WINDOW_NONE)
            break;
        best = take_filler(lane, row, best);
    }
    if (lane->config->row_gap == RP_ROW_GAP_SPLIT && rp_draft_has_room(row, lane) &&
        lane->window.count > 0)
        take_oldest(lane, row);
    return 0;
}
