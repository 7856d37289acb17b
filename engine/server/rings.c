/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "flow/catch_up.h"
#include "server/caching.h"
#include "server/connections.h"
#include "server/loop.h"
#include "server/probe.h"
#include "server/read_mode.h"
#include "server/rings.h"
#include "server/save.h"
#include "server/sizes.h"
#include "stream.h"

void rp_rings_copy(const struct rp_ring *from, const struct rp_ring *to, uint64_t first,
                   uint64_t end)
{
    RP_ASSERT(from->geometry.slot_bytes == to->geometry.slot_bytes && first <= end);
    for (uint64_t k = first; k < end; k++)
        memcpy(rp_ring_slot(to, k), rp_ring_slot(from, k), to->geometry.slot_bytes);
}

static void copy_unreleased(const struct rp_ring *from, struct rp_ring *to)
{
    if (from->data.fd < 0 || to->release < from->release || to->release >= from->tail)
        return;
    RP_ASSERT(to->tail == to->release && from->geometry.base_row == to->geometry.base_row);
    rp_rings_copy(from, to, to->release, from->tail);
    rp_ring_publish(to, from->tail);
}

uint64_t rp_rings_lowest_position(const struct rp_ring *ring, uint32_t replica, uint64_t batch)
{
    for (uint32_t r = 0; r < ring->replicas && replica != RP_ALL_SEATS; r++)
        if (r != replica)
            batch = rp_min_u64(batch, ring->seats[r].release);
    return batch;
}

/* Set the ring's status to STOPPED, and close its consumers' connections. They take the batches
 * that it still has, and attach to the ring that replaces it. */
static void migrate_consumers(struct rp_engine *engine, struct rp_ring *ring)
{
    RP_ASSERT(ring->status != RP_RING_FAILED); /* an engine that has failed makes no ring */
    struct rp_connection *connection;
    for (uint32_t i = 0; (connection = rp_peers_next(&engine->peers, &i));) {
        if (!connection->seat || connection->seat->ring != ring)
            continue;
        rp_ring_set_status(ring, RP_RING_STOPPED, ring->tail, NULL);
        rp_delivery_migrate_consumer(&engine->delivery, connection);
    }
}

bool rp_engine_has_contract(const struct rp_engine *engine, const struct rp_ring *ring)
{
    return rp_hash128_equal(ring->contract, rp_contract_hash(&engine->stream.contract));
}

/* May the memory of the ring serve its next consumers? All processes that read it have ended, its
 * batches are counted from the present base, and its header has the present contract. */
static bool is_reusable(const struct rp_engine *engine, struct rp_ring *ring)
{
    if (ring->data.fd < 0 || !rp_engine_has_contract(engine, ring) ||
        ring->geometry.base_row != rp_numbering_base(&engine->delivery.numbering))
        return false;
    for (uint32_t r = 0; r < ring->replicas; r++)
        if (rp_ring_is_taken(ring, r) || rp_ring_may_be_read(ring, r))
            return false;
    return true;
}

void rp_engine_swap_ring(struct rp_engine *engine, uint32_t ring, const struct rp_ring *fresh)
{
    struct rp_ring *old = &engine->delivery.rings[ring];
    uint32_t consumers = engine->config->consumers_per_rank;
    migrate_consumers(engine, old);
    rp_ring_close(old);
    *old = *fresh;
    for (uint32_t r = 0; r < consumers; r++) {
        struct rp_seat *seat = &engine->delivery.seats[ring * consumers + r];
        rp_seat_transition(seat, RP_SEAT_REBUILD);
    }
}

static bool is_placed(uint32_t replica, uint32_t placed)
{
    return replica == placed || placed == RP_ALL_SEATS;
}

static void reuse_ring(struct rp_ring *ring, uint32_t placed, uint64_t batch)
{
    for (uint32_t r = 0; r < ring->replicas; r++)
        if (is_placed(r, placed))
            rp_ring_place_seat(ring, r, batch);
    if (ring->status == RP_RING_END)
        rp_ring_set_status(ring, RP_RING_RUNNING, 0, NULL);
}

int rp_engine_make_ring(struct rp_engine *engine, uint32_t ring, uint32_t replica, uint64_t batch,
                        struct rp_error *error)
{
    struct rp_delivery *delivery = &engine->delivery;
    uint32_t consumers = engine->config->consumers_per_rank;
    struct rp_geometry geometry = delivery->geometry;
    geometry.rank = engine->config->rank_first + ring;
    geometry.base_row = rp_numbering_base(&delivery->numbering);
    struct rp_ring *old = &delivery->rings[ring], fresh;
    RP_ASSERT(ring < delivery->ring_count);
    RP_ASSERT(!rp_delivery_runs(delivery) || rp_flow_packers_are_paused(delivery->flow));
    RP_ASSERT(replica < consumers || replica == RP_ALL_SEATS);
    if (is_reusable(engine, old)) {
        reuse_ring(old, replica, batch);
        return 0;
    }
    (void)rp_ring_poll_release(old); /* the last releases of consumers that are to migrate */
    const struct rp_ring_identity identity = {rp_contract_hash(&engine->stream.contract),
                                              delivery->generation};
    int code = rp_ring_create(&fresh, &geometry, consumers, identity,
                              rp_rings_lowest_position(old, replica, batch), error);
    if (code < 0)
        return code;
    copy_unreleased(old, &fresh);
    for (uint32_t r = 0; r < consumers; r++)
        rp_ring_place_seat(&fresh, r, is_placed(r, replica) ? batch : old->seats[r].release);
    RP_ASSERT(fresh.release <= fresh.tail && fresh.tail - fresh.release <= fresh.geometry.slots);
    rp_engine_swap_ring(engine, ring, &fresh);
    return 0;
}

