/* SPDX-License-Identifier: Apache-2.0 */
/* rejoin.c — where a trainer goes on, and what that means for the others.
 *
 * A trainer that begins where its ring stands gets the ring as it is. In every other case the flow
 * is stopped, rings are made anew and the flow is started at the row asked for: planning to it
 * costs 30-60 ns a document and no I/O, and what was prefetched is only read again.
 *
 * While other trainers are attached a ring moves alone, and only within their numbering (base + k *
 * batch_size * dp_world_size). With nobody else there a trainer may go to any row, and the other
 * rings move along, because ranks of a job go on from about the same row. About: when an engine
 * died, its ranks were some micro-batches apart. So the numbering is kept wherever the row fits it,
 * and a new one begins whole steps below the row: a rank that is behind finds its place in it.
 *
 * The replicas of a rank share a ring, which stands where the last of them does. Who is ahead of it
 * takes his seat there and waits; for who is behind it the ring is made anew, and the others are
 * led over to it: their old ring says that it has stopped, they take what it still has, and come to
 * the new one as they would come to another engine.
 *
 * Steps are counted as the trainers count them, so that all nodes of a job count them alike,
 * wherever their engines have begun: whoever goes on from another engine says where a step began,
 * and whoever comes first and brings a state begins a step with it.
 *
 * A token of another stream (accept_weights: other weights, or a change of weights at another row)
 * is the beginning of that one: no row is at hand for it, and contents of the checkpoint are not of
 * its rows.
 *
 * Invariants: the memory that a trainer had in a seat is handed to the seat's next trainer only if
 * the process of the first one is proven to have ended (shm/peer.h): a process that lost its
 * connection may still read its leases. Without the proof the ring is made anew, with copies of the
 * batches that were not released. A place that cannot be had leaves rings and flow as they were, or
 * else the flow stands and the engine fails. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/defect.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/probe.h"
#include "server/rejoin.h"
#include "server/rings.h"
#include "server/seat.h"

#define SKIP_ABSENT_AFTER_NS 5000000000u

/* ---- moving ---------------------------------------------------------------------------------- */

/* All seats of a ring (or, NULL, of all rings) go along with this one. */
static void doubt_others(struct rp_engine *engine, const struct rp_seat *seat,
                         const struct rp_ring *ring)
{
    for (uint32_t s = 0; s < engine->seat_count; s++)
        if (!ring || engine->seats[s].ring == ring)
            engine->seats[s].position_unknown = &engine->seats[s] != seat;
}

static bool is_numbered(const struct rp_engine *engine, uint64_t row)
{
    return row >= engine->base_row && (row - engine->base_row) % engine->batch_rows == 0;
}

/* From here on the stream is what follows from the state that the probe stands at. */
static void begin_anew(struct rp_engine *engine, uint64_t row)
{
    engine->start_bytes = rp_plan_save(engine->probe, engine->start_state);
    engine->start_row = row;
}

/* They are of rows of another stream, or may be: theirs are read again. */
static void forget_contents(struct rp_engine *engine)
{
    rp_engine_stop_flow(engine);
    if (engine->contents)
        rp_contents_clear(engine->contents);
}

/* All rings to `row`, and steps counted from `step_row`; the probe stands at the row, or at the end
 * of the stream before it. */
static int move_all(struct rp_engine *engine, const struct rp_seat *seat, uint64_t row,
                    uint64_t step_row, uint64_t *batch_out, struct rp_error *error)
{
    rp_engine_stop_flow(engine);
    if (step_row != engine->base_row)
        engine->base_row = step_row % engine->config->global_batch_size;
    uint64_t batch = *batch_out = (row - engine->base_row) / engine->batch_rows;
    rp_flow_forget_states(engine->flow);
    for (uint32_t r = 0; r < engine->ring_count; r++) {
        rp_ring_close(&engine->rings[r]); /* nobody is attached: all of its memory is free now */
        engine->rings[r].tail = engine->rings[r].release = batch;
    }
    doubt_others(engine, seat, NULL);
    int code = 0;
    for (uint32_t r = 0; r < engine->ring_count && code >= 0; r++)
        code = rp_engine_rebuild_ring(engine, r, RP_ALL_SEATS, batch, error);
    return code < 0 ? code : rp_engine_start_flow(engine, error);
}

/* One seat to micro-batch `batch` of the present numbering. Where nobody has taken another seat of
 * its ring and there is nothing at `batch` yet, the others go along, as ranks do. */
