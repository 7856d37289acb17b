/* SPDX-License-Identifier: Apache-2.0 */
/* rebuild.c — a ring gets new memory while the flow runs, because a process that has left it may
 * still read the old memory.
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
 *   - Nobody writes to a ring while packers are paused. Packers, threads or processes, end in a
 *     pause and are started after the change, so they see the new ring.
 *   - Plans, reads and tickets are not touched, so nothing that was prefetched is lost.
 *
 * A ring whose seat attaches at a batch that the ring does not have any more is rebuilt without
 * batches, while packers are paused, and a catch-up flow (flow/catch_up.h) serves it from there. */
#include "server/rebuild.h"

#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/defect.h"
#include "base/mem.h"
#include "base/thread.h"
#include "flow/catch_up.h"
#include "server/probe.h"
#include "server/reading.h"
#include "server/rings.h"
#include "server/save.h"
#include "server/seats.h"
#include "stream.h"

#define LOOK_NS 50000u /* between two checks of is_done while there is nothing to deliver */

struct build {
    struct rp_ring from, fresh; /* from: as it was when the build began */
    struct rp_geometry geometry;
    struct rp_hash128 contract;
    uint64_t generation;
    int code;
    struct rp_error error;
    struct rp_a32 is_done; /* PAIRS ring-build: release store / acquire load */
};

static void copy_slots(const struct rp_ring *from, const struct rp_ring *to, uint64_t first,
                       uint64_t end)
{
    RP_ASSERT(from->geometry.slot_bytes == to->geometry.slot_bytes && first <= end);
    for (uint64_t k = first; k < end; k++)
        memcpy(rp_ring_slot(to, k), rp_ring_slot(from, k), to->geometry.slot_bytes);
}

static void make_fresh(struct build *build)
{
    const struct rp_ring *from = &build->from;
    build->code = rp_ring_create(&build->fresh, &build->geometry, from->replicas, build->contract,
                                 build->generation, from->release, &build->error);
    if (build->code >= 0)
        copy_slots(from, &build->fresh, from->release, from->tail);
    rp_a32_store_release(&build->is_done, 1); /* PAIRS ring-build */
}

static void *build_main(void *build)
{
    prctl(PR_SET_NAME, "ring");
    make_fresh(build);
    return NULL;
}

/* Deliver until the thread is done. If delivery meets the end of the stream or an error it stops
 * here, and nothing else: the engine's loop meets the same again, and handles it. */
static void deliver_meanwhile(struct rp_delivery *delivery, const struct build *build)
{
    int step = RP_FLOW_WORKED;
    while (!rp_a32_load_acquire(&build->is_done)) { /* PAIRS ring-build */
        if (step == RP_FLOW_WORKED || step == RP_FLOW_IDLE)
            step = rp_flow_deliver(delivery->flow, NULL);
        if (step != RP_FLOW_WORKED)
            rp_sleep_ns(LOOK_NS);
    }
}

/* Consumers of the old ring may have released batches since the new one was made. The new ring, of
 * which no batch is published yet, begins at the old one's `release`. */
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
    if (!RP_DEFECT(forget_packed_rows))
        copy_slots(old, fresh, old->tail, packed_end);
    (void)rp_ring_poll_release(old); /* the last releases of consumers that are to migrate */
    begin_at_release(fresh, old);
    rp_ring_publish(fresh, old->tail);
    for (uint32_t r = 0; r < old->replicas; r++)
        rp_ring_place_seat(fresh, r, r == replica ? batch : old->seats[r].release);
    RP_ASSERT(fresh->tail == old->tail && fresh->release >= old->release);
    if (old->status == RP_RING_END)
        rp_ring_set_status(fresh, RP_RING_END, old->tail, NULL);
}

static int build_ring(struct rp_engine *engine, const struct rp_ring *old, struct build *build,
                      struct rp_error *error)
{
    pthread_t thread;
    *build = (struct build){.from = *old,
                            .geometry = old->geometry,
                            .contract = rp_contract_hash(&engine->stream.contract),
                            .generation = engine->delivery.generation};
    int failed = rp_thread_start(&thread, build_main, build);
    if (failed) {
        make_fresh(build); /* with a pause for the other trainers */
    } else {
        deliver_meanwhile(&engine->delivery, build);
        pthread_join(thread, NULL);
    }
    if (build->code < 0 && error)
        *error = build->error;
    return build->code;
}