uint64_t rp_delivery_lowest_tail(const struct rp_delivery *delivery)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t r = 0; r < delivery->ring_count; r++)
        lowest = rp_min_u64(lowest, delivery->rings[r].tail);
    return lowest;
}

void rp_engine_watch_packers(struct rp_engine *engine)
{
    for (uint32_t i = 0; i < engine->config->packers; i++) {
        int pidfd = rp_flow_packer_pidfd(engine->delivery.flow, i);
        if (pidfd >= 0)
            (void)rp_loop_watch(&engine->loop, pidfd, RP_WATCH_PACKER, i);
    }
}

int rp_engine_open_flow(struct rp_engine *engine, struct rp_error *error)
{
    struct rp_stream *stream = &engine->stream;
    const struct rp_config *config = engine->config;
    char why[RP_STREAM_WHY_BYTES];
    int code = rp_stream_choose_io(&engine->delivery.io, config, stream->corpus, why, error);
    if (code >= 0)
        code = rp_engine_open_cache(engine, error);
    if (code < 0)
        return code;
    struct rp_flow_options options = rp_engine_flow_options(config, stream->corpus, stream->plan);
    options.method = engine->delivery.io.method;
    options.file_method = engine->delivery.io.file_method;
    options.may_fall_back = engine->delivery.io.may_fall_back;
    options.io_depth = rp_io_choose_depth(options.method, config->io_depth);
    options.contents = stream->contents;
    options.cache = engine->delivery.cache;
    options.next_use = options.cache ? &engine->delivery.next_use : NULL;
    options.mask_counts = stream->mask_counts;
    options.steps = engine->delivery.steps;
    rp_engine_choose_read_mode(engine, &options, why);
    options.prefetch_bytes = rp_flow_prefetch_bytes(&options, stream->plan,
                                                    rp_plan_row(stream->plan));
    return rp_flow_open(&engine->delivery.flow, &options, engine->loop.wake_fd, error);
}

int rp_engine_replace_flow(struct rp_engine *engine, struct rp_error *error)
{
    struct rp_flow *stopped = engine->delivery.flow;
    RP_ASSERT(engine->delivery.state == RP_DELIVERY_STOPPED);
    int code = rp_engine_open_flow(engine, error);
    if (code < 0) { /* the engine fails, and its end still uses a flow */
        engine->delivery.flow = stopped;
        return code;
    }
    rp_flow_continue_counts(engine->delivery.flow, stopped);
    rp_flow_close(stopped);
    return 0;
}

int rp_engine_start_flow(struct rp_engine *engine, struct rp_error *error)
{
    struct rp_delivery *delivery = &engine->delivery;
    RP_ASSERT(!rp_delivery_runs(delivery));
    struct rp_stream *stream = &engine->stream;
    void *state = rp_calloc(1, stream->state_bytes_max);
    if (!state)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a state token");
    uint64_t batch = rp_delivery_lowest_tail(delivery);
    struct rp_row_state start = {.token = state}, before;
    int code = rp_plan_try_save(stream->probe, state, &start.bytes, error);
    if (code >= 0)
        code = rp_engine_load_plan(engine, stream->plan, start, batch, &before, error);
    free(state);
    const struct rp_flow_begin begin = {.batch = batch,
                                        .plan = stream->plan,
                                        .numbering = &delivery->numbering,
                                        .rings = delivery->rings,
                                        .before = &before};
    if (code >= 0)
        code = rp_flow_start(delivery->flow, &begin, error);
    if (code < 0)
        return code;
    delivery->state = RP_DELIVERY_RUNNING;
    rp_engine_watch_packers(engine);
    rp_engine_log_refused_readers(engine);
    rp_engine_schedule_save(engine);
    return 0;
}

void rp_engine_stop_flow(struct rp_engine *engine)
{
    rp_engine_want_due_save(engine);
    rp_engine_finish_copy(engine);
    rp_flow_stop(engine->delivery.flow); /* closes pidfds, which leaves the epoll set */
    engine->delivery.state = RP_DELIVERY_STOPPED;
}

int rp_engine_restart_flow(struct rp_engine *engine, struct rp_error *error)
{
    uint64_t begin = rp_delivery_lowest_tail(&engine->delivery);
    struct rp_row_state state = {.token = NULL};
    if (rp_flow_catch_ups(engine->delivery.flow) > 0) /* their states are lost in the stop */
        state = rp_flow_state_at(engine->delivery.flow, begin);
    int code = state.token ? rp_engine_keep_state(&engine->stream, &state, error) : 0;
    rp_engine_stop_flow(engine);
    if (code >= 0)
        code = rp_engine_probe_batch(engine, begin, error);
    return code < 0 ? code : rp_engine_start_flow(engine, error);
}
