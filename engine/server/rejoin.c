/* SPDX-License-Identifier: Apache-2.0 */
/* rejoin.c — gathers the facts of an attach, and applies the decision of rejoin_decide.c.
 *
 * One ring is rebuilt while the flow runs, if that is possible; a ring that falls behind gets a
 * flow of its own until it has caught up (rebuild.h). Otherwise the flow is stopped, and started
 * again at the lowest tail of all rings: planning to a row costs 30 to 60 ns a document and no I/O,
 * and prefetched rows are read again.
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

#include <inttypes.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "plan/plan.h"
#include "plan/trace.h"
#include "server/journal.h"
#include "server/deferred_attach.h"
#include "server/probe.h"
#include "server/rebuild.h"
#include "server/rejoin_decide.h"
#include "server/rings.h"
#include "server/seats.h"
#include "server/shutdown.h"
#include "server/start.h"

/* Time that consumers wait for an absent one before its seat is skipped. It is short in a repeated
 * stream, where a rank may leave a pass early. */
#define SKIP_ABSENT_AFTER_NS 5000000000u
#define SKIP_ABSENT_OF_PASS_AFTER_NS 50000000u

/* An attach that is being served. */
struct attach {
    struct rp_seat *seat;
    const struct rp_request *request;
    bool names_row;
    const void *token;
    enum rp_stream_of stream; /* the token's */
};

/* ---- facts ----------------------------------------------------------------------------------- */

/* Set the facts of the state token: its stream, and the successor of its row. Fails if the token
 * cannot be loaded, or has another row than the request, or its row has another seq_len than this
 * engine serves. Moves the probe. */
static int take_token(struct rp_engine *engine, struct attach *attach,
                      struct rp_rejoin_facts *facts, struct rp_error *error)
{
    /* by the result of rp_plan_next */
    static const enum rp_token_follows kinds[] = {RP_FOLLOWS_END, RP_FOLLOWS_ROW};
    struct rp_row next;
    size_t bytes = attach->request->state_bytes;
    int code = rp_engine_probe_row(engine, facts->row, attach->token, bytes, error);
    if (code < 0)
        return code;
    /* Only a trainer of this run, which names its row or has released batches, may be at the end of
     * a stage: it has had all rows. Another one wants rows of the next stage. */
    bool begins = !attach->names_row && !engine->delivery.has_consumed;
    if ((begins && rp_plan_is_stage_end(engine->stream.probe)) ||
        !rp_plan_is_in_run(engine->stream.probe))
        return rp_fail(
            error, -RP_E_MISMATCH,
            "the run is unchanged; stop this engine, and start it with `--state FILE` of "
            "this trainer's state",
            "row %" PRIu64 " has seq_len %" PRIu32
            ", and this engine serves rows of seq_len %" PRIu32,
            facts->row, rp_plan_seq_len(engine->stream.probe), engine->delivery.geometry.seq_len);
    int follows = rp_plan_next(engine->stream.probe, &next, NULL);
    facts->follows = follows < 0 ? RP_FOLLOWS_DAMAGE : kinds[follows];
    facts->stream = attach->stream = rp_engine_stream_of(engine, attach->token, bytes);
    return 0;
}

static enum rp_others others_of(const struct rp_delivery *delivery, const struct rp_ring *ring)
{
    if (rp_delivery_has_consumer(delivery, ring))
        return RP_OTHERS_IN_RING;
    return rp_delivery_has_consumer(delivery, NULL) ? RP_OTHERS_ELSEWHERE : RP_OTHERS_NONE;
}

static uint64_t lowest_attached(const struct rp_delivery *delivery)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t s = 0; s < delivery->seat_count; s++)
        if (rp_seat_is_attached(&delivery->seats[s]))
            lowest = rp_min_u64(lowest, rp_seat_position(&delivery->seats[s]));
    return lowest;
}