bool rp_delivery_can_rebuild_running(const struct rp_delivery *delivery, uint32_t ring,
                                     uint32_t replica, uint64_t batch)
{
    const struct rp_ring *old = &delivery->rings[ring];
    if (replica == RP_ALL_SEATS || !rp_delivery_runs(delivery) ||
        rp_flow_is_catching_up(delivery->flow, ring))
        return false;
    uint64_t lowest = rp_seat_lowest_position(old, replica, batch);
    return lowest >= old->release && lowest <= old->tail;
}

int rp_engine_rebuild_running(struct rp_engine *engine, uint32_t ring, uint32_t replica,
                              uint64_t batch, struct rp_error *error)
{
    struct rp_ring *old = &engine->delivery.rings[ring];
    struct build build;
    uint64_t position = old->seats[replica].release;
    RP_ASSERT(rp_delivery_can_rebuild_running(&engine->delivery, ring, replica, batch));
    RP_ASSERT(!rp_ring_is_taken(old, replica));
    if (batch < position) /* slots from `batch` on are not written again from now on */
        rp_ring_place_seat(old, replica, batch);
    int code = build_ring(engine, old, &build, error);
    if (code < 0) {
        rp_ring_place_seat(old, replica, position);
        return code;
    }
    /* A save under way may be reading the old ring. Its end also frees slots of batches that were
     * released, so it comes before the new ring begins at `release`. */
    rp_engine_finish_copy(engine);
    begin_at_release(&build.fresh, old);
    copy_slots(old, &build.fresh, rp_max_u64(build.from.tail, old->release), old->tail);
    rp_flow_pause_packers(engine->delivery.flow);
    finish_build(&engine->delivery, old, &build.fresh, replica, batch);
    rp_engine_swap_ring(engine, ring, &build.fresh);
    code = rp_flow_resume_packers(engine->delivery.flow, error);
    if (code >= 0)
        rp_engine_watch_packers(engine);
    else
        engine->delivery.state = RP_DELIVERY_STOPPED;
    return code;
}

/* ---- a ring that falls behind ---------------------------------------------------------------- */

bool rp_delivery_can_catch_up(const struct rp_delivery *delivery, uint32_t ring, uint32_t replica,
                              uint64_t batch)
{
    const struct rp_ring *old = &delivery->rings[ring];
    if (replica == RP_ALL_SEATS || delivery->state != RP_DELIVERY_RUNNING ||
        delivery->ring_count == 1)
        return false;
    uint64_t lowest = rp_seat_lowest_position(old, replica, batch);
    if (rp_flow_is_catching_up(delivery->flow, ring))
        return lowest <= old->tail;
    uint32_t most = rp_flow_catch_ups_max(delivery->ring_count);
    return rp_flow_catch_ups(delivery->flow) < most && lowest < old->release;
}

/* The plans for the ring's catch-up flow: those that it has already, or some that none has. */
static struct rp_catch_up_plans *plans_for(struct rp_engine *engine, uint32_t ring)
{
    struct rp_catch_up_plans *unused = NULL;
    for (uint32_t i = 0; i < RP_CATCH_UPS_MAX; i++) {
        struct rp_catch_up_plans *plans = &engine->stream.catch_up_plans[i];
        if (plans->plan && plans->ring == ring)
            return plans;
        if (!plans->plan || !rp_flow_is_catching_up(engine->delivery.flow, plans->ring))
            unused = plans;
    }
    RP_ASSERT(unused); /* rp_delivery_can_catch_up */
    return unused;
}

