/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rejoin_decide.h"

#include "base/bits.h"
#include "base/fail.h"
#include "shm/layout.h"

/* The row for a token of the end of the stream: after the last step or, if others are attached,
 * in the padding of that step, as the head comment of rejoin_decide.h has it. */
static uint64_t row_after_end(const struct rp_rejoin_facts *facts)
{
    const struct rp_numbering_part *part = rp_numbering_of_row(facts->numbering, facts->row);
    uint64_t rows = facts->row - part->row;
    if (facts->others == RP_OTHERS_NONE)
        return part->row + rp_div_up(rows, part->step_rows) * part->step_rows;
    uint64_t batch = part->batch + rp_div_up(rows, part->batch_rows);
    uint64_t end = batch + rp_numbering_step_batches(part);
    uint64_t others = facts->lowest_attached;
    if (facts->position >= batch && facts->position < end)
        batch = facts->position;
    else if (others >= batch && others < end)
        batch = others;
    return rp_numbering_row(facts->numbering, batch);
}

static uint64_t requested_row(const struct rp_rejoin_facts *facts)
{
    switch (facts->requested_by) {
    case RP_BY_NOTHING:
        return facts->position_is_known ? rp_numbering_row(facts->numbering, facts->position)
                                        : facts->start_row;
    case RP_BY_TOKEN:
        if (facts->follows == RP_FOLLOWS_END && facts->row >= rp_numbering_base(facts->numbering))
            return row_after_end(facts);
        break;
    case RP_BY_ROW:
        break;
    }
    return facts->row;
}

/* Does the ring have all unreleased batches of all its seats, if this seat is at `batch`, or will
 * it publish `batch` next? A higher batch also counts as in the ring while another consumer is
 * attached to the ring: the ring gets there as that consumer releases batches. Without such a
 * consumer the batches below may never be released. */
static bool is_in_ring(const struct rp_rejoin_facts *facts, uint64_t batch)
{
    uint64_t lowest = rp_min_u64(facts->lowest_other, batch);
    return lowest >= facts->release && lowest <= facts->tail &&
           (batch <= facts->tail || facts->others == RP_OTHERS_IN_RING);
}

static struct rp_placement refuse(struct rp_placement placement, enum rp_refusal refusal)
{
    placement.action = RP_PLACEMENT_REFUSE;
    placement.refusal = refusal;
    return placement;
}

/* While others are attached, neither the stream nor the numbering may change. */
static struct rp_placement decide_with_others(const struct rp_rejoin_facts *facts,
                                              struct rp_placement placement)
{
    if (facts->stream == RP_STREAM_OTHER)
        return refuse(placement, RP_REFUSAL_OTHER_STREAM);
    if (!rp_numbering_has(facts->numbering, placement.row))
        return refuse(placement, RP_REFUSAL_NOT_NUMBERED);
    bool is_ahead = placement.batch > facts->tail;
    placement.action = is_ahead && facts->others == RP_OTHERS_ELSEWHERE ? RP_PLACEMENT_MOVE_RING
                                                                        : RP_PLACEMENT_REBUILD;
    return placement;
}

/* No consumer is attached. The batch of the placement is set if the numbering is kept. */
static struct rp_placement decide_alone(const struct rp_rejoin_facts *facts,
                                        struct rp_placement placement)
{
    placement.action = RP_PLACEMENT_MOVE_ALL;
    placement.begins_stream = facts->stream == RP_STREAM_OTHER;
    placement.forgets_contents = facts->stream != RP_STREAM_OURS;
    return placement;
}

static struct rp_placement renumber(const struct rp_rejoin_facts *facts,
                                    struct rp_placement placement, uint64_t step_row)
{
    placement.renumbers = true;
    placement.step_row = step_row;
    rp_numbering_begin(facts->trial, step_row);
    placement.batch = rp_numbering_batch(facts->trial, placement.row);
    return placement;
}

/* A row at which a step begins in the consumer's count: a step has to begin there. RP_NEXT_ROW_ANY:
 * the consumer names no such row, and the numbering may stay. */
static uint64_t requested_step_row(const struct rp_rejoin_facts *facts, uint64_t row)
{
    switch (facts->requested_by) {
    case RP_BY_NOTHING:
        break;
    case RP_BY_TOKEN: /* it begins a step, as long as no batch has been released */
        if (facts->follows == RP_FOLLOWS_ROW && !facts->has_consumed)
            return row;
        break;
    case RP_BY_ROW: /* batches begin at `row`, so they must at step_row as well */
        if (facts->step_row > row)
            break;
        rp_numbering_begin(facts->trial, facts->step_row);
        if (rp_numbering_has(facts->trial, row))
            return facts->step_row;
        break;
    }
    return RP_NEXT_ROW_ANY;
}

static void check_facts(const struct rp_rejoin_facts *facts)
{
    bool has_token = facts->follows != RP_FOLLOWS_NO_TOKEN;
    RP_ASSERT(facts->release <= facts->tail && facts->release <= facts->lowest_other);
    RP_ASSERT((facts->others == RP_OTHERS_NONE) == (facts->lowest_attached == UINT64_MAX));
    RP_ASSERT(facts->requested_by != RP_BY_NOTHING ||
              (facts->row == RP_NEXT_ROW_ANY && !has_token));
    RP_ASSERT(facts->requested_by != RP_BY_TOKEN || has_token);
    RP_ASSERT(has_token || facts->stream == RP_STREAM_OURS);
}

struct rp_placement rp_rejoin_decide(const struct rp_rejoin_facts *facts)
{
    check_facts(facts);
    struct rp_placement placement = {.row = requested_row(facts)};
    bool numbered = rp_numbering_has(facts->numbering, placement.row);
    if (numbered)
        placement.batch = rp_numbering_batch(facts->numbering, placement.row);

    uint64_t step_row = requested_step_row(facts, placement.row);
    bool keeps_numbering = numbered &&
                           (facts->others != RP_OTHERS_NONE || step_row == RP_NEXT_ROW_ANY ||
                            rp_numbering_begins_step(facts->numbering, step_row));
    bool in_ring = keeps_numbering && facts->stream != RP_STREAM_OTHER &&
                   is_in_ring(facts, placement.batch);

    if (in_ring && !facts->memory_may_be_read) {
        placement.action = RP_PLACEMENT_KEEP;
        return placement;
    }
    if (facts->has_failed)
        return refuse(placement, RP_REFUSAL_FAILED);
    if (in_ring) {
        placement.action = RP_PLACEMENT_REBUILD;
        return placement;
    }
    if (facts->others != RP_OTHERS_NONE)
        return decide_with_others(facts, placement);
    if (!keeps_numbering)
        placement = renumber(facts, placement,
                             step_row == RP_NEXT_ROW_ANY ? placement.row : step_row);
    return decide_alone(facts, placement);
}