static struct rp_rejoin_facts facts_of(struct rp_engine *engine, const struct attach *attach)
{
    const struct rp_seat *seat = attach->seat;
    const struct rp_ring *ring = seat->ring;
    return (struct rp_rejoin_facts){
        .numbering = &engine->delivery.numbering,
        .trial = &engine->delivery.trial,
        .start_row = engine->stream.start_row,
        .has_failed = rp_life_has_failed(&engine->life),
        .has_consumed = engine->delivery.has_consumed,
        .others = others_of(&engine->delivery, ring),
        .lowest_attached = lowest_attached(&engine->delivery),
        .release = ring->release,
        .tail = ring->tail,
        .lowest_other = rp_rings_lowest_position(ring, seat->replica, UINT64_MAX),
        .position_is_known = rp_seat_position_is_known(seat),
        .memory_may_be_read = rp_ring_may_be_read(seat->ring, seat->replica) ||
                              !rp_engine_has_contract(engine, ring),
        .position = rp_seat_position(seat),
        .requested_by = attach->names_row ? RP_BY_ROW
                        : attach->token   ? RP_BY_TOKEN
                                          : RP_BY_NOTHING,
        .row = attach->request->next_row,
        .step_row = attach->request->step_row,
        .stream = RP_STREAM_OURS,
    };
}

static int fail_not_numbered(const struct rp_numbering *numbering, uint64_t row,
                             struct rp_error *error)
{
    return rp_fail(error, -RP_E_BUSY, "let all ranks resume from one row: detach the others first",
                   "row %" PRIu64 " does not begin a micro-batch, as the attached ranks count them "
                   "(base row %" PRIu64 ", %" PRIu64 " rows each)",
                   row, rp_numbering_base(numbering),
                   rp_numbering_of_row(numbering, row)->batch_rows);
}

static int refuse(const struct rp_engine *engine, const struct rp_placement *placement,
                  struct rp_error *error)
{
    switch (placement->refusal) {
    case RP_REFUSAL_FAILED:
        return rp_fail(error, -RP_E_BUSY, engine->life.error->hint, "the stream has stopped: %s",
                       engine->life.error->message);
    case RP_REFUSAL_OTHER_STREAM:
        return rp_fail(error, -RP_E_BUSY,
                       "let all ranks resume from one state: detach the others first",
                       "the state at row %" PRIu64
                       " is of a stream whose weights or num_epochs change at another row than in "
                       "the stream that the other ranks read",
                       placement->row);
    case RP_REFUSAL_NOT_NUMBERED:
        return fail_not_numbered(&engine->delivery.numbering, placement->row, error);
    case RP_REFUSAL_NONE:
        break;
    }
    RP_ASSERT(false);
    return -RP_E_BUSY;
}

/* ---- actions --------------------------------------------------------------------------------- */

/* Event MOVE for the seat, or for all seats of its ring: the action has changed their position. */
static void move_seats(struct rp_delivery *delivery, struct rp_seat *seat, bool all_of_ring)
{
    for (uint32_t s = 0; s < delivery->seat_count; s++)
        if (&delivery->seats[s] == seat || (all_of_ring && delivery->seats[s].ring == seat->ring))
            rp_delivery_move_seat(delivery, &delivery->seats[s]);
}

static bool has_digest(const void *token, size_t bytes)
{
    struct rp_state_info info;
    return rp_state_info(token, bytes, &info, NULL) == 0 && rp_hash128_is_known(info.digest);
}

/* Is the consumer's token of the first row of `batch`, in this stream? A token of an older version,
 * which has no plan digest, is not used where the engine knows the digest. */
static bool is_token_of(const struct rp_engine *engine, const struct attach *attach, uint64_t batch)
{
    const struct rp_stream *stream = &engine->stream;
    return attach->token && attach->stream == RP_STREAM_OURS &&
           attach->request->next_row == rp_delivery_row(&engine->delivery, batch) &&
           (has_digest(attach->token, attach->request->state_bytes) ||
            !has_digest(stream->start_state, stream->start_bytes));
}

/* REBUILD and MOVE_RING. */
static int replace_ring(struct rp_engine *engine, const struct attach *attach, uint64_t batch,
                        bool all_of_ring, struct rp_error *error)
{
    struct rp_seat *seat = attach->seat;
    bool moves = all_of_ring || batch != rp_seat_position(seat);
    const struct rp_rebuild rebuild = {.ring = (uint32_t)(seat->ring - engine->delivery.rings),
                                       .replica = all_of_ring ? RP_ALL_SEATS : seat->replica,
                                       .batch = batch,
                                       .token = is_token_of(engine, attach, batch) ? attach->token
                                                                                   : NULL,
                                       .token_bytes = attach->request->state_bytes};
    int code = rp_engine_rebuild(engine, &rebuild, error);
    if (code >= 0 && moves)
        move_seats(&engine->delivery, seat, all_of_ring);
    return code;
}

