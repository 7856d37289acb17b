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
    rp_flow_close(engine->delivery.flow);
    rp_delivery_close_cache(&engine->delivery);
    for (uint32_t r = 0; r < engine->delivery.ring_count; r++)
        rp_ring_close(&engine->delivery.rings[r]);
    rp_plan_close(engine->stream.plan);
    rp_plan_close(engine->stream.scout);
    for (uint32_t i = 0; i < RP_CATCH_UPS_MAX; i++) {
        rp_plan_close(engine->stream.catch_up_plans[i].plan);
        rp_plan_close(engine->stream.catch_up_plans[i].scout);
    }
    rp_corpus_close(engine->stream.corpus);
    rp_stream_forget_contents(&engine->stream);
    rp_contents_free(engine->stream.contents);
    free(engine->delivery.rings);
    if (engine->loop.wake_fd >= 0)
        close(engine->loop.wake_fd);
}

void rp_engine_close(struct rp_engine *engine)
{
    rp_listener_close(&engine->peers.listener);
    rp_engine_close_connections(engine, false);
    rp_far_row_forget(&engine->stream.planner, &engine->saving.saver.far);
    rp_far_planner_close(&engine->stream.planner);
    rp_plan_close(engine->stream.probe);
    if (engine->saving.look == RP_LOOK_LATE)
        rp_log(RP_LOG_WARNING, "ending without waiting for the disk of the token files");
    else /* otherwise a thread hangs at that disk, and the end of the process ends it */
        close_stream(engine);
    rp_checkpoint_dir_close(engine->saving.checkpoints);
    rp_recorder_close(engine->saving.recorder);
    rp_engine_close_connections(engine, true); /* who asked may start an engine at once */
    int fds[] = {engine->loop.epoll_fd, engine->loop.signal_fd, engine->saving.saver.done_fd,
                 engine->stream.planner.done_fd};
    for (size_t i = 0; i < RP_ARRAY_COUNT(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    rp_saving_know_saved(&engine->saving, NULL, 0, NULL);
    rp_give_pages(engine->saving.saver.pages, engine->saving.saver.page_bytes);
    free(engine->saving.checkpoint_path);
    free(engine->saving.started_from);
    free(engine->stream.kept_state);
    free(engine->stream.zero_state);
    free(engine->stream.start_state);
    free(engine->peers.connections);
    free(engine->delivery.seats);
    free(engine->config_text);
    free(engine->stream.contract_text);
    free(engine->stream.mask_counts);
}