/* Open plans for a catch-up flow, and keep the state of the probe for them. */
static int open_catch_up_plans(struct rp_stream *stream, struct rp_catch_up_plans *plans,
                               struct rp_error *error)
{
    int code = 0;
    if (!plans->plan)
        code = rp_stream_open_plan(&plans->plan, stream->config, stream->corpus, error);
    if (code >= 0 && stream->scout && !plans->scout)
        code = rp_stream_open_plan(&plans->scout, stream->config, stream->corpus, error);
    return code < 0 ? code : rp_stream_keep_probe_state(stream, error);
}

/* The plans may be used only now, because the catch-up flow that was dropped had them. */
static int start_catch_up(struct rp_engine *engine, uint32_t ring, struct rp_flow *catch_up,
                          struct rp_error *error)
{
    struct rp_catch_up_plans *plans = plans_for(engine, ring);
    const void *state = engine->stream.kept_state;
    size_t bytes = engine->stream.kept_bytes;
    RP_ASSERT(plans->plan && plans->ring == ring);
    int code = rp_plan_load(plans->plan, state, bytes, false, error);
    if (code >= 0 && plans->scout)
        code = rp_plan_load(plans->scout, state, bytes, false, error);
    if (code < 0) {
        rp_flow_close(catch_up);
        return code;
    }
    code = rp_flow_start_catch_up(engine->delivery.flow, catch_up, ring, plans->plan, plans->scout,
                                  error);
    rp_engine_note_readers(engine);
    return code;
}

/* Pause packers, replace the ring, and start the catch-up flow. A failure leaves the flow stopped,
 * unless the ring could not be made and had been served by the flow itself. */
static int rebuild_paused(struct rp_engine *engine, uint32_t ring, uint32_t replica, uint64_t batch,
                          struct rp_flow *catch_up, struct rp_error *error)
{
    bool was_behind = rp_flow_is_catching_up(engine->delivery.flow, ring);
    rp_engine_finish_copy(engine); /* a save under way may be reading the old ring */
    rp_flow_pause_packers(engine->delivery.flow);
    rp_flow_drop_catch_up(engine->delivery.flow, ring);
    int code = rp_engine_rebuild_ring(engine, ring, replica, batch, error);
    if (code < 0)
        rp_flow_close(catch_up);
    bool can_continue = code < 0 && !was_behind;
    if (code >= 0)
        code = start_catch_up(engine, ring, catch_up, error);
    if (code < 0 && !can_continue)
        rp_engine_stop_flow(engine);
    return code;
}

static int rebuild_behind(struct rp_engine *engine, uint32_t ring, uint32_t replica, uint64_t batch,
                          struct rp_error *error)
{
    struct rp_flow *catch_up;
    struct rp_catch_up_plans *plans = plans_for(engine, ring);
    plans->ring = ring;
    int code = open_catch_up_plans(&engine->stream, plans, error);
    if (code >= 0)
        code = rp_flow_make_catch_up(&catch_up, engine->delivery.flow, ring, error);
    if (code < 0)
        return code;
    code = rebuild_paused(engine, ring, replica, batch, catch_up, error);
    if (!rp_delivery_runs(&engine->delivery))
        return code;
    int resumed = rp_flow_resume_packers(engine->delivery.flow, code < 0 ? NULL : error);
    if (resumed >= 0)
        rp_engine_watch_packers(engine);
    else
        engine->delivery.state = RP_DELIVERY_STOPPED;
    return code < 0 ? code : resumed;
}

int rp_engine_rebuild_behind(struct rp_engine *engine, uint32_t ring, uint32_t replica,
                             uint64_t batch, struct rp_error *error)
{
    struct rp_ring *old = &engine->delivery.rings[ring];
    uint64_t position = old->seats[replica].release;
    RP_ASSERT(rp_delivery_can_catch_up(&engine->delivery, ring, replica, batch));
    RP_ASSERT(!rp_ring_is_taken(old, replica));
    bool keeps_batches = rp_engine_tail_if_rebuilt(old, replica, batch) == old->tail;
    if (keeps_batches && batch < position) /* until they are copied */
        rp_ring_place_seat(old, replica, batch);
    int code = rebuild_behind(engine, ring, replica, batch, error);
    if (code < 0)
        rp_ring_place_seat(old, replica, position);
    return code;
}