/* The state of the probe, which is at `row`, becomes the start of the stream. */
static int begin_stream(struct rp_engine *engine, uint64_t row, struct rp_error *error)
{
    struct rp_stream *stream = &engine->stream;
    int code = rp_plan_try_save(stream->probe, stream->start_state, &stream->start_bytes, error);
    if (code < 0)
        return code;
    rp_engine_forget_far(engine);
    free(stream->kept_state);
    stream->kept_state = NULL;
    rp_sums_forget_from(engine->delivery.steps, 0);
    stream->start_row = row;
    stream->is_reweighted = rp_plan_is_reweighted(stream->probe);
    return 0;
}

/* MOVE_ALL. The old rings are closed first, so that their memory is free when new ones are made. So
 * if a new ring cannot be made, no old ring is left to return to, and the engine fails. */
static int move_all(struct rp_engine *engine, const struct attach *attach,
                    const struct rp_placement *placement, struct rp_error *error)
{
    RP_ASSERT(!rp_delivery_has_consumer(&engine->delivery, NULL));
    int code = rp_engine_probe_row(engine, placement->row, attach->token,
                                   attach->request->state_bytes, error);
    struct rp_delivery *delivery = &engine->delivery;
    if (code >= 0 && engine->config->drop_last)
        code = rp_plan_check_steps(engine->stream.probe,
                                   placement->renumbers ? &delivery->trial : &delivery->numbering,
                                   error);
    if (code < 0)
        return code;
    rp_engine_stop_flow(engine);
    if (placement->begins_stream)
        code = begin_stream(engine, placement->row, error);
    if (code < 0)
        return code;
    if (placement->forgets_contents)
        rp_engine_forget_contents(&engine->stream);
    if (placement->renumbers)
        rp_numbering_begin(&delivery->numbering, placement->step_row);
    rp_flow_forget_states(engine->delivery.flow);
    for (uint32_t s = 0; s < engine->delivery.seat_count; s++)
        rp_delivery_move_seat(&engine->delivery, &engine->delivery.seats[s]);
    for (uint32_t r = 0; r < engine->delivery.ring_count; r++) {
        rp_ring_close(&engine->delivery.rings[r]);
        engine->delivery.rings[r].tail = engine->delivery.rings[r].release = placement->batch;
    }
    for (uint32_t r = 0; r < engine->delivery.ring_count && code >= 0; r++)
        code = rp_engine_make_ring(engine, r, RP_ALL_SEATS, placement->batch, error);
    return code < 0 ? code : rp_engine_start_flow(engine, error);
}

static int apply(struct rp_engine *engine, const struct attach *attach,
                 const struct rp_placement *placement, struct rp_error *error)
{
    switch (placement->action) {
    case RP_PLACEMENT_REFUSE:
        return refuse(engine, placement, error);
    case RP_PLACEMENT_KEEP:
        return 0;
    case RP_PLACEMENT_REBUILD:
        return replace_ring(engine, attach, placement->batch, false, error);
    case RP_PLACEMENT_MOVE_RING:
        RP_ASSERT(!rp_delivery_has_consumer(&engine->delivery, attach->seat->ring));
        return replace_ring(engine, attach, placement->batch, true, error);
    case RP_PLACEMENT_MOVE_ALL:
        break;
    }
    RP_ASSERT(placement->action == RP_PLACEMENT_MOVE_ALL);
    return move_all(engine, attach, placement, error);
}

static void end_skipping(struct rp_delivery *delivery)
{
    delivery->skipping_absent = false;
    for (uint32_t s = 0; s < delivery->seat_count; s++)
        rp_ring_skip_seat(delivery->seats[s].ring, delivery->seats[s].replica, false);
}

/* Decide, apply, attach. A consumer that names its row has not restarted. A consumer that brings
 * only a state token has restarted, so it begins or joins a rollback epoch. */
