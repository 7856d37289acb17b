/* SPDX-License-Identifier: Apache-2.0 */
/* facade_trace.c — from a document to its places in a plan of version 2, and back (plan/trace.h).
 *
 * The order of a pass depends on the number of documents in its epoch. A state has it for the
 * present epoch and the one before; of other epochs it is known if the source did not grow. */
#include <inttypes.h>
#include <string.h>

#include "plan/order.h"
#include "plan/v2/facade_trace.h"

/* Whether a source that has joined keeps its record `documents` at all boundaries in
 * [first, end). */
static bool is_constant(const struct rp_plan_v2 *v2, uint32_t number, uint64_t first,
                        uint64_t *documents)
{
    bool is_known = false;
    for (uint64_t row = first; row != RP_NO_ROW; row = rp_calendar_next(v2->now.calendar, row)) {
        const struct rp_stage *stage = rp_calendar_at(v2->now.calendar, row);
        if (number >= stage->joined)
            continue;
        if (is_known && stage->documents[number] != *documents)
            return false;
        *documents = stage->documents[number];
        is_known = true;
    }
    return is_known;
}

static bool documents_of(const struct rp_plan_v2 *v2, uint32_t source, uint64_t epoch,
                         uint64_t *documents)
{
    uint32_t number = v2->now.numbers[source];
    const struct rp_source_state *state = rp_v2_reached(v2, source);
    if (number == RP_NO_NUMBER)
        return false;
    if (state && epoch == state->epoch)
        *documents = state->documents;
    else if (state && epoch + 1 == state->epoch)
        *documents = state->before;
    else if (!state || epoch < state->epoch)
        return rp_calendar_knows_records(v2->now.calendar) && is_constant(v2, number, 0, documents);
    else
        return is_constant(v2, number, rp_planner_row(v2->now.rows), documents);
    return true;
}

int rp_v2_draw(const struct rp_plan_v2 *v2, struct rp_draw *draw, struct rp_error *error)
{
    const struct rp_stream_source *source = &v2->spec.sources[draw->source];
    const struct rp_stream_fixed *fixed = &rp_calendar_spec(v2->now.calendar)->fixed;
    uint64_t documents = 0;
    if (!documents_of(v2, draw->source, draw->epoch, &documents))
        return rp_fail(error, -RP_E_USAGE,
                       "only the present epoch of a state and the one before are known: give a "
                       "state token or a checkpoint of that epoch",
                       "source %s, epoch %" PRIu64
                       ": the number of its documents then is not known, because it has grown",
                       source->name, draw->epoch);
    if (draw->document >= documents || draw->epoch >= RP_EPOCHS_MAX)
        return rp_fail(error, -RP_E_USAGE, "it joins with the next epoch after its record",
                       "source %s has %" PRIu64 " documents in epoch %" PRIu64 "; document %" PRIu64
                       " is none of them",
                       source->name, documents, draw->epoch, draw->document);
    struct rp_order order;
    rp_order_init_items(&order, fixed->shuffle, documents / fixed->group,
                        fixed->block_documents / fixed->group, fixed->window_blocks);
    rp_order_enter_key(&order, 0,
                       rp_pass_key_make(fixed->seed, rp_hash64(source->name, strlen(source->name)),
                                        (uint32_t)draw->epoch, draw->pass));
    draw->position = rp_order_position_of(&order, draw->document / fixed->group);
    draw->lane = 0;
    return 0;
}

static bool is_drawn(const struct rp_source_state *state, const struct rp_draw *draw)
{
    if (!state || draw->epoch != state->epoch)
        return state && draw->epoch < state->epoch;
    return draw->pass < state->pass ||
           (draw->pass == state->pass && draw->position < state->position);
}

bool rp_v2_has_drawn(const struct rp_plan_v2 *v2, const struct rp_draw *draw)
{
    return is_drawn(rp_v2_reached(v2, draw->source), draw);
}

/* ---- waiting pieces -------------------------------------------------------------------------- */

bool rp_v2_holds(struct rp_plan_v2 *v2, const struct rp_draw *draw)
{
    const struct rp_snapshot *state = rp_v2_state(v2);
    uint64_t item = draw->document / rp_calendar_spec(v2->now.calendar)->fixed.group;
    uint32_t number = v2->now.numbers[draw->source];
    bool holds = !state;
    for (uint64_t i = 0; !holds && i < rp_snapshot_pieces(state); i++) {
        const struct rp_item_piece *piece = rp_snapshot_piece(state, i);
        holds = piece->source == number && piece->item == item && piece->epoch == draw->epoch &&
                piece->pass == draw->pass;
    }
    return holds;
}

bool rp_v2_is_past(struct rp_plan_v2 *v2, const struct rp_draw *draw)
{
    const struct rp_snapshot *state = rp_v2_state(v2);
    uint32_t number = v2->now.numbers[draw->source];
    if (!state || number >= state->source_count)
        return false;
    return is_drawn(&state->sources[number], draw) && !rp_v2_holds(v2, draw);
}
