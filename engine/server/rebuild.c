/* SPDX-License-Identifier: Apache-2.0 */
/* rebuild.c — a ring gets new memory, because a process that has left it may still read the old
 * memory, or because it lacks the batch at which a seat attaches. While the flow runs:
 *
 *   1. A thread makes the new ring, and copies the published batches. The engine's thread still
 *      delivers.
 *   2. The engine's thread copies the batches that were published since.
 *   3. The engine's thread pauses packers, copies the batches that are packed and not published,
 *      replaces the old ring by the new one, and starts packers again.
 *
 * Invariants:
 *
 *   - Published slots from the ring's `release` on are immutable. The seat that attaches keeps
 *     `release` at or below its batch until the new ring is in place.
 *   - No process writes to a ring while packers are paused. Packers, threads or processes, end in a
 *     pause and are started after the change, so they see the new ring.
 *   - Plans, reads and tickets are not touched, so nothing that was prefetched is lost.
 *
 * A ring whose seat attaches at a batch that the ring does not have any more is rebuilt without
 * batches, while packers are paused, and a catch-up flow (flow/catch_up.h) serves it from there. */
#include "server/rebuild.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/thread.h"
#include "flow/catch_up.h"
#include "server/probe.h"
#include "server/read_mode.h"
#include "server/rings.h"
#include "server/save.h"
#include "stream.h"

#define POLL_NS 50000u /* between two checks of is_done while no batch is ready */

struct build {
    struct rp_ring from, fresh; /* from: as it was when the build began */
    struct rp_geometry geometry;
    struct rp_ring_identity identity;
    int code;
    struct rp_error *error;
    struct rp_a32 is_done; /* PAIRS ring-build: release store / acquire load */
};

static void make_fresh(struct build *build)
{
    const struct rp_ring *from = &build->from;
    build->code = rp_ring_create(&build->fresh, &build->geometry, from->replicas, build->identity,
                                 from->release, build->error);
    if (build->code >= 0)
        rp_rings_copy(from, &build->fresh, from->release, from->tail);
    rp_a32_store_release(&build->is_done, 1); /* PAIRS ring-build */
}

static void *build_main(void *build)
{
    prctl(PR_SET_NAME, "ring");
    make_fresh(build);
    return NULL;
}

/* Deliver until the thread is done. At the end of the stream, or an error, only this delivery
 * stops: the engine's loop meets the same again, and handles it. */
static void deliver_meanwhile(struct rp_delivery *delivery, const struct build *build)
{
    int step = RP_FLOW_WORKED;
    while (!rp_a32_load_acquire(&build->is_done)) { /* PAIRS ring-build */
        if (step == RP_FLOW_WORKED || step == RP_FLOW_IDLE)
            step = rp_flow_deliver(delivery->flow, NULL);
        if (step != RP_FLOW_WORKED)
            rp_sleep_ns(POLL_NS);
    }
}

/* Consumers of the old ring may have released batches since the new one was made. The new ring has
 * no published batch yet, and begins at the old one's `release`. */
static void begin_at_release(struct rp_ring *fresh, const struct rp_ring *old)
{
    RP_ASSERT(fresh->tail == fresh->release && fresh->release <= old->release);
    for (uint32_t r = 0; r < fresh->replicas; r++)
        rp_ring_place_seat(fresh, r, old->release);
    RP_ASSERT(fresh->tail == old->release && fresh->release == old->release);
}

/* Copy the packed batches, publish in the new ring, and set its positions. Packers are paused. */
static void finish_build(struct rp_delivery *delivery, struct rp_ring *old, struct rp_ring *fresh,
                         uint32_t replica, uint64_t batch)
{
    uint64_t packed_end = rp_flow_packed_end(delivery->flow, (uint32_t)(old - delivery->rings));
    RP_ASSERT(packed_end - old->release <= old->geometry.slots);
    rp_rings_copy(old, fresh, old->tail, packed_end);
    (void)rp_ring_poll_release(old); /* the last releases of consumers that are to migrate */
    begin_at_release(fresh, old);
    rp_ring_publish(fresh, old->tail);
    for (uint32_t r = 0; r < old->replicas; r++)
        rp_ring_place_seat(fresh, r, r == replica ? batch : old->seats[r].release);
    RP_ASSERT(fresh->tail == old->tail && fresh->release >= old->release);
    if (old->status == RP_RING_END)
        rp_ring_set_status(fresh, RP_RING_END, old->tail, rp_ring_message(old));
}

