/* SPDX-License-Identifier: Apache-2.0 */
/* packing_best_fit.c — several rows are open at once; each document goes into the row that it
 * leaves with the smallest gap.
 *
 * The open rows are a window whose values are gaps. A row with no gap or with max_docs_per_row
 * fragments is emitted at once, so every open row has room for one more fragment. */
#include "base/bits.h"
#include "plan/packing.h"

/* Put the first `tokens` of the pending piece into `row`. */
static void place_front(struct rp_lane *lane, struct rp_draft *row, uint32_t tokens)
{
    rp_draft_take(row, lane, &lane->pending, tokens);
    lane->counts.placed += lane->pending.length == 0;
}

static struct rp_draft open_row_draft(const struct rp_lane *lane, uint16_t slot)
{
    const struct rp_open_row *open = &lane->open_rows[slot];
    return (struct rp_draft){rp_open_fragments(lane, slot), open->count, open->gap};
}

/* The draft points to the slot's fragments. They stay valid until the slot is used again, which
 * happens in the next rp_plan_next at the earliest. */
static void emit_open_row(struct rp_lane *lane, uint16_t slot, struct rp_draft *row)
{
    *row = open_row_draft(lane, slot);
    rp_window_remove(&lane->window, slot);
}

static void close_row(struct rp_lane *lane, uint16_t slot, struct rp_draft *row)
{
    emit_open_row(lane, slot, row);
    if (lane->config->row_gap == RP_ROW_GAP_SPLIT)
        place_front(lane, row, (uint32_t)rp_min_u64(row->gap, lane->pending.length));
}

/* Add the whole pending piece to an open row. If that completes the row, return true with it in
 * *row. */
static bool add_to_open_row(struct rp_lane *lane, uint16_t slot, struct rp_draft *row)
{
    struct rp_draft grown = open_row_draft(lane, slot);
    place_front(lane, &grown, (uint32_t)lane->pending.length);
    lane->open_rows[slot].count = grown.count;
    lane->open_rows[slot].gap = grown.gap;
    if (!rp_draft_has_room(&grown, lane)) {
        emit_open_row(lane, slot, row);
        return true;
    }
    rp_window_change(&lane->window, slot, grown.gap);
    return false;
}

/* Place the pending piece, or close a row to make room for it. True if *row is a complete row. */
static bool place_pending(struct rp_lane *lane, struct rp_draft *row)
{
    const struct rp_plan_config *config = lane->config;
    struct rp_window *window = &lane->window;
    uint64_t age_max = (uint64_t)RP_AGE_MAX_WINDOWS * config->window;

    uint16_t oldest = rp_window_oldest(window);
    if (oldest != RP_WINDOW_NONE &&
        lane->counts.placed - lane->open_rows[oldest].opened_at >= age_max) {
        close_row(lane, oldest, row);
        return true;
    }
    if (lane->pending.length >= config->seq_len) {
        place_front(lane, row, config->seq_len);
        return true;
    }
    uint32_t length = (uint32_t)lane->pending.length;
    uint16_t fitting = rp_window_ceiling(window, length);
    if (fitting != RP_WINDOW_NONE)
        return add_to_open_row(lane, fitting, row);
    if (window->count < window->capacity) {
        uint16_t slot = rp_lane_add_open_row(lane, lane->counts.placed, config->seq_len);
        return add_to_open_row(lane, slot, row);
    }
    close_row(lane, rp_window_least(window), row);
    return true;
}

int rp_best_fit_row(struct rp_lane *lane, struct rp_draft *row, struct rp_error *error)
{
    for (;;) {
        if (lane->pending.length == 0) {
            int delivered = rp_piece_source_next(&lane->piece_source, &lane->pending, &lane->counts,
                                                 error);
            if (delivered < 0)
                return delivered;
            if (delivered == 0) {
                if (lane->window.count > 0)
                    emit_open_row(lane, rp_window_least(&lane->window), row);
                return 0;
            }
        }
        if (place_pending(lane, row))
            return 0;
    }
}
