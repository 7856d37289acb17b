/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/trace.h"

#include "plan/plan_state.h"
#include "plan/v2/facade_trace.h"

/* The order of a lane in an epoch. */
static struct rp_order order_at(const struct rp_plan *plan, uint32_t lane, uint32_t source,
                                uint64_t epoch)
{
    struct rp_order order = plan->lanes[lane].piece_source.cursors[source].order;
    rp_order_enter(&order, epoch);
    return order;
}

struct rp_draw rp_plan_draw(const struct rp_plan *plan, uint32_t source, uint64_t document,
                            uint64_t epoch)
{
    struct rp_order order = order_at(plan, 0, source, epoch);
    struct rp_draw draw = {.document = document, .epoch = epoch, .source = source};
    draw.lane = rp_order_lane_of(&order, document);
    if (draw.lane != 0)
        order = order_at(plan, draw.lane, source, epoch);
    draw.position = rp_order_position_of(&order, document);
    return draw;
}

int rp_plan_find_draw(const struct rp_plan *plan, struct rp_draw *draw, struct rp_error *error)
{
    if (plan->v2)
        return rp_v2_draw(plan->v2, draw, error);
    *draw = rp_plan_draw(plan, draw->source, draw->document, draw->epoch);
    return 0;
}

uint32_t rp_plan_passes(const struct rp_plan *plan, uint32_t source)
{
    return plan->v2 ? plan->v2->spec.sources[source].passes : 1;
}

bool rp_plan_has_drawn(const struct rp_plan *plan, const struct rp_draw *draw)
{
    if (plan->v2)
        return rp_v2_has_drawn(plan->v2, draw);
    const struct rp_cursor *cursor = &plan->lanes[draw->lane].piece_source.cursors[draw->source];
    return draw->epoch < cursor->epoch ||
           (draw->epoch == cursor->epoch && draw->position < cursor->position);
}

/* A visit of every part of a document that a lane holds back. */
struct visit {
    uint32_t source;
    uint64_t document;
    uint32_t found;   /* parts */
    uint64_t skip_at; /* the part that begins at this token is not counted, once */
    bool has_to_skip;
};

static void visit_part(struct visit *visit, uint32_t source, uint64_t document, uint64_t offset)
{
    if (source != visit->source || document != visit->document)
        return;
    if (visit->has_to_skip && offset == visit->skip_at)
        visit->has_to_skip = false;
    else
        visit->found++;
}

static void visit_lane(struct visit *visit, const struct rp_lane *lane)
{
    if (lane->pending.length > 0)
        visit_part(visit, lane->pending.source, lane->pending.document, lane->pending.offset);
    uint16_t slot = RP_WINDOW_NONE;
    for (uint32_t i = 0; i < lane->window.count; i++) {
        slot = rp_window_newer(&lane->window, slot);
        if (lane->pieces) {
            const struct rp_piece *piece = &lane->pieces[slot];
            visit_part(visit, piece->source, piece->document, piece->offset);
            continue;
        }
        const struct rp_fragment *fragments = rp_open_fragments(lane, slot);
        for (uint32_t f = 0; f < lane->open_rows[slot].count; f++)
            visit_part(visit, fragments[f].source, fragments[f].document, fragments[f].offset);
    }
}

bool rp_plan_holds(const struct rp_plan *plan, const struct rp_draw *draw)
{
    if (plan->v2)
        return rp_v2_holds(plan->v2, draw);
    struct visit visit = {.source = draw->source, .document = draw->document};
    visit_lane(&visit, &plan->lanes[draw->lane]);
    return visit.found > 0;
}

bool rp_plan_is_past(const struct rp_plan *plan, const struct rp_draw *draw)
{
    return plan->v2 ? rp_v2_is_past(plan->v2, draw)
                    : rp_plan_has_drawn(plan, draw) && !rp_plan_holds(plan, draw);
}

/* The number of times that the document was read after the fragment's piece: the pieces that the
 * lane holds, except the rest of that piece, and the pieces that begin later in the row. Equal
 * pieces are emitted in the order of reading. */
static uint32_t newer_draws(const struct rp_lane *lane, const struct rp_row *row, uint32_t number)
{
    const struct rp_fragment *fragment = &row->fragments[number];
    struct visit visit = {.source = fragment->source,
                          .document = fragment->document,
                          .skip_at = fragment->offset + fragment->length,
                          .has_to_skip = true};
    visit_lane(&visit, lane);
    for (uint32_t i = number + 1; i < row->count; i++)
        if (row->fragments[i].offset == 0)
            visit_part(&visit, row->fragments[i].source, row->fragments[i].document, 0);
    return visit.found;
}

uint64_t rp_plan_epoch(const struct rp_plan *plan, const struct rp_row *row, uint32_t number)
{
    if (plan->v2)
        return plan->v2->epochs[number];
    const struct rp_fragment *fragment = &row->fragments[number];
    uint32_t lane = (uint32_t)(row->row % plan->config.lanes);
    uint32_t newer = newer_draws(&plan->lanes[lane], row, number);
    uint64_t epoch = plan->lanes[lane].piece_source.cursors[fragment->source].epoch;
    for (;; epoch--) {
        struct rp_draw draw = rp_plan_draw(plan, fragment->source, fragment->document, epoch);
        if (draw.lane == lane && rp_plan_has_drawn(plan, &draw) && newer-- == 0)
            return epoch;
        if (epoch == 0)
            return 0;
    }
}

uint64_t rp_plan_source_epoch(const struct rp_plan *plan, uint32_t source)
{
    const struct rp_source_state *state = plan->v2 ? rp_v2_reached(plan->v2, source) : NULL;
    uint64_t epoch = 0;
    if (plan->v2)
        return state ? state->epoch : 0;
    for (uint32_t i = 0; i < plan->config.lanes; i++)
        epoch = rp_max_u64(epoch, plan->lanes[i].piece_source.cursors[source].epoch);
    return epoch;
}

bool rp_plan_is_reweighted(const struct rp_plan *plan)
{
    if (plan->v2)
        return !rp_calendar_knows_records(plan->v2->now.calendar) ||
               rp_calendar_lacks_source(plan->v2->now.calendar);
    for (uint32_t i = 0; i < plan->config.lanes; i++) {
        const struct rp_lane *lane = &plan->lanes[i];
        uint64_t mixed = 0;
        for (uint32_t s = 0; s < plan->source_count; s++)
            mixed += lane->piece_source.mixing.mixed[s];
        if (mixed != lane->counts.tokens_read - lane->counts.truncated - lane->counts.dropped)
            return true;
    }
    return false;
}