static int build_ring(struct rp_engine *engine, const struct rp_ring *old, struct build *build,
                      struct rp_error *error)
{
    pthread_t thread;
    *build = (struct build){
        .from = *old,
        .geometry = old->geometry,
        .identity = {rp_contract_hash(&engine->stream.contract), engine->delivery.generation},
        .error = error};
    int failed = rp_thread_start(&thread, build_main, build);
    if (failed) {
        make_fresh(build); /* with a pause for the other trainers */
    } else {
        deliver_meanwhile(&engine->delivery, build);
        pthread_join(thread, NULL);
    }
    return build->code;
}

static struct rp_ring *ring_of(const struct rp_engine *engine, const struct rp_rebuild *rebuild)
{
    return &engine->delivery.rings[rebuild->ring];
}

/* The tail of the ring once it is rebuilt: the present one or, if the lowest position of all seats
 * is not in the ring, that position. */
static uint64_t tail_of(const struct rp_ring *ring, const struct rp_rebuild *rebuild)
{
    uint64_t position = rp_rings_lowest_position(ring, rebuild->replica, rebuild->batch);
    /* a position below `release` wraps around, to a difference above any ring's */
    bool has_it = position - ring->release <= ring->tail - ring->release;
    return has_it ? ring->tail : position;
}

/* The flow has stopped if packers cannot be started. */
static int resume_packers(struct rp_engine *engine, struct rp_error *error)
{
    int code = rp_flow_resume_packers(engine->delivery.flow, error);
    if (code >= 0)
        rp_engine_watch_packers(engine);
    else
        engine->delivery.state = RP_DELIVERY_STOPPED;
    return code;
}

/* ---- while the flow runs --------------------------------------------------------------------- */

/* The flow may continue if it serves the ring itself, and if its next batch stays the same: if the
 * lowest position of the ring's seats will be in the ring. */
static bool can_rebuild_running(const struct rp_delivery *delivery,
                                const struct rp_rebuild *rebuild)
{
    const struct rp_ring *old = &delivery->rings[rebuild->ring];
    if (rebuild->replica == RP_ALL_SEATS || !rp_delivery_runs(delivery) ||
        rp_flow_is_catching_up(delivery->flow, rebuild->ring))
        return false;
    uint64_t lowest = rp_rings_lowest_position(old, rebuild->replica, rebuild->batch);
    return lowest >= old->release && lowest <= old->tail;
}

/* Batches are delivered to all rings, except while packers are paused. If the ring cannot be made,
 * the old one is unchanged. If packers cannot be started again, the flow has stopped. */
static int rebuild_running(struct rp_engine *engine, const struct rp_rebuild *rebuild,
                           struct rp_error *error)
{
    struct rp_ring *old = ring_of(engine, rebuild);
    struct build build;
    uint64_t position = old->seats[rebuild->replica].release;
    RP_ASSERT(!rp_ring_is_taken(old, rebuild->replica));
    if (rebuild->batch < position) /* slots from `batch` on are not written again from now on */
        rp_ring_place_seat(old, rebuild->replica, rebuild->batch);
    int code = build_ring(engine, old, &build, error);
    if (code < 0) {
        rp_ring_place_seat(old, rebuild->replica, position);
        return code;
    }
    /* A save under way may be reading the old ring. Its end also frees slots of batches that were
     * released, so it comes before the new ring begins at `release`. */
    rp_engine_finish_copy(engine);
    begin_at_release(&build.fresh, old);
    rp_rings_copy(old, &build.fresh, rp_max_u64(build.from.tail, old->release), old->tail);
    rp_flow_pause_packers(engine->delivery.flow);
    finish_build(&engine->delivery, old, &build.fresh, rebuild->replica, rebuild->batch);
    rp_engine_swap_ring(engine, rebuild->ring, &build.fresh);
    return resume_packers(engine, error);
}

