/* SPDX-License-Identifier: Apache-2.0 */
/* See close.h. */
#include "server/close.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/caching.h"
#include "server/connections.h"
#include "server/recorder.h"
#include "server/save.h"
#include "server/start.h"

/* What threads of the flow use. */
static void close_stream(struct rp_engine *engine)
{
    rp_flow_close(engine->flow);
    rp_engine_close_cache(engine);
    for (uint32_t r = 0; r < engine->ring_count; r++)
        rp_ring_close(&engine->rings[r]);
    rp_plan_close(engine->plan);
    rp_plan_close(engine->scout);
    for (uint32_t i = 0; i < RP_CATCH_UPS_MAX; i++) {
        rp_plan_close(engine->catch_up_plans[i].plan);
        rp_plan_close(engine->catch_up_plans[i].scout);
    }
    rp_corpus_close(engine->corpus);
    rp_engine_forget_contents(engine);
    rp_contents_free(engine->contents);
    free(engine->rings);
    if (engine->wake_fd >= 0)
        close(engine->wake_fd);
}

void rp_engine_close(struct rp_engine *engine)
{
    rp_listener_close(&engine->listener);
    rp_engine_close_connections(engine, false);
    rp_far_row_forget(&engine->planner, &engine->saver.far);
    rp_far_planner_close(&engine->planner);
    rp_plan_close(engine->probe);
    if (engine->look == RP_LOOK_LATE)
        rp_log(RP_LOG_WARNING, "ending without waiting for the disk of the token files");
    else /* otherwise a thread hangs at that disk, and the end of the process ends it */
        close_stream(engine);
    rp_checkpoint_dir_close(engine->checkpoints);
    rp_recorder_close(engine->recorder);
    rp_engine_close_connections(engine, true); /* who asked may start an engine at once */
    int fds[] = {engine->epoll_fd, engine->signal_fd, engine->saver.done_fd,
                 engine->planner.done_fd};
    for (size_t i = 0; i < RP_ARRAY_COUNT(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    rp_engine_know_saved(engine, NULL, 0, NULL);
    rp_give_pages(engine->saver.pages, engine->saver.page_bytes);
    free(engine->checkpoint_path);
    free(engine->started_from);
    free(engine->kept_state);
    free(engine->zero_state);
    free(engine->start_state);
    free(engine->connections);
    free(engine->seats);
    free(engine->config_text);
    free(engine->contract_text);
    free(engine->mask_counts);
}