static int move_one(struct rp_engine *engine, const struct rp_seat *seat, uint64_t batch,
                    struct rp_error *error)
{
    const struct rp_ring *ring = seat->ring;
    bool leads = batch > ring->tail && !rp_engine_has_consumer(engine, ring);
    rp_engine_stop_flow(engine);
    int code = rp_engine_rebuild_ring(engine, (uint32_t)(ring - engine->rings),
                                      leads ? RP_ALL_SEATS : seat->replica, batch, error);
    if (code >= 0 && leads)
        doubt_others(engine, seat, ring);
    int restarted = rp_engine_restart_flow(engine, code < 0 ? NULL : error);
    return code < 0 ? code : restarted;
}

/* Behind the last row the state stays where it is while padding fills up the step, so there a token
 * does not tell how much its trainer has had: what the ring's last one had, if that is in this
 * step, or else the rest of the last row's micro-batch. A trainer that names its row knows. */
static uint64_t row_of_token(struct rp_engine *engine, const struct rp_seat *seat, uint64_t row,
                             const void *token, size_t bytes)
{
    struct rp_row next;
    if (row < engine->base_row || is_numbered(engine, row) ||
        rp_engine_probe_row(engine, row, token, bytes, NULL) < 0 ||
        row != rp_plan_row(engine->probe) || rp_plan_next(engine->probe, &next, NULL) != 0)
        return row;
    uint64_t batch = rp_div_up(row - engine->base_row, engine->batch_rows);
    uint64_t position = rp_seat_position(seat);
    if (position > batch && position - batch < engine->micro_batches)
        batch = position;
    return engine->base_row + batch * engine->batch_rows;
}

/* Is it a row at which a step begins, as they are counted now? */
static bool is_step(const struct rp_engine *engine, uint64_t row)
{
    uint64_t step = engine->config->global_batch_size;
    return row % step == engine->base_row % step;
}

/* Does a trainer that goes on at `row` say where a step began? What does not fit is made up. */
static bool tells_step(const struct rp_engine *engine, const struct rp_request *request,
                       uint64_t row)
{
    return request->step_row <= row && (row - request->step_row) % engine->batch_rows == 0;
}

/* Does the state that the probe stands at begin a step where there was none? Then the probe is one
 * row behind it. */
static bool begins_new_step(const struct rp_engine *engine, uint64_t row)
{
    struct rp_row next;
    for (uint32_t s = 0; s < engine->seat_count; s++)
        if (engine->seats[s].ever_attached)
            return false;
    return !is_step(engine, row) && row == rp_plan_row(engine->probe) &&
           rp_plan_next(engine->probe, &next, NULL) == 1;
}

/* ---- skipping absent seats ------------------------------------------------------------------- */

/* A rank, or a replica, may never come: it had everything from the engine before this one, and
 * left. Until somebody takes the seat nothing of the ring is his, so he is passed over: whoever
 * does come says where he stands, or begins at the start row, and the ring is moved there. */
void rp_engine_skip_absent(struct rp_engine *engine)
{
    uint64_t published = 0, now = rp_now_ns();
    for (uint32_t r = 0; r < engine->ring_count; r++)
        published += engine->rings[r].tail;
    if (published != engine->published || !rp_engine_consumer_waits(engine)) {
        engine->published = published;
        engine->published_ns = now;
        return;
    }
    if (now - engine->published_ns < SKIP_ABSENT_AFTER_NS && !engine->skipping_absent)
        return;
    for (uint32_t s = 0; s < engine->seat_count; s++) {
        struct rp_seat *seat = &engine->seats[s];
        char name[RP_SEAT_NAME_BYTES];
        bool is_nobodys = seat->position_unknown || !seat->ever_attached;
        if (!is_nobodys || rp_seat_is_attached(seat) || !rp_seat_fills_ring(seat))
            continue;
        if (!engine->skipping_absent)
            rp_log(RP_LOG_WARNING, "%s has not attached and others wait: they go on without it",
                   rp_seat_name(seat, name));
        engine->skipping_absent = seat->position_unknown = true;
        rp_ring_place_seat(seat->ring, seat->replica, seat->ring->tail);
    }
}

/* Is what the seat wants, and what the others at its ring have yet to give back, in the ring as it
 * stands? Who alone is ahead of it does not wait for others who may not be ahead. */
static bool is_at_hand(const struct rp_engine *engine, const struct rp_seat *seat, uint64_t batch)
{
    const struct rp_ring *ring = seat->ring;
    uint64_t lowest = rp_ring_lowest_position(ring, seat->replica, batch);
    return lowest >= ring->release && lowest <= ring->tail &&
           (batch <= ring->tail || rp_engine_has_consumer(engine, ring));
}

