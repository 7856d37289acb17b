/* SPDX-License-Identifier: Apache-2.0 */
/* rejoin.c — gathers the facts of an attach, and applies what rejoin_decide.c decides.
 *
 * One ring is rebuilt while the flow runs, where that is possible; one that falls behind gets a
 * flow of its own until it has caught up (rebuild.h). Otherwise the flow is stopped, and started
 * again at the lowest tail of all rings: planning to a row costs 30 to 60 ns a document and no I/O,
 * and what was prefetched is read again.
 *
 * Invariants:
 *
 *   - The memory that a consumer had in a seat is given to the seat's next consumer only if the
 *     process of the first one is proven to have ended (shm/peer.h): a process that lost its
 *     connection may still read its leases.
 *   - A rebuilt ring has copies of the batches that were not released. Consumers of its other seats
 *     migrate: the status of their old ring becomes STOPPED, they take the batches that it still
 *     has, and attach to the new ring as they would to another engine.
 *   - If an action fails, either rings, seats and flow are as they were, or the flow is stopped and
 *     the caller makes the engine fail.
 *   - After an attach, successful or not, no seat is MIGRATING. */
#include "server/rejoin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/defect.h"
#include "base/log.h"
#include "plan/plan.h"
#include "plan/trace.h"
#include "server/journal.h"
#include "server/placing.h"
#include "server/probe.h"
#include "server/rebuild.h"
#include "server/rejoin_decide.h"
#include "server/rings.h"
#include "server/seats.h"
#include "server/start.h"

#define SKIP_ABSENT_AFTER_NS 5000000000u

/* What a consumer asks for. */
struct asked {
    struct rp_seat *seat;
    const struct rp_request *request;
    bool names_row;
    const void *token;
    enum rp_stream_of stream; /* of the token */
};

/* ---- facts ----------------------------------------------------------------------------------- */

/* Sets the facts of the state token: what follows its row, and of which stream it is. Fails if the
 * token cannot be loaded, or is not of the row that was asked for. Moves the probe. */
static int look_at_token(struct rp_engine *engine, struct asked *asked,
                         struct rp_rejoin_facts *facts, struct rp_error *error)
{
    /* by the result of rp_plan_next */
    static const enum rp_token_follows kinds[] = {RP_FOLLOWS_END, RP_FOLLOWS_ROW};
    struct rp_row next;
    size_t bytes = asked->request->state_bytes;
    int code = rp_engine_probe_row(engine, facts->row, asked->token, bytes, error);
    if (code < 0)
        return code;
    int follows = rp_plan_next(engine->probe, &next, NULL);
    facts->follows = follows < 0 ? RP_FOLLOWS_DAMAGE : kinds[follows];
    facts->stream = asked->stream = rp_engine_stream_of(engine, asked->token, bytes);
    return 0;
}

static enum rp_others others_of(const struct rp_engine *engine, const struct rp_ring *ring)
{
    if (rp_engine_has_consumer(engine, ring))
        return RP_OTHERS_IN_RING;
    return rp_engine_has_consumer(engine, NULL) ? RP_OTHERS_ELSEWHERE : RP_OTHERS_NONE;
}

static struct rp_rejoin_facts facts_of(const struct rp_engine *engine, const struct asked *asked)
{
    const struct rp_seat *seat = asked->seat;
    const struct rp_ring *ring = seat->ring;
    return (struct rp_rejoin_facts){
        .base_row = engine->base_row,
        .start_row = engine->start_row,
        .batch_rows = engine->batch_rows,
        .step_rows = engine->config->global_batch_size,
        .has_failed = engine->phase == RP_ENGINE_FAILED,
        .has_consumed = RP_DEFECT(count_steps_from_attach) ? engine->had_consumer
                                                           : engine->has_consumed,
        .others = others_of(engine, ring),
        .release = ring->release,
        .tail = ring->tail,
        .lowest_other = rp_seat_lowest_position(ring, seat->replica, UINT64_MAX),
        .position_is_known = rp_seat_position_is_known(seat),
        .memory_may_be_read = rp_ring_may_be_read(seat->ring, seat->replica),
        .position = rp_seat_position(seat),
        .asks_by = asked->names_row ? RP_ASKS_BY_ROW
                   : asked->token   ? RP_ASKS_BY_TOKEN
                                    : RP_ASKS_BY_NOTHING,
        .row = asked->request->next_row,
        .step_row = asked->request->step_row,
        .stream = RP_STREAM_OURS,
    };
}

