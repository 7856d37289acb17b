/* SPDX-License-Identifier: Apache-2.0 */
/* planner.c — rows in the order in which they are delivered: deal windows, skips, digests and
 * the end of the stream (STREAM2.md sections 8, 10, 15). */
#include "plan/v2/planner.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "plan/link.h"
#include "plan/v2/planner_state.h"

/* ---- opening --------------------------------------------------------------------------------- */

int rp_planner_open(struct rp_planner **plan_out, const struct rp_calendar *calendar,
                    struct rp_error *error)
{
    *plan_out = NULL;
    struct rp_planner *plan = rp_calloc(1, sizeof *plan);
    if (!plan)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a plan");
    plan->calendar = calendar;
    plan->has_skips = rp_calendar_spec(calendar)->skip_count > 0;
    plan->digest = rp_hash128(NULL, 0); /* D(0) */
    int failed = rp_stores_open(&plan->stores, calendar, error);
    if (failed == 0)
        failed = rp_stores_saved_reserve(&plan->undo, rp_calendar_source_count(calendar), error);
    if (failed < 0) {
        rp_planner_close(plan);
        return failed;
    }
    *plan_out = plan;
    return 0;
}

static void free_window(struct rp_deal_window *window)
{
    free(window->rows);
    free(window->costs);
    free(window->order);
    free(window->scratch);
    free(window->fragments);
    free(window->epochs);
    rp_stores_saved_free(&window->before);
    *window = (struct rp_deal_window){0};
}

void rp_planner_close(struct rp_planner *plan)
{
    if (!plan)
        return;
    rp_stores_close(&plan->stores);
    rp_stores_saved_free(&plan->undo);
    free_window(&plan->window);
    free(plan->limits);
    free(plan->carried);
    free(plan);
}

/* ---- planned rows ---------------------------------------------------------------------------- */

static int save_state(struct rp_planner *plan, struct rp_stores_saved *saved,
                      struct rp_error *error)
{
    saved->snapshot.row = plan->planned;
    saved->snapshot.digest = plan->digest;
    return rp_stores_save(&plan->stores, saved, error);
}

static int go_back(struct rp_planner *plan, const struct rp_stores_saved *saved,
                   struct rp_error *error)
{
    plan->planned = saved->snapshot.row;
    plan->digest = saved->snapshot.digest;
    return rp_stores_restore(&plan->stores, &saved->snapshot, error);
}

static int make_row(struct rp_stores *stores, struct rp_error *error)
{
    rp_draft_begin(stores);
    switch (stores->packing) {
    case RP_PACKING_CONCAT:
        return rp_plan_by_concat(stores, error);
    case RP_PACKING_BEST_FIT:
        return rp_plan_by_best_fit(stores, error);
    default:
        return rp_plan_by_lookahead(stores, error);
    }
}

/* Plan the next row into the draft: 1, or 0 at the end of the stream. The attempt at the end
 * changes no state: only a row that begins without a waiting piece and without a plain item, or
 * with the actions of a boundary, can be without a fragment, so only then is the state saved. */
static int plan_row(struct rp_planner *plan, struct rp_error *error)
{
    struct rp_stores *stores = &plan->stores;
    uint64_t row = plan->planned;
    bool is_boundary = row > 0 && row >= stores->feed.next_change &&
                       rp_calendar_is_boundary(plan->calendar, row);
    bool may_end = is_boundary ||
                   (rp_stores_are_empty(stores) &&
                    (row >= stores->feed.next_change || !rp_feed_plain(&stores->feed)));
    int failed = may_end ? save_state(plan, &plan->undo, error) : 0;
    if (failed < 0)
        return failed;
    rp_stores_begin_row(stores, row);
    if (is_boundary)
        failed = rp_stores_boundary(stores, &plan->undo.snapshot, error);
    if (failed == 0)
        failed = make_row(stores, error);
    if (failed < 0)
        return failed;
    if (stores->draft.count == 0 && may_end)
        return go_back(plan, &plan->undo, error);
    if (stores->draft.count == 0) /* only a forged state can be like this */
        return rp_fail(error, -RP_E_CORRUPT, "use the state of another checkpoint",
                       "the state does not fit the stream: a waiting document gives no row");
    uint32_t padding = stores->seq_len - stores->draft.tokens;
    stores->feed.counts.emitted += stores->draft.tokens;
    stores->feed.counts.padding += padding;
    plan->digest = rp_plan_link(plan->digest, plan->planned, stores->draft.fragments,
                                stores->draft.count, padding);
    plan->planned++;
    return 1;
}

static void withhold_row(struct rp_planner *plan, const struct rp_fragment *fragments,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        plan->stores.feed.sources[fragments[i].source].state.withheld += fragments[i].length;
}

