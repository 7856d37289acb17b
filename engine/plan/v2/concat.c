/* SPDX-License-Identifier: Apache-2.0 */
/* concat.c — pieces one after another, cut at the end of each row (STREAM2.md section 7). */
#include "base/bits.h"
#include "plan/v2/stores.h"

/* Take as much of the oldest piece as the row has room for. 0: it is atomic and does not fit. */
static int take_oldest(struct rp_stores *stores, struct rp_error *error)
{
    struct rp_feed *feed = &stores->feed;
    struct rp_item_piece *oldest = &stores->fifo[stores->head];
    if (rp_feed_is_atomic(feed, oldest->source)) {
        if (stores->fifo_sizes[stores->head] > stores->draft.gap)
            return 0;
        int failed = rp_draft_take(stores, oldest, stores->fifo_sizes[stores->head], error);
        rp_stores_pop(stores);
        return failed < 0 ? failed : 1;
    }
    uint32_t tokens = (uint32_t)rp_min_u64(stores->draft.gap, oldest->length);
    int labelled = rp_feed_labelled(feed, oldest, tokens, error);
    if (labelled < 0)
        return labelled;
    if (labelled > 0)
        rp_draft_cut(stores, oldest, tokens);
    else
        rp_feed_leave_out(feed, oldest, tokens);
    int failed = rp_stores_trim_oldest(stores, error);
    return failed < 0 ? failed : 1;
}

int rp_plan_by_concat(struct rp_stores *stores, struct rp_error *error)
{
    while (rp_draft_is_open(stores)) {
        int given = stores->queued == 0 ? rp_stores_enter_next(stores, error) : 1;
        if (given <= 0)
            return given;
        int taken = take_oldest(stores, error);
        if (taken <= 0)
            return taken;
    }
    return 0;
}