static int refuse(const struct rp_engine *engine, const struct rp_placement *placement,
                  struct rp_error *error)
{
    switch (placement->refusal) {
    case RP_REFUSAL_FAILED:
        return rp_fail(error, -RP_E_BUSY, engine->error->hint, "the stream has stopped: %s",
                       engine->error->message);
    case RP_REFUSAL_OTHER_STREAM:
        return rp_fail(error, -RP_E_BUSY,
                       "let all ranks resume from one state: detach the others first",
                       "the state at row %" PRIu64
                       " is of a stream whose weights or num_epochs change at another row than in "
                       "the stream that the other ranks read",
                       placement->row);
    case RP_REFUSAL_NOT_NUMBERED:
    case RP_REFUSAL_NONE:
        break;
    }
    RP_ASSERT(placement->refusal == RP_REFUSAL_NOT_NUMBERED);
    return rp_fail(error, -RP_E_BUSY, "let all ranks resume from one row: detach the others first",
                   "row %" PRIu64 " does not begin a micro-batch, as the attached ranks count them "
                   "(base row %" PRIu64 ", %" PRIu64 " rows each)",
                   placement->row, engine->base_row, engine->batch_rows);
}

/* ---- actions --------------------------------------------------------------------------------- */

/* Event MOVE for the seat, or for all seats of its ring: the action has changed their position. */
static void move_seats(struct rp_engine *engine, struct rp_seat *seat, bool all_of_ring)
{
    for (uint32_t s = 0; s < engine->seat_count; s++)
        if (&engine->seats[s] == seat || (all_of_ring && engine->seats[s].ring == seat->ring))
            rp_engine_move_seat(engine, &engine->seats[s]);
}

static bool has_digest(const void *token, size_t bytes)
{
    struct rp_state_info info;
    return rp_state_info(token, bytes, &info, NULL) == 0 && rp_hash128_is_known(info.digest);
}

/* Rebuild the ring, and have it catch up. Where the first row of that is the row of the consumer's
 * token, the token has its state, however far the row is from every known state. A token of
 * an older version, which has no plan digest, is not used where the engine knows the digest. */
static int rebuild_behind(struct rp_engine *engine, const struct asked *asked, uint64_t batch,
                          struct rp_error *error)
{
    const struct rp_seat *seat = asked->seat;
    uint64_t begin = rp_engine_tail_if_rebuilt(seat->ring, seat->replica, batch);
    uint64_t row = asked->request->next_row;
    size_t bytes = asked->request->state_bytes;
    bool takes_token = asked->token && asked->stream == RP_STREAM_OURS && begin == batch &&
                       row == engine->base_row + begin * engine->batch_rows &&
                       (has_digest(asked->token, bytes) ||
                        !has_digest(engine->start_state, engine->start_bytes));
    int code = takes_token ? rp_engine_probe_row(engine, row, asked->token, bytes, error)
                           : rp_engine_probe_batch(engine, begin, error);
    if (code < 0)
        return code;
    return rp_engine_rebuild_behind(engine, (uint32_t)(seat->ring - engine->rings), seat->replica,
                                    batch, error);
}