static bool skips(const struct rp_planner *plan, uint64_t row)
{
    return plan->has_skips && rp_calendar_skips(plan->calendar, row);
}

/* ---- deal windows ---------------------------------------------------------------------------- */

static int fail_window(uint32_t rows, struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, "a smaller window of `deal` needs less memory",
                   "no memory for a deal window of %" PRIu32 " rows", rows);
}

static int reserve_window(struct rp_deal_window *window, uint32_t rows, struct rp_error *error)
{
    if (rows <= window->capacity)
        return 0;
    free_window(window);
    window->rows = rp_calloc(rows, sizeof *window->rows);
    window->costs = rp_calloc(rows, sizeof *window->costs);
    window->order = rp_calloc(rows, sizeof *window->order);
    window->scratch = rp_calloc(1, rp_deal_scratch_bytes(rows));
    if (!window->rows || !window->costs || !window->order || !window->scratch)
        return fail_window(rows, error);
    window->capacity = rows;
    return 0;
}

static int reserve_fragments(struct rp_deal_window *window, uint64_t wanted)
{
    size_t capacity = window->fragments_capacity, epochs_capacity = capacity;
    if (!RP_GROW(window->fragments, capacity, wanted) ||
        !RP_GROW(window->epochs, epochs_capacity, wanted))
        return -ENOMEM;
    window->fragments_capacity = capacity;
    return 0;
}

/* Copy the draft to the end of the window. */
static int keep_row(struct rp_planner *plan, const struct rp_deal *deal, struct rp_error *error)
{
    struct rp_deal_window *window = &plan->window;
    const struct rp_row_draft *draft = &plan->stores.draft;
    if (reserve_fragments(window, window->fragments_used + draft->count) < 0)
        return fail_window(window->capacity, error);
    memcpy(window->fragments + window->fragments_used, draft->fragments,
           draft->count * sizeof *draft->fragments);
    memcpy(window->epochs + window->fragments_used, draft->epochs,
           draft->count * sizeof *draft->epochs);
    uint64_t cost = 0;
    for (uint32_t i = 0; i < draft->count; i++)
        cost += rp_cost_of(&deal->cost,
                           rp_feed_round(&plan->stores.feed, draft->fragments[i].length));
    window->costs[window->count] = cost;
    window->rows[window->count++] = (struct rp_dealt_row){window->fragments_used, draft->count,
                                                          draft->tokens};
    window->fragments_used += draft->count;
    return 0;
}

static const struct rp_stage *stage_of_next(const struct rp_planner *plan)
{
    const struct rp_feed *feed = &plan->stores.feed;
    return plan->planned < feed->next_change ? feed->stage
                                             : rp_calendar_at(plan->calendar, plan->planned);
}

static int deal_rows(struct rp_planner *plan, const struct rp_deal *deal, struct rp_error *error)
{
    struct rp_deal_window *window = &plan->window;
    if (rp_deal_order(deal, window->costs, window->count, window->order, window->scratch) < 0)
        return fail_window(window->count, error);
    for (uint32_t i = 0; i < window->count; i++) {
        const struct rp_dealt_row *row = &window->rows[window->order[i]];
        if (skips(plan, window->first + i))
            withhold_row(plan, window->fragments + row->first, row->count);
    }
    return 0;
}