static int rejoin(struct rp_engine *engine, struct attach *attach, uint64_t *batch_out,
                  struct rp_error *error)
{
    struct rp_delivery *delivery = &engine->delivery;
    struct rp_seat *seat = attach->seat;
    struct rp_rejoin_facts facts = facts_of(engine, attach);
    int code = attach->token ? take_token(engine, attach, &facts, error) : 0;
    if (code < 0)
        return code;
    struct rp_placement placement = rp_rejoin_decide(&facts);
    if (placement.action != RP_PLACEMENT_REFUSE)
        end_skipping(delivery); /* consumers of skipped seats may be about to attach */
    code = apply(engine, attach, &placement, error);
    if (code >= 0)
        code = rp_ring_attach_trainer(seat->ring, seat->replica, placement.batch, error);
    if (code < 0)
        return code;
    *batch_out = placement.batch;
    delivery->had_consumer = true;
    rp_seat_transition(seat, RP_SEAT_ATTACH);
    uint64_t epoch = delivery->rollback_epoch;
    if (attach->token && !attach->names_row)
        rp_delivery_note_rollback(delivery, seat, attach->request->next_row);
    if (delivery->rollback_epoch > epoch)
        rp_engine_journal_rollback(engine, attach->request->next_row);
    RP_ASSERT(rp_seat_position(seat) == placement.batch);
    return 0;
}

int64_t rp_engine_rejoin(struct rp_engine *engine, struct rp_seat *seat,
                         const struct rp_request *request, bool names_row, const void *token,
                         struct rp_error *error)
{
    uint64_t batch;
    struct attach attach = {seat, request, names_row, token, RP_STREAM_OURS};
    RP_ASSERT(!rp_seat_is_attached(seat) && seat->seat_state != RP_SEAT_MIGRATING);
    RP_ASSERT(!rp_life_is_ending(&engine->life) && (token == NULL) == (request->state_bytes == 0));
    int code = rejoin(engine, &attach, &batch, error);
    rp_delivery_end_migrations(&engine->delivery);
    return code < 0 ? code : (int64_t)batch;
}

/* ---- skipping absent seats ------------------------------------------------------------------- */

/* The consumer of a seat may never attach, because it was done with an earlier engine. No batch is
 * kept for a seat whose position is unknown. So once other consumers have waited long, the seat is
 * skipped: its position follows the ring's tail as batches are delivered. Skipping ends when any
 * consumer attaches; a refused attach changes no seat. If the skipped consumer attaches after all,
 * it names the row that it needs or begins at the start row, and the ring is rebuilt there. */
void rp_delivery_skip_absent(struct rp_delivery *delivery)
{
    uint64_t tail_sum = 0, now = rp_now_ns();
    for (uint32_t r = 0; r < delivery->ring_count; r++)
        tail_sum += delivery->rings[r].tail;
    if (tail_sum != delivery->tail_sum || !rp_delivery_consumer_waits(delivery)) {
        delivery->tail_sum = tail_sum;
        delivery->tail_sum_ns = now;
        return;
    }
    uint64_t wait_ns = delivery->config->is_repeated ? SKIP_ABSENT_OF_PASS_AFTER_NS
                                                     : SKIP_ABSENT_AFTER_NS;
    if (now - delivery->tail_sum_ns < wait_ns && !delivery->skipping_absent)
        return;
    for (uint32_t s = 0; s < delivery->seat_count; s++) {
        struct rp_seat *seat = &delivery->seats[s];
        char name[RP_SEAT_NAME_BYTES];
        if (!rp_seat_may_be_skipped(seat) || !rp_seat_fills_ring(seat))
            continue;
        if (!seat->ring->seats[seat->replica].is_skipped)
            rp_log(RP_LOG_WARNING,
                   "%s has not attached and other trainers wait: they continue without it",
                   rp_seat_name(seat, name));
        delivery->skipping_absent = true;
        rp_seat_transition(seat, RP_SEAT_SKIP);
        rp_ring_skip_seat(seat->ring, seat->replica, true);
    }
}

void rp_engine_rewind(struct rp_engine *engine)
{
    struct rp_delivery *delivery = &engine->delivery;
    if (!delivery->is_to_rewind || rp_delivery_has_consumer(delivery, NULL) ||
        !rp_delivery_runs(delivery))
        return;
    const struct rp_request none = {.next_row = RP_NEXT_ROW_ANY};
    const struct attach attach = {.request = &none};
    uint64_t row = engine->stream.start_row;
    struct rp_placement placement = {.action = RP_PLACEMENT_MOVE_ALL, .row = row, .step_row = row};
    placement.renumbers = !rp_numbering_has(&delivery->numbering, row);
    if (placement.renumbers)
        rp_numbering_begin(&delivery->trial, row);
    placement.batch = rp_numbering_batch(
        placement.renumbers ? &delivery->trial : &delivery->numbering, row);
    delivery->is_to_rewind = false;
    end_skipping(delivery);
    int code = move_all(engine, &attach, &placement, engine->life.error);
    if (code < 0)
        rp_engine_fail(engine, code);
}
