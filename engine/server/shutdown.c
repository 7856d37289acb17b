/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/caching.h"
#include "server/connections.h"
#include "server/recorder.h"
#include "server/revalidate.h"
#include "server/save.h"
#include "server/seats.h"
#include "server/shutdown.h"
#include "server/start.h"

#define FAILED_WAIT_NS 10000000000u   /* as long as a trainer searches for its engine by default */
#define LIFELINE_WAIT_NS 30000000000u /* as long as a Loader waits for other ranks at the end */
#define ABSENT_WAIT_MINUTES 10u       /* enough for a long step, or to start a rank by hand */

void rp_engine_begin_stop(struct rp_engine *engine, enum rp_shutdown shutdown)
{
    if (engine->life.shutdown == RP_SHUTDOWN_NONE)
        engine->life.shutdown = shutdown;
    rp_life_transition(&engine->life, RP_LIFE_STOP);
    rp_saving_want(&engine->saving);
    if (!rp_life_has_failed(&engine->life))
        rp_engine_request_revalidation(engine);
}

void rp_engine_fail(struct rp_engine *engine, int code)
{
    struct rp_delivery *delivery = &engine->delivery;
    char text[RP_ENGINE_TEXT_BYTES];
    rp_life_fail(&engine->life, code);
    rp_engine_error_text(engine->life.error, text);
    rp_log_event(RP_EVENT_failed, "%s", engine->life.error->message);
    for (uint32_t r = 0; r < delivery->ring_count; r++)
        if (delivery->rings[r].data.data) /* else the failure is that the ring could not be made */
            rp_ring_set_status(&delivery->rings[r], RP_RING_FAILED, (uint64_t)(int64_t)code, text);
    engine->life.failed_ns = rp_now_ns();
}

/* Have the consumers of all seats released all batches of the stream? */
enum consumption {
    CONSUMES,      /* no: batches will follow, or a consumer is attached, or has not released all */
    AWAITS_ABSENT, /* not known of an absent consumer, which may be late or done */
    CONSUMED
};

/* *missing: for AWAITS_ABSENT, the first seat whose releases are unknown. Its consumer may be done
 * since an earlier engine, or late. A consumer that has finished may attach again (seat.h), but the
 * end of the stream does not wait for it. */
static enum consumption consumption_of(const struct rp_delivery *delivery,
                                       const struct rp_seat **missing)
{
    *missing = NULL;
    if (delivery->state != RP_DELIVERY_ENDED || !delivery->had_consumer)
        return CONSUMES;
    for (uint32_t s = 0; s < delivery->seat_count; s++) {
        const struct rp_seat *seat = &delivery->seats[s];
        switch (seat->seat_state) {
        case RP_SEAT_ATTACHED:
        case RP_SEAT_MIGRATING:
        case RP_SEAT_STATES:
            return CONSUMES;
        case RP_SEAT_ABSENT_KNOWN:
        case RP_SEAT_FINISHED:
            if (rp_seat_position(seat) < seat->ring->tail)
                return CONSUMES;
            break;
        case RP_SEAT_VACANT:
        case RP_SEAT_ABSENT_UNKNOWN:
            *missing = *missing ? *missing : seat;
            break;
        case RP_SEAT_FINISHED_UNKNOWN:
            break;
        }
    }
    return *missing ? AWAITS_ABSENT : CONSUMED;
}

static bool has_waited_long(struct rp_engine_life *life, const struct rp_seat *missing)
{
    RP_ASSERT(!rp_seat_is_attached(missing));
    if (life->absent_since_ns == 0) {
        char name[RP_SEAT_NAME_BYTES];
        life->absent_since_ns = rp_now_ns();
        rp_log(RP_LOG_INFO,
               "the stream has ended, and %s has not attached: waiting %u minutes for it",
               rp_seat_name(missing, name), ABSENT_WAIT_MINUTES);
    }
    return rp_now_ns() - life->absent_since_ns >= ABSENT_WAIT_MINUTES * 60 * 1000000000ull;
}

static void log_stage_end(const struct rp_engine *engine, const struct rp_plan_stage *next)
{
    rp_log_event(RP_EVENT_stage_ended,
                 "every rank has had all rows of seq_len %" PRIu32 ": stage %" PRIu32
                 " begins at row %" PRIu64 " with rows of seq_len %" PRIu32 "; %s",
                 rp_plan_run_seq_len(engine->stream.plan), next->number, next->row, next->seq_len,
                 engine->saving.checkpoints
                     ? "a checkpoint of that row is saved, and the same command continues there"
                     : "the same command continues there with a trainer's state, as --state FILE");
}

/* Do trainers read the last batches that this engine has? */
static bool is_finishing(const struct rp_engine *engine)
{
    bool may_finish = engine->config->is_repeated || engine->delivery.state == RP_DELIVERY_ENDED;
    return engine->options->stays && may_finish && rp_life_is_running(&engine->life) &&
           rp_delivery_has_consumer(&engine->delivery, NULL);
}

void rp_engine_lifeline_ended(struct rp_engine *engine)
{
    if (engine->life.lifeline_ended_ns == 0)
        engine->life.lifeline_ended_ns = rp_now_ns();
    bool is_late = rp_now_ns() - engine->life.lifeline_ended_ns >= LIFELINE_WAIT_NS;
    if (!is_late && is_finishing(engine))
        return;
    rp_log_event(RP_EVENT_stopping, "the process that started this engine is gone: stopping");
    rp_engine_begin_stop(engine, RP_SHUTDOWN_LIFELINE);
}

