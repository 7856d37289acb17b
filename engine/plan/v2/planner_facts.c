/* SPDX-License-Identifier: Apache-2.0 */
/* planner_facts.c — position, snapshot and ledger of a plan (STREAM2.md sections 10.5, 12.1).
 * None of them changes the plan. */
#include <string.h>

#include "plan/v2/planner_state.h"

struct rp_stream_position rp_planner_position(const struct rp_planner *plan)
{
    const struct rp_deal_window *window = &plan->window;
    if (window->count == 0)
        return (struct rp_stream_position){plan->next_row, plan->next_row, plan->next_row};
    return (struct rp_stream_position){plan->next_row, window->first,
                                       window->first + window->count};
}

/* The state before the window that is being delivered. Sources that join at its first row have
 * their first state (section 12.2). */
static int copy_begun(const struct rp_planner *plan, struct rp_snapshot *snapshot,
                      struct rp_error *error)
{
    const struct rp_snapshot *before = &plan->window.before.snapshot;
    const struct rp_stage *stage = rp_calendar_at(plan->calendar, plan->window.first);
    struct rp_snapshot copy = *before;
    copy.sources = snapshot->sources;
    copy.fifo = snapshot->fifo;
    copy.pool = snapshot->pool;
    copy.open = snapshot->open;
    copy.open_pieces = snapshot->open_pieces;
    if (stage->joined > copy.source_count)
        copy.source_count = stage->joined;
    *snapshot = copy;
    int failed = rp_snapshot_resize(snapshot, error);
    if (failed < 0)
        return failed;
    memcpy(snapshot->sources, before->sources, before->source_count * sizeof *before->sources);
    for (uint32_t number = before->source_count; number < copy.source_count; number++)
        snapshot->sources[number].documents = stage->documents[number];
    memcpy(snapshot->fifo, before->fifo, before->fifo_count * sizeof *before->fifo);
    memcpy(snapshot->pool, before->pool, before->pool_count * sizeof *before->pool);
    memcpy(snapshot->open, before->open, before->open_count * sizeof *before->open);
    memcpy(snapshot->open_pieces, before->open_pieces,
           before->open_piece_count * sizeof *before->open_pieces);
    return 0;
}

int rp_planner_snapshot(const struct rp_planner *plan, struct rp_snapshot *snapshot,
                        struct rp_error *error)
{
    if (plan->window.count > 0)
        return copy_begun(plan, snapshot, error);
    if (plan->failed) { /* in the middle of a row */
        if (error)
            *error = plan->failure;
        return plan->failure.code;
    }
    rp_stores_measure(&plan->stores, snapshot);
    int failed = rp_snapshot_resize(snapshot, error);
    if (failed < 0)
        return failed;
    snapshot->row = plan->planned;
    snapshot->digest = plan->digest;
    rp_stores_copy(&plan->stores, snapshot);
    return 0;
}

const struct rp_calendar *rp_planner_calendar(const struct rp_planner *plan)
{
    return plan->calendar;
}

const struct rp_source_state *rp_planner_reached(const struct rp_planner *plan, uint32_t number)
{
    const struct rp_feed *feed = &plan->stores.feed;
    return number < feed->source_count ? &feed->sources[number].state : NULL;
}

void *rp_planner_carried(const struct rp_planner *plan)
{
    return plan->carried;
}

void rp_planner_carry(struct rp_planner *plan, void *carried)
{
    free(plan->carried);
    plan->carried = carried;
}

/* ---- the ledger ------------------------------------------------------------------------------ */

static uint64_t waiting_in(const struct rp_snapshot *snapshot, uint32_t number)
{
    uint64_t tokens = 0;
    for (uint64_t i = 0; i < rp_snapshot_pieces(snapshot); i++) {
        const struct rp_item_piece *piece = rp_snapshot_piece(snapshot, i);
        tokens += piece->source == number ? piece->length : 0;
    }
    return tokens;
}

static void begun_ledger(const struct rp_planner *plan, uint32_t number,
                         struct rp_stream_ledger *ledger)
{
    const struct rp_deal_window *window = &plan->window;
    const struct rp_snapshot *before = &window->before.snapshot;
    struct rp_source_state state = {0};
    if (number < before->source_count)
        state = before->sources[number];
    ledger->planned = state.tokens;
    ledger->taken = state.taken;
    ledger->withheld = state.withheld;
    ledger->waiting = waiting_in(before, number);
    ledger->delivered = state.tokens - ledger->waiting - state.withheld;
    for (uint64_t row = window->first; row < plan->next_row; row++) {
        const struct rp_dealt_row *own = &window->rows[window->order[row - window->first]];
        if (plan->has_skips && rp_calendar_skips(plan->calendar, row))
            continue;
        for (uint32_t i = 0; i < own->count; i++) {
            const struct rp_fragment *fragment = &window->fragments[own->first + i];
            ledger->delivered += fragment->source == number ? fragment->length : 0;
        }
    }
}

void rp_planner_ledger(const struct rp_planner *plan, uint32_t number,
                       struct rp_stream_ledger *ledger)
{
    const struct rp_feed *feed = &plan->stores.feed;
    *ledger = (struct rp_stream_ledger){0};
    if (plan->window.count > 0) {
        begun_ledger(plan, number, ledger);
        return;
    }
    if (number >= feed->source_count)
        return;
    const struct rp_source_state *state = &feed->sources[number].state;
    ledger->planned = state->tokens;
    ledger->taken = state->taken;
    ledger->withheld = state->withheld;
    ledger->waiting = rp_stores_waiting(&plan->stores, number);
    ledger->delivered = state->tokens - ledger->waiting - state->withheld;
}

uint64_t rp_planner_window_bytes(uint32_t rows, uint64_t fragments)
{
    const struct rp_deal_window *window = NULL;
    uint64_t row = sizeof *window->rows + sizeof *window->costs + sizeof *window->order;
    return rows * row + rp_deal_scratch_bytes(rows) +
           fragments * (sizeof *window->fragments + sizeof *window->epochs);
}
