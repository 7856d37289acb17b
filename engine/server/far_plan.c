/* SPDX-License-Identifier: Apache-2.0 */
#include "server/far_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/file.h"
#include "base/mapped.h"
#include "base/mem.h"
#include "base/thread.h"

/* ---- the thread ------------------------------------------------------------------------------ */

/* A slice that fails (the end of the stream, a damaged index, no memory) is not reported here: the
 * owner of the row plans it again, meets the same failure, and reports that. */
static void plan_slices(void *argument)
{
    struct rp_far_planner *planner = argument;
    struct rp_far_row *work = &planner->work;
    if (rp_plan_load(planner->plan, work->state, work->bytes, planner->accept_weights, NULL) < 0) {
        work->progress = RP_FAR_NEAR;
        return;
    }
    while (work->row - work->at > RP_NEAR_ROWS) {
        if (rp_a32_load_relaxed(&planner->yield))
            return;
        if (rp_plan_seek(planner->plan, work->at + RP_NEAR_ROWS, NULL) < 0)
            break;
        size_t bytes = rp_plan_save(planner->plan, work->state);
        if (bytes == 0)
            break;
        work->at += RP_NEAR_ROWS;
        work->bytes = bytes;
    }
    work->progress = RP_FAR_NEAR;
}

static void *planner_main(void *argument)
{
    struct rp_far_planner *planner = argument;
    prctl(PR_SET_NAME, "far plan");
    /* the engine's thread also finds a lost file, and reports it */
    (void)!rp_mapped_guard(plan_slices, planner);
    rp_fd_wake(planner->done_fd);
    return NULL;
}

static int start(struct rp_far_planner *planner, struct rp_far_row *far, struct rp_error *error)
{
    RP_ASSERT(!planner->is_busy && !planner->served);
    RP_ASSERT(far->progress == RP_FAR_OPEN && far->state && far->at < far->row);
    planner->work = *far;
    planner->work.state = rp_calloc(1, rp_plan_state_bytes_max(planner->plan));
    if (!planner->work.state)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a state token");
    memcpy(planner->work.state, far->state, far->bytes);
    rp_a32_store_relaxed(&planner->yield, 0);
    int failed = rp_thread_start(&planner->thread, planner_main, planner);
    if (failed) {
        free(planner->work.state);
        return rp_fail(error, -failed, NULL, "cannot start a thread that plans: %s",
                       rp_strerror(-failed));
    }
    planner->is_busy = true;
    planner->served = far;
    return 0;
}

/* ---- the engine's thread --------------------------------------------------------------------- */

int rp_far_row_want(struct rp_far_row *far, uint64_t row, const struct rp_plan *from,
                    struct rp_error *error)
{
    uint64_t at = rp_plan_row(from);
    RP_ASSERT(at < row);
    bool is_past = far->state && far->at >= at && far->at < row;
    if (!is_past) {
        void *state = rp_calloc(1, rp_plan_state_bytes_max(from));
        if (!state)
            return rp_fail(error, -ENOMEM, NULL, "out of memory for a state token");
        size_t bytes;
        int code = rp_plan_try_save(from, state, &bytes, error);
        if (code < 0) {
            free(state);
            return code;
        }
        free(far->state);
        *far = (struct rp_far_row){.at = at, .state = state, .bytes = bytes};
    }
    far->row = row;
    far->progress = RP_FAR_OPEN;
    return 0;
}

void rp_far_row_forget(struct rp_far_planner *planner, struct rp_far_row *far)
{
    if (planner->served == far) {
        RP_ASSERT(planner->is_busy);
        rp_a32_store_relaxed(&planner->yield, 1);
        planner->served = NULL;
    }
    free(far->state);
    *far = (struct rp_far_row){0};
}

void rp_far_row_expire(struct rp_far_planner *planner, struct rp_far_row *far)
{
    rp_far_row_forget(planner, far);
    far->progress = RP_FAR_EXPIRED;
}

static bool is_open(const struct rp_far_row *far)
{
    return far && far->progress == RP_FAR_OPEN;
}

struct rp_far_row *rp_far_row_sooner(struct rp_far_row *a, struct rp_far_row *b)
{
    if (!is_open(a) || !is_open(b))
        return is_open(a) ? a : is_open(b) ? b : NULL;
    return b->row - b->at < a->row - a->at ? b : a;
}

int rp_far_planner_serve(struct rp_far_planner *planner, struct rp_far_row *far,
                         struct rp_error *error)
{
    RP_ASSERT(!far || is_open(far));
    if (!planner->is_busy)
        return far ? start(planner, far, error) : 0;
    if (!far || planner->served != far || planner->work.row != far->row)
        rp_a32_store_relaxed(&planner->yield, 1); /* when it has, this function is called again */
    return 0;
}

void rp_far_planner_continue(struct rp_far_planner *planner)
{
    if (!planner->is_busy)
        return;
    pthread_join(planner->thread, NULL);
    planner->is_busy = false;
    struct rp_far_row *far = planner->served, *work = &planner->work;
    /* the owner may want another row by now */
    if (far && work->at >= far->at && work->at < far->row) {
        free(far->state);
        far->state = work->state;
        far->bytes = work->bytes;
        far->at = work->at;
        far->progress = work->row == far->row ? work->progress : RP_FAR_OPEN;
    } else {
        free(work->state);
    }
    planner->served = NULL;
    *work = (struct rp_far_row){0};
}

void rp_far_planner_close(struct rp_far_planner *planner)
{
    if (planner->is_busy) {
        if (planner->served)
            rp_far_row_forget(planner, planner->served);
        rp_far_planner_continue(planner);
    }
    rp_plan_close(planner->plan);
    planner->plan = NULL;
}