static void stop_when_consumed(struct rp_engine *engine)
{
    const struct rp_seat *missing;
    struct rp_plan_stage next;
    /* once the flow has ended, the plan stays where it is */
    bool stage_ends = engine->delivery.state == RP_DELIVERY_ENDED &&
                      rp_plan_next_stage(engine->stream.plan, &next);
    if (engine->options->stays && !stage_ends)
        return;
    enum consumption consumption = consumption_of(&engine->delivery, &missing);
    if (consumption == CONSUMES)
        engine->life.absent_since_ns = 0;
    if (consumption == CONSUMES || (missing && !has_waited_long(&engine->life, missing)))
        return;
    engine->life.stage_ended = stage_ends;
    if (stage_ends)
        log_stage_end(engine, &next);
    else
        rp_log_event(RP_EVENT_stream_ended,
                     "the stream has ended and every rank has had all of it");
    rp_engine_begin_stop(engine, RP_SHUTDOWN_STREAM);
}

/* Can a consumer that attaches to the seat after a failure get batches? It gets published ones,
 * from memory that no other process reads. */
static bool has_batches_left(const struct rp_seat *seat)
{
    bool is_missing = seat->seat_state == RP_SEAT_VACANT ||
                      seat->seat_state == RP_SEAT_ABSENT_UNKNOWN;
    return is_missing && rp_seat_position(seat) < seat->ring->tail &&
           !rp_ring_may_be_read(seat->ring, seat->replica);
}

/* After a failure: does the engine wait for consumers that are yet to attach? Attached ones have
 * their batches mapped, and need no engine to read them. */
static bool awaits_consumers(const struct rp_delivery *delivery, uint64_t failed_ns)
{
    if (rp_now_ns() - failed_ns >= FAILED_WAIT_NS)
        return false;
    for (uint32_t s = 0; s < delivery->seat_count; s++)
        if (has_batches_left(&delivery->seats[s]))
            return true;
    return false;
}

void rp_engine_update_life(struct rp_engine *engine)
{
    const struct rp_engine_life *life = &engine->life;
    if (rp_life_is_running(life) && life->lifeline_ended_ns)
        rp_engine_lifeline_ended(engine);
    if (rp_life_is_running(life))
        stop_when_consumed(engine);
    if (life->life_state == RP_LIFE_FAILED && !awaits_consumers(&engine->delivery, life->failed_ns))
        rp_engine_begin_stop(engine, RP_SHUTDOWN_FAILURE);
    if (rp_life_is_ending(life) && rp_saving_is_idle(&engine->saving))
        rp_life_transition(&engine->life, RP_LIFE_END);
}

/* ---- closing --------------------------------------------------------------------------------- */

/* Close everything that other threads use, after they have ended. */
static void close_stream(struct rp_engine *engine)
{
    rp_flow_close(engine->delivery.flow);
    rp_delivery_close_cache(&engine->delivery);
    for (uint32_t r = 0; r < engine->delivery.ring_count; r++)
        rp_ring_close(&engine->delivery.rings[r]);
    rp_gain_log_end(&engine->stream.gain_log);
    rp_far_planner_close(&engine->stream.planner);
    rp_plan_close(engine->stream.plan);
    for (uint32_t i = 0; i < RP_CATCH_UP_PLANS_MAX; i++)
        rp_plan_close(engine->stream.catch_up_plans[i]);
    rp_corpus_close(engine->stream.corpus);
    rp_engine_forget_contents(&engine->stream);
    rp_contents_free(engine->stream.contents);
    free(engine->stream.mask_counts);
    rp_sums_free(engine->delivery.steps);
    free(engine->delivery.rings);
    rp_numbering_close(&engine->delivery.numbering);
    rp_numbering_close(&engine->delivery.trial);
    if (engine->loop.wake_fd >= 0)
        close(engine->loop.wake_fd);
    if (engine->stream.planner.done_fd >= 0)
        close(engine->stream.planner.done_fd);
}

bool rp_engine_close(struct rp_engine *engine)
{
    bool waits = !rp_engine_disk_is_silent(engine);
    rp_listener_close(&engine->peers.listener);
    rp_engine_close_connections(engine);
    rp_far_row_forget(&engine->stream.planner, &engine->saving.saver.far);
    rp_plan_close(engine->stream.probe);
    if (waits) {
        close_stream(engine);
    } else { /* a thread hangs at that disk, and the end of the process ends it */
        rp_log(RP_LOG_WARNING, "ending without waiting for the disk of the token files");
        rp_flow_abandon(engine->delivery.flow);
    }
    rp_checkpoint_dir_close(engine->saving.checkpoints);
    rp_recorder_close(engine->saving.recorder);
    rp_engine_answer_stops(engine); /* a peer may start an engine at once */
    int fds[] = {engine->loop.epoll_fd, engine->loop.ends_fd, engine->loop.signal_fd,
                 engine->saving.saver.done_fd};
    for (size_t i = 0; i < RP_ARRAY_COUNT(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    rp_saving_set_newest(&engine->saving, NULL, 0, NULL);
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
    return waits;
}
