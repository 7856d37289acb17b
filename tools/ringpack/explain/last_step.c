/* SPDX-License-Identifier: Apache-2.0 */
/* last_step.c — with drop_last the last step, which is not full, is not delivered.
 *
 * Whether the step of a row is full is known once its last row is planned. A second plan continues
 * from the row, so the plan of the walk stays where it is. */
#include <errno.h>
#include <stdlib.h>

#include "explain/explain.h"

static int open_plan(struct rp_last_step *last, const struct rp_walk *walk, struct rp_error *error)
{
    if (last->plan)
        return 0;
    last->token = malloc(rp_plan_state_bytes_max(walk->plan));
    if (!last->token)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a state");
    int code = rp_stream_open_plan(&last->plan, walk->config, walk->corpus, error);
    if (code == 0) {
        rp_plan_cross_stages(last->plan);
        code = rp_plan_follow(last->plan, walk->plan, error);
    }
    return code;
}

int rp_last_step_drops(struct rp_last_step *last, const struct rp_walk *walk,
                       const struct rp_steps *steps, uint64_t row, struct rp_error *error)
{
    struct rp_step_place place = rp_steps_place(steps, row);
    struct rp_row next;
    if (!steps->drop_last || !place.is_known)
        return 0;
    uint64_t end = rp_steps_end(steps, row);
    if (end <= last->whole_until)
        return 0;
    int code = open_plan(last, walk, error);
    if (code == 0) {
        size_t bytes;
        code = rp_plan_try_save(walk->plan, last->token, &bytes, error);
        if (code == 0)
            code = rp_plan_load(last->plan, last->token, bytes, false, error);
    }
    for (int more = 1; code == 0 && rp_plan_row(last->plan) < end;) {
        more = rp_plan_next(last->plan, &next, error);
        if (more <= 0)
            return more < 0 ? more : 1;
    }
    if (code == 0)
        last->whole_until = end;
    return code;
}

void rp_last_step_free(struct rp_last_step *last)
{
    rp_plan_close(last->plan);
    free(last->token);
    *last = (struct rp_last_step){.plan = NULL};
}
