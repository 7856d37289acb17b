/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/lane.h"

#include <errno.h>
#include <inttypes.h>

#include "base/mem.h"
#include "plan/plan_state.h"

static int open_packing(struct rp_lane *lane, struct rp_error *error)
{
    const struct rp_plan_config *config = lane->config;
    if (config->packing == RP_PACKING_CONCAT)
        return 0;
    bool is_fifo = config->packing == RP_PACKING_LOOKAHEAD;
    int failed = rp_window_open(&lane->window, config->window, is_fifo, error);
    if (failed < 0)
        return failed;
    size_t slots = config->window + 1; /* slot 0 is none */
    if (is_fifo) {
        lane->pieces = rp_calloc(slots, sizeof *lane->pieces);
    } else {
        lane->open_rows = rp_calloc(slots, sizeof *lane->open_rows);
        lane->open_fragments = rp_calloc(slots * rp_open_fragments_max(config),
                                         sizeof *lane->open_fragments);
    }
    if (is_fifo ? !lane->pieces : !lane->open_rows || !lane->open_fragments)
        return rp_fail(error, -ENOMEM,
                       "a smaller packing_buffer, open_bins or max_docs_per_row needs less memory",
                       "no memory for %" PRIu32 " %s", config->window,
                       is_fifo ? "buffered documents" : "open rows");
    return 0;
}

int rp_lane_open(struct rp_lane *lane, const struct rp_plan *plan, uint32_t number,
                 struct rp_error *error)
{
    *lane = (struct rp_lane){.config = &plan->config};
    int failed = rp_piece_source_open(&lane->piece_source, plan, number, error);
    if (failed == 0)
        failed = open_packing(lane, error);
    if (failed < 0)
        rp_lane_close(lane);
    return failed;
}

void rp_lane_close(struct rp_lane *lane)
{
    rp_piece_source_close(&lane->piece_source);
    rp_window_close(&lane->window);
    free(lane->pieces);
    free(lane->open_rows);
    free(lane->open_fragments);
    *lane = (struct rp_lane){0};
}

uint64_t rp_lane_buffered(const struct rp_lane *lane)
{
    const struct rp_window *window = &lane->window;
    uint64_t tokens = lane->pending.length;
    uint16_t slot = RP_WINDOW_NONE;
    for (uint32_t i = 0; i < window->count; i++) {
        slot = rp_window_newer(window, slot);
        tokens += lane->pieces ? lane->pieces[slot].length
                               : lane->config->seq_len - lane->open_rows[slot].gap;
    }
    return tokens;
}

bool rp_lane_is_over(const struct rp_lane *lane)
{
    return lane->window.count == 0 && lane->pending.length == 0 &&
           !rp_piece_source_has_more(&lane->piece_source);
}

void rp_lane_add_piece(struct rp_lane *lane, const struct rp_piece *piece)
{
    RP_DASSERT(piece->length <= lane->config->seq_len);
    lane->pieces[rp_window_add(&lane->window, (uint32_t)piece->length)] = *piece;
}

uint16_t rp_lane_add_open_row(struct rp_lane *lane, uint64_t opened_at, uint32_t gap)
{
    uint16_t slot = rp_window_add(&lane->window, gap);
    lane->open_rows[slot] = (struct rp_open_row){.opened_at = opened_at, .count = 0, .gap = gap};
    return slot;
}