/* Rebuild the ring while the flow is stopped. */
static int rebuild_stopped(struct rp_engine *engine, uint32_t ring, uint32_t replica,
                           uint64_t batch, struct rp_error *error)
{
    uint64_t begin = rp_engine_tail_if_rebuilt(&engine->rings[ring], replica, batch);
    for (uint32_t r = 0; r < engine->ring_count; r++)
        if (r != ring)
            begin = rp_min_u64(begin, engine->rings[r].tail);
    int code = rp_engine_probe_batch(engine, begin, error);
    if (code >= 0)
        code = rp_engine_keep_probe_state(engine, error);
    if (code < 0)
        return code;
    rp_engine_stop_flow(engine);
    code = rp_engine_rebuild_ring(engine, ring, replica, batch, error);
    int restarted = rp_engine_restart_flow(engine, code < 0 ? NULL : error);
    return code < 0 ? code : restarted;
}

/* REBUILD and MOVE_RING, in the way that disturbs other consumers least. If the ring cannot be
 * made, or if the row at which it begins is far (far_plan.h), rings and seats are as they were. */
static int replace_ring(struct rp_engine *engine, const struct asked *asked, uint64_t batch,
                        bool all_of_ring, struct rp_error *error)
{
    struct rp_seat *seat = asked->seat;
    uint32_t ring = (uint32_t)(seat->ring - engine->rings);
    uint32_t replica = all_of_ring ? RP_ALL_SEATS : seat->replica;
    uint64_t position = rp_seat_position(seat);
    int code;
    if (rp_engine_can_rebuild_running(engine, ring, replica, batch)) {
        code = rp_engine_rebuild_running(engine, ring, replica, batch, error);
    } else if (rp_engine_can_catch_up(engine, ring, replica, batch)) {
        code = rebuild_behind(engine, asked, batch, error);
        if (code < 0 && code != -EINPROGRESS && engine->flow_running) /* no memory for a flow */
            code = rebuild_stopped(engine, ring, replica, batch, error);
    } else {
        code = rebuild_stopped(engine, ring, replica, batch, error);
    }
    if (code >= 0 && (all_of_ring || batch != position))
        move_seats(engine, seat, all_of_ring);
    return code;
}

/* The state of the probe, which is at `row`, becomes the start of the stream. */
static void begin_stream(struct rp_engine *engine, uint64_t row)
{
    rp_engine_forget_far(engine);
    free(engine->kept_state);
    engine->kept_state = NULL;
    engine->start_bytes = rp_plan_save(engine->probe, engine->start_state);
    engine->start_row = row;
    engine->is_reweighted = rp_plan_is_reweighted(engine->probe);
}

/* MOVE_ALL. The old rings are closed first, so that their memory is free when new ones are made. So
 * if a new ring cannot be made there is none to return to, and the engine fails. */
static int move_all(struct rp_engine *engine, const struct asked *asked,
                    const struct rp_placement *placement, struct rp_error *error)
{
    RP_ASSERT(!rp_engine_has_consumer(engine, NULL));
    int code = rp_engine_probe_row(engine, placement->row, asked->token,
                                   asked->request->state_bytes, error);
    if (code < 0)
        return code;
    rp_engine_stop_flow(engine);
    if (placement->begins_stream)
        begin_stream(engine, placement->row);
    if (placement->forgets_contents)
        rp_engine_forget_contents(engine);
    engine->base_row = placement->base_row;
    rp_flow_forget_states(engine->flow);
    for (uint32_t s = 0; s < engine->seat_count; s++)
        rp_engine_move_seat(engine, &engine->seats[s]);
    for (uint32_t r = 0; r < engine->ring_count; r++) {
        rp_ring_close(&engine->rings[r]);
        engine->rings[r].tail = engine->rings[r].release = placement->batch;
    }
    for (uint32_t r = 0; r < engine->ring_count && code >= 0; r++)
        code = rp_engine_rebuild_ring(engine, r, RP_ALL_SEATS, placement->batch, error);
    return code < 0 ? code : rp_engine_start_flow(engine, error);
}

