/* SPDX-License-Identifier: Apache-2.0 */
/* fill — see fill.h. */
#include "flow/fill.h"

#include <sys/prctl.h>

#include "base/file.h"
#include "base/thread.h"

static void *fill_main(void *argument)
{
    prctl(PR_SET_NAME, "fill");
    struct rp_filler *filler = argument;
    if (rp_arena_fill(filler->arena, &filler->error) < 0) {
        rp_a32_store_release(&filler->failed, 1); /* PAIRS filler-failed */
        rp_fd_wake(filler->wake_fd);
    }
    return NULL;
}

int rp_filler_start(struct rp_filler *filler, struct rp_arena *arena, int wake_fd,
                    struct rp_error *error)
{
    *filler = (struct rp_filler){.arena = arena, .wake_fd = wake_fd, .started = true};
    filler->has_thread = rp_thread_try(&filler->thread, fill_main, filler) == 0;
    return filler->has_thread ? 0 : rp_arena_fill(arena, error); /* then it takes a pause */
}

int rp_filler_check(const struct rp_filler *filler, struct rp_error *error)
{
    if (!rp_a32_load_acquire(&filler->failed)) /* PAIRS filler-failed */
        return 0;
    return rp_fail(error, filler->error.code, filler->error.hint, "%s", filler->error.message);
}

void rp_filler_join(struct rp_filler *filler)
{
    if (filler->has_thread)
        pthread_join(filler->thread, NULL);
    filler->has_thread = filler->started = false;
}