/* ---- a ring that falls behind ---------------------------------------------------------------- */

/* Can a catch-up flow serve the ring? It can if one does so already; or if the ring falls behind,
 * and fewer than rp_flow_catch_ups_max rings are. */
static bool can_catch_up(const struct rp_delivery *delivery, const struct rp_rebuild *rebuild)
{
    const struct rp_ring *old = &delivery->rings[rebuild->ring];
    if (rebuild->replica == RP_ALL_SEATS || delivery->state != RP_DELIVERY_RUNNING ||
        delivery->ring_count == 1)
        return false;
    uint64_t lowest = rp_rings_lowest_position(old, rebuild->replica, rebuild->batch);
    if (rp_flow_is_catching_up(delivery->flow, rebuild->ring))
        return lowest <= old->tail;
    uint32_t most = rp_flow_catch_ups_max(delivery->ring_count);
    return rp_flow_catch_ups(delivery->flow) < most && lowest < old->release;
}

/* The first plan that no catch-up flow uses. Opened plans come first. */
static struct rp_plan **unused_plan(struct rp_engine *engine)
{
    struct rp_plan **plans = engine->stream.catch_up_plans;
    uint32_t i = 0;
    while (i < RP_CATCH_UP_PLANS_MAX && plans[i] &&
           rp_flow_uses_plan(engine->delivery.flow, plans[i]))
        i++;
    RP_ASSERT(i < RP_CATCH_UP_PLANS_MAX);
    return &plans[i];
}

/* Move the probe to the first batch of the catch-up flow. If the token is of that batch, it has the
 * state, even if the row is far from every known state. */
static int probe_begin(struct rp_engine *engine, const struct rp_rebuild *rebuild,
                       struct rp_error *error)
{
    uint64_t begin = tail_of(ring_of(engine, rebuild), rebuild);
    return rebuild->token && begin == rebuild->batch
               ? rp_engine_probe_row(engine, rp_delivery_row(&engine->delivery, begin),
                                     rebuild->token, rebuild->token_bytes, error)
               : rp_engine_probe_batch(engine, begin, error);
}

/* Open a plan with the calendar of the run. */
static int open_plan(struct rp_plan **plan, const struct rp_stream *stream, struct rp_error *error)
{
    int code = rp_stream_open_plan(plan, stream->config, stream->corpus, error);
    if (code >= 0)
        code = rp_plan_follow(*plan, stream->probe, error);
    if (code < 0) {
        rp_plan_close(*plan);
        *plan = NULL;
    }
    return code;
}

/* Make the flow, its plan, and the plan's first state. */
static int make_catch_up(struct rp_engine *engine, const struct rp_rebuild *rebuild,
                         struct rp_flow **catch_up, struct rp_error *error)
{
    struct rp_stream *stream = &engine->stream;
    struct rp_plan **plan = unused_plan(engine);
    int code = *plan ? 0 : open_plan(plan, stream, error);
    if (code >= 0)
        code = rp_engine_keep_probe_state(stream, error);
    return code < 0 ? code
                    : rp_flow_make_catch_up(catch_up, engine->delivery.flow, rebuild->ring, error);
}

/* The ring has its new memory, and its earlier catch-up flow was dropped. */
static int start_catch_up(struct rp_engine *engine, uint32_t ring, struct rp_flow *catch_up,
                          struct rp_error *error)
{
    struct rp_plan *plan = *unused_plan(engine);
    RP_ASSERT(plan); /* make_catch_up has opened one */
    const struct rp_row_state start = {engine->stream.kept_state, engine->stream.kept_bytes,
                                       engine->stream.kept_row};
    struct rp_row_state before;
    rp_flow_leave_out(engine->delivery.flow, ring); /* before a state is read */
    int code = rp_engine_load_plan(engine, plan, start, engine->delivery.rings[ring].tail, &before,
                                   error);
    if (code < 0) {
        rp_flow_close(catch_up);
        return code;
    }
    code = rp_flow_start_catch_up(engine->delivery.flow, catch_up, ring, plan, &before, error);
    rp_engine_log_refused_readers(engine);
    return code;
}

