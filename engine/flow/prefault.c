/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/prefault.h"

#include <sys/prctl.h>

#include "base/file.h"
#include "base/thread.h"

static void *prefault_main(void *argument)
{
    prctl(PR_SET_NAME, "fill");
    struct rp_prefault *prefault = argument;
    if (rp_arena_prefault(prefault->arena, &prefault->error) < 0) {
        rp_a32_store_release(&prefault->failed, 1); /* PAIRS prefault-failed */
        rp_fd_wake(prefault->wake_fd);
    }
    return NULL;
}

int rp_prefault_start(struct rp_prefault *prefault, struct rp_arena *arena, int wake_fd,
                      struct rp_error *error)
{
    *prefault = (struct rp_prefault){.arena = arena, .wake_fd = wake_fd, .started = true};
    prefault->has_thread = rp_thread_try(&prefault->thread, prefault_main, prefault) == 0;
    return prefault->has_thread ? 0 : rp_arena_prefault(arena, error); /* then it takes a pause */
}

int rp_prefault_check(const struct rp_prefault *prefault, struct rp_error *error)
{
    if (!rp_a32_load_acquire(&prefault->failed)) /* PAIRS prefault-failed */
        return 0;
    return rp_fail(error, prefault->error.code, prefault->error.hint, "%s",
                   prefault->error.message);
}

void rp_prefault_join(struct rp_prefault *prefault)
{
    if (prefault->has_thread)
        pthread_join(prefault->thread, NULL);
    prefault->has_thread = prefault->started = false;
}