static int apply(struct rp_engine *engine, const struct asked *asked,
                 const struct rp_placement *placement, struct rp_error *error)
{
    switch (placement->action) {
    case RP_PLACEMENT_REFUSE:
        return refuse(engine, placement, error);
    case RP_PLACEMENT_KEEP:
        return 0;
    case RP_PLACEMENT_REBUILD:
        return replace_ring(engine, asked, placement->batch, false, error);
    case RP_PLACEMENT_MOVE_RING:
        RP_ASSERT(!rp_engine_has_consumer(engine, asked->seat->ring));
        return replace_ring(engine, asked, placement->batch, true, error);
    case RP_PLACEMENT_MOVE_ALL:
        break;
    }
    RP_ASSERT(placement->action == RP_PLACEMENT_MOVE_ALL);
    return move_all(engine, asked, placement, error);
}

static void end_skipping(struct rp_engine *engine)
{
    engine->skipping_absent = false;
    for (uint32_t s = 0; s < engine->seat_count; s++)
        rp_ring_skip_seat(engine->seats[s].ring, engine->seats[s].replica, false);
}

/* Decide, apply, attach. A consumer that names its row has not restarted. One that brings only a
 * state token has, so it begins or joins a rollback epoch. */
static int rejoin(struct rp_engine *engine, struct asked *asked, uint64_t *batch_out,
                  struct rp_error *error)
{
    struct rp_seat *seat = asked->seat;
    struct rp_rejoin_facts facts = facts_of(engine, asked);
    int code = asked->token ? look_at_token(engine, asked, &facts, error) : 0;
    if (code < 0)
        return code;
    struct rp_placement placement = rp_rejoin_decide(&facts);
    if (placement.action != RP_PLACEMENT_REFUSE)
        end_skipping(engine); /* consumers of skipped seats may be about to attach, too */
    code = apply(engine, asked, &placement, error);
    if (code >= 0)
        code = rp_ring_attach_trainer(seat->ring, seat->replica, placement.batch, error);
    if (code < 0)
        return code;
    *batch_out = placement.batch;
    engine->had_consumer = true;
    rp_seat_transition(seat, RP_SEAT_ATTACH);
    uint64_t epoch = engine->rollback_epoch;
    if (asked->token && !asked->names_row)
        rp_engine_note_rollback(engine, seat, asked->request->next_row);
    if (engine->rollback_epoch > epoch)
        rp_engine_journal_rollback(engine, asked->request->next_row);
    RP_ASSERT(rp_seat_position(seat) == placement.batch);
    return 0;
}

int rp_engine_rejoin(struct rp_engine *engine, struct rp_seat *seat,
                     const struct rp_request *request, bool names_row, const void *token,
                     uint64_t *batch_out, struct rp_error *error)
{
    struct asked asked = {seat, request, names_row, token, RP_STREAM_OURS};
    RP_ASSERT(!rp_seat_is_attached(seat) && seat->seat_state != RP_SEAT_MIGRATING);
    RP_ASSERT(engine->phase < RP_ENGINE_STOPPING && (token == NULL) == (request->state_bytes == 0));
    int code = rejoin(engine, &asked, batch_out, error);
    rp_engine_end_migrations(engine);
    return code;
}

/* ---- skipping absent seats ------------------------------------------------------------------- */

/* The consumer of a seat may never attach, because it was done with an earlier engine. While
 * nothing is known of that consumer, no batch is kept for it. So when other consumers have waited
 * for SKIP_ABSENT_AFTER_NS the seat is skipped: its position follows the ring's tail as batches are
 * delivered, until any consumer attaches; one that is refused changes nothing. If the consumer
 * attaches after all, it names the row that it needs or begins at the start row, and the ring is
 * rebuilt there. */
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
        if (!rp_seat_may_be_skipped(seat) || !rp_seat_fills_ring(seat))
            continue;
        if (!seat->ring->seats[seat->replica].is_skipped)
            rp_log(RP_LOG_WARNING,
                   "%s has not attached and other trainers wait: they continue without it",
                   rp_seat_name(seat, name));
        engine->skipping_absent = true;
        rp_seat_transition(seat, RP_SEAT_SKIP);
        rp_ring_skip_seat(seat->ring, seat->replica, true);
    }
}