static int place_ring(struct rp_engine *engine, const struct rp_seat *seat,
                      const struct rp_request *request, bool names_row, const void *token,
                      uint64_t *batch_out, struct rp_error *error)
{
    uint64_t row = request->next_row;
    engine->skipping_absent = false; /* others may be on their way, too */
    if (row == RP_NEXT_ROW_ANY && seat->position_unknown)
        row = engine->start_row; /* it has seen no row: none that others are past may be lost */
    if (token && !names_row)
        row = row_of_token(engine, seat, row, token, request->state_bytes);
    bool numbered = row == RP_NEXT_ROW_ANY || is_numbered(engine, row);
    uint64_t batch = row == RP_NEXT_ROW_ANY ? rp_seat_position(seat)
                                            : (row - engine->base_row) / engine->batch_rows;
    enum rp_stream_of stream = token ? rp_engine_stream_of(engine, token, request->state_bytes)
                                     : RP_STREAM_OURS;
    bool is_alone = !rp_engine_has_consumer(engine, NULL), begins_step = false;
    bool tells = names_row && tells_step(engine, request, row);
    uint64_t step_row = tells ? request->step_row : row;
    if (token) { /* a token of another stream is refused even if its row is at hand */
        int code = rp_engine_probe_row(engine, row, token, request->state_bytes, error);
        begins_step = code >= 0 && !names_row && begins_new_step(engine, row);
        if (begins_step)
            code = rp_engine_probe_row(engine, row, token, request->state_bytes, error);
        if (code < 0)
            return code;
    }
    *batch_out = batch;
    bool recounts = begins_step || (is_alone && tells && !is_step(engine, step_row));
    bool at_hand = numbered && stream != RP_STREAM_OTHER && !recounts &&
                   is_at_hand(engine, seat, batch);
    bool may_be_read = rp_ring_may_be_read(seat->ring, seat->replica);
    if (engine->phase == RP_ENGINE_FAILED && (!at_hand || may_be_read))
        return rp_fail(error, -RP_E_BUSY, engine->error->hint, "the stream has stopped: %s",
                       engine->error->message);
    if (at_hand)
        return may_be_read ? move_one(engine, seat, batch, error) : 0;
    if (!is_alone) {
        if (stream == RP_STREAM_OTHER)
            return rp_fail(error, -RP_E_BUSY,
                           "let all ranks go on from the same state: detach the others first",
                           "the state at row %" PRIu64
                           " is of a stream whose weights change at another row than those of the "
                           "stream that other ranks are in",
                           row);
        if (!numbered)
            return rp_fail(
                error, -RP_E_BUSY, "let all ranks go on from the same row: detach the others first",
                "row %" PRIu64 " does not begin a micro-batch of the run that other ranks are in "
                "(base row %" PRIu64 ", %" PRIu64 " rows each)",
                row, engine->base_row, engine->batch_rows);
        return move_one(engine, seat, batch, error);
    }
    if (!token) {
        int code = rp_engine_probe_row(engine, row, NULL, 0, error);
        if (code < 0)
            return code;
    }
    if (stream == RP_STREAM_OTHER)
        begin_anew(engine, row);
    if (stream != RP_STREAM_OURS)
        forget_contents(engine);
    if (numbered && !recounts)
        step_row = engine->base_row;
    return move_all(engine, seat, row, step_row, batch_out, error);
}

/* ---- rollbacks ------------------------------------------------------------------------------- */

/* Trainers that go on from the same state are one return. Another one begins when somebody comes
 * from another state, or comes again. */
static void join_rollback(struct rp_engine *engine, struct rp_seat *seat, uint64_t row)
{
    bool joins = row == engine->rollback_row && seat->rollback_epoch < engine->rollback_epoch;
    engine->rollback_epoch += !joins;
    engine->rollback_row = row;
    seat->rollback_epoch = engine->rollback_epoch;
}

static void note_absent(struct rp_engine *engine)
{
    for (uint32_t s = 0; s < engine->seat_count; s++)
        engine->seats[s].absent_at_rollback = !rp_seat_is_attached(&engine->seats[s]);
}

/* A trainer that goes on from a state may be one of many that do, and those that are not there may
 * go back: what they had is then to come again, and nobody knows from where. */
static void doubt_absent(struct rp_engine *engine)
{
    for (uint32_t s = 0; s < engine->seat_count; s++) {
        struct rp_seat *seat = &engine->seats[s];
        if (seat->ever_attached && seat->absent_at_rollback && !RP_DEFECT(trust_absent))
            seat->position_unknown = true;
    }
}

int rp_engine_place_ring(struct rp_engine *engine, struct rp_seat *seat,
                         const struct rp_request *request, bool names_row, const void *token,
                         uint64_t *batch_out, struct rp_error *error)
{
    note_absent(engine);
    int code = place_ring(engine, seat, request, names_row, token, batch_out, error);
    if (code >= 0 && token && !names_row) { /* who names its row has lived all the time */
        join_rollback(engine, seat, request->next_row);
        doubt_absent(engine);
    }
    return code;
}