/* Plan and deal the window that begins here: its rows, 0 at the end of the stream. */
static int plan_window(struct rp_planner *plan, const struct rp_stage *stage,
                       struct rp_error *error)
{
    struct rp_deal_window *window = &plan->window;
    int failed = reserve_window(window, stage->deal.window, error);
    if (failed == 0)
        failed = save_state(plan, &window->before, error);
    if (failed < 0)
        return failed;
    window->first = plan->planned;
    window->count = 0;
    window->fragments_used = 0;
    uint64_t end = rp_min_u64(window->first + stage->deal.window,
                              rp_calendar_next(plan->calendar, window->first));
    while (plan->planned < end && failed == 0) {
        int planned = plan_row(plan, error);
        if (planned == 0)
            break;
        failed = planned < 0 ? planned : keep_row(plan, &stage->deal, error);
    }
    if (failed == 0 && window->count > 0)
        failed = deal_rows(plan, &stage->deal, error);
    if (failed == 0)
        return (int)window->count;
    window->count = 0; /* no row of it is delivered */
    return failed;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int fail_plan(struct rp_planner *plan, int failed, struct rp_error *error)
{
    plan->failed = true;
    plan->failure.code = failed;
    return rp_fail_again(error, &plan->failure);
}

static void give_dealt_row(struct rp_planner *plan, struct rp_stream_row *row)
{
    struct rp_deal_window *window = &plan->window;
    uint32_t x = window->order[plan->next_row - window->first];
    const struct rp_dealt_row *dealt = &window->rows[x];
    bool skipped = skips(plan, plan->next_row);
    *row = (struct rp_stream_row){
        .row = plan->next_row++,
        .planned = window->first + x,
        .count = skipped ? 0 : dealt->count,
        .tokens = skipped ? 0 : dealt->tokens,
        .skipped = skipped,
        .cost = skipped ? 0 : window->costs[x],
        .fragments = window->fragments + dealt->first,
        .epochs = window->epochs + dealt->first,
    };
    if (plan->next_row == window->first + window->count)
        window->count = 0;
}

int rp_planner_next(struct rp_planner *plan, struct rp_stream_row *row, struct rp_error *error)
{
    if (plan->failed)
        return rp_fail_again(error, &plan->failure);
    if (plan->is_over)
        return 0;
    if (plan->window.count > 0) {
        give_dealt_row(plan, row);
        return 1;
    }
    const struct rp_stage *stage = stage_of_next(plan);
    bool deals = stage->deal.window > 0;
    int planned = deals ? plan_window(plan, stage, &plan->failure) : plan_row(plan, &plan->failure);
    if (planned < 0)
        return fail_plan(plan, planned, error);
    plan->is_over = planned == 0;
    if (plan->is_over)
        return 0;
    if (deals) {
        give_dealt_row(plan, row);
        return 1;
    }
    const struct rp_row_draft *draft = &plan->stores.draft;
    bool skipped = skips(plan, plan->next_row);
    if (skipped)
        withhold_row(plan, draft->fragments, draft->count);
    *row = (struct rp_stream_row){
        .row = plan->next_row,
        .planned = plan->next_row,
        .count = skipped ? 0 : draft->count,
        .tokens = skipped ? 0 : draft->tokens,
        .skipped = skipped,
        .fragments = draft->fragments,
        .epochs = draft->epochs,
    };
    plan->next_row++;
    return 1;
}

uint64_t rp_planner_row(const struct rp_planner *plan)
{
    return plan->next_row;
}

/* ---- restore --------------------------------------------------------------------------------- */

static int fail_position(const struct rp_stream_position *position, uint64_t end,
                         struct rp_error *error)
{
    return rp_fail(error, -RP_E_MISMATCH,
                   "restore the stages, limits and sources with which the state was saved",
                   "the state is inside a deal window of rows %" PRIu64 " to %" PRIu64
                   ", which ends before row %" PRIu64 " now",
                   position->window_first, position->window_end, end);
}

static int keep_limits(struct rp_planner *plan, const struct rp_limits *limits, uint32_t count,
                       uint64_t end, struct rp_error *error)
{
    free(plan->limits);
    plan->limits = NULL;
    plan->stores.feed.limits = NULL;
    if (!limits)
        return 0;
    plan->limits = rp_calloc(count, sizeof *plan->limits);
    if (!plan->limits)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the limits of %" PRIu32 " sources",
                       count);
    for (uint32_t i = 0; i < count; i++)
        plan->limits[i] = limits[i];
    plan->stores.feed.limits = plan->limits;
    plan->stores.feed.limits_count = count;
    plan->stores.feed.limits_end = end;
    return 0;
}

static int plan_begun_window(struct rp_planner *plan, const struct rp_stream_position *position,
                             struct rp_error *error)
{
    const struct rp_stage *stage = rp_calendar_at(plan->calendar, position->window_first);
    if (stage->deal.window == 0)
        return fail_position(position, position->window_first, error);
    int planned = plan_window(plan, stage, error);
    if (planned < 0)
        return planned;
    uint64_t end = position->window_first + plan->window.count;
    if (end == position->window_end && position->next_row < end)
        return 0;
    plan->window.count = 0;
    return fail_position(position, end, error);
}

int rp_planner_restore(struct rp_planner *plan, const struct rp_snapshot *snapshot,
                       const struct rp_stream_position *position, const struct rp_limits *limits,
                       uint32_t limits_count, struct rp_error *error)
{
    plan->window.count = 0;
    plan->is_over = plan->failed = false;
    plan->planned = snapshot->row;
    plan->digest = snapshot->digest;
    plan->next_row = position->next_row;
    int failed = keep_limits(plan, limits, limits_count, position->window_end, &plan->failure);
    if (failed == 0 &&
        (snapshot->row != position->window_first || position->next_row < position->window_first))
        failed = fail_position(position, snapshot->row, &plan->failure);
    if (failed == 0)
        failed = rp_stores_restore(&plan->stores, snapshot, &plan->failure);
    if (failed == 0 && position->next_row > position->window_first)
        failed = plan_begun_window(plan, position, &plan->failure);
    return failed < 0 ? fail_plan(plan, failed, error) : 0;
}