/* Pause packers, replace the ring, start the catch-up flow, and start packers again. After a
 * failure the flow is stopped; except that if the ring could not be made, and the flow itself
 * served the old one, both continue. */
static int replace_by_catch_up(struct rp_engine *engine, const struct rp_rebuild *rebuild,
                               struct rp_flow *catch_up, struct rp_error *error)
{
    struct rp_flow *flow = engine->delivery.flow;
    bool was_behind = rp_flow_is_catching_up(flow, rebuild->ring);
    rp_engine_finish_copy(engine); /* a save under way may be reading the old ring */
    rp_flow_pause_packers(flow);
    rp_flow_drop_catch_up(flow, rebuild->ring);
    int code = rp_engine_make_ring(engine, rebuild->ring, rebuild->replica, rebuild->batch, error);
    bool can_continue = !was_behind;
    if (code < 0) {
        rp_flow_close(catch_up);
    } else {
        code = start_catch_up(engine, rebuild->ring, catch_up, error);
        can_continue = code >= 0;
    }
    if (!can_continue) {
        rp_engine_stop_flow(engine);
        return code;
    }
    int resumed = resume_packers(engine, code < 0 ? NULL : error);
    return code < 0 ? code : resumed;
}

/* On failure rings are unchanged, or the flow has stopped. */
static int rebuild_behind(struct rp_engine *engine, const struct rp_rebuild *rebuild,
                          struct rp_error *error)
{
    struct rp_ring *old = ring_of(engine, rebuild);
    uint64_t position = old->seats[rebuild->replica].release;
    struct rp_flow *catch_up;
    RP_ASSERT(!rp_ring_is_taken(old, rebuild->replica));
    int code = probe_begin(engine, rebuild, error);
    if (code < 0)
        return code;
    if (tail_of(old, rebuild) == old->tail && rebuild->batch < position) /* until they are copied */
        rp_ring_place_seat(old, rebuild->replica, rebuild->batch);
    code = make_catch_up(engine, rebuild, &catch_up, error);
    if (code >= 0)
        code = replace_by_catch_up(engine, rebuild, catch_up, error);
    if (code < 0)
        rp_ring_place_seat(old, rebuild->replica, position);
    return code;
}

/* ---- while the flow is stopped --------------------------------------------------------------- */

static int rebuild_stopped(struct rp_engine *engine, const struct rp_rebuild *rebuild,
                           struct rp_error *error)
{
    const struct rp_delivery *delivery = &engine->delivery;
    uint64_t begin = tail_of(ring_of(engine, rebuild), rebuild);
    for (uint32_t r = 0; r < delivery->ring_count; r++)
        if (r != rebuild->ring)
            begin = rp_min_u64(begin, delivery->rings[r].tail);
    int code = rp_engine_probe_batch(engine, begin, error);
    if (code >= 0)
        code = rp_engine_keep_probe_state(&engine->stream, error);
    if (code < 0)
        return code;
    rp_engine_stop_flow(engine);
    code = rp_engine_make_ring(engine, rebuild->ring, rebuild->replica, rebuild->batch, error);
    int restarted = rp_engine_restart_flow(engine, code < 0 ? NULL : error);
    return code < 0 ? code : restarted;
}

int rp_engine_rebuild(struct rp_engine *engine, const struct rp_rebuild *rebuild,
                      struct rp_error *error)
{
    if (can_rebuild_running(&engine->delivery, rebuild))
        return rebuild_running(engine, rebuild, error);
    if (can_catch_up(&engine->delivery, rebuild)) {
        int code = rebuild_behind(engine, rebuild, error);
        bool is_unchanged = code < 0 && rp_delivery_runs(&engine->delivery);
        if (!is_unchanged || code == -EINPROGRESS)
            return code;
        /* another flow could not be made, for want of memory: stop this one */
    }
    return rebuild_stopped(engine, rebuild, error);
}
