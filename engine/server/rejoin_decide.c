/* SPDX-License-Identifier: Apache-2.0 */
/* See rejoin_decide.h. */
#include "server/rejoin_decide.h"

#include "base/bits.h"
#include "base/defect.h"
#include "base/fail.h"
#include "shm/layout.h"

static bool is_numbered(const struct rp_rejoin_facts *facts, uint64_t row)
{
    return row >= facts->base_row && (row - facts->base_row) % facts->batch_rows == 0;
}

static bool begins_step(const struct rp_rejoin_facts *facts, uint64_t row)
{
    return row % facts->step_rows == facts->base_row % facts->step_rows;
}

static uint64_t row_of_batch(const struct rp_rejoin_facts *facts, uint64_t batch)
{
    return facts->base_row + batch * facts->batch_rows;
}

/* The row for a token of the end of the stream: behind the last step or, where others are attached,
 * the seat's position if that is in the padding of the last step. */
static uint64_t row_behind_end(const struct rp_rejoin_facts *facts)
{
    uint64_t rows = facts->row - facts->base_row;
    if (!facts->has_consumer && !RP_DEFECT(pad_after_end))
        return facts->base_row + rp_div_up(rows, facts->step_rows) * facts->step_rows;
    uint64_t batch = rp_div_up(rows, facts->batch_rows);
    uint64_t step_batches = facts->step_rows / facts->batch_rows;
    if (facts->position > batch && facts->position - batch < step_batches)
        batch = facts->position;
    return row_of_batch(facts, batch);
}

static uint64_t row_asked_for(const struct rp_rejoin_facts *facts)
{
    if (facts->row == RP_NEXT_ROW_ANY)
        return facts->position_is_known ? row_of_batch(facts, facts->position) : facts->start_row;
    bool tells = facts->names_row || facts->follows != RP_FOLLOWS_END ||
                 facts->row < facts->base_row;
    return tells ? facts->row : row_behind_end(facts);
}

/* Does the ring have the batch and every batch that its other seats have not released, or will it
 * publish the batch next? A batch beyond that counts as in the ring, too, while another consumer is
 * attached to it: the ring will get there as that consumer releases batches. Without one, nobody
 * may ever release the batches before it. */
static bool is_in_ring(const struct rp_rejoin_facts *facts, uint64_t batch)
{
    uint64_t lowest = rp_min_u64(facts->lowest_other, batch);
    return lowest >= facts->release && lowest <= facts->tail &&
           (batch <= facts->tail || facts->ring_has_consumer);
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
    if (!is_numbered(facts, placement.row))
        return refuse(placement, RP_REFUSAL_NOT_NUMBERED);
    bool is_ahead = placement.batch > facts->tail;
    placement.action = is_ahead && !facts->ring_has_consumer ? RP_PLACEMENT_MOVE_RING
                                                             : RP_PLACEMENT_REBUILD;
    return placement;
}

static struct rp_placement decide_alone(const struct rp_rejoin_facts *facts,
                                        struct rp_placement placement, uint64_t step_row)
{
    placement.action = RP_PLACEMENT_MOVE_ALL;
    placement.begins_stream = facts->stream == RP_STREAM_OTHER;
    placement.forgets_contents = facts->stream != RP_STREAM_OURS;
    if (step_row != facts->base_row)
        placement.base_row = step_row % facts->step_rows;
    placement.batch = (placement.row - placement.base_row) / facts->batch_rows;
    return placement;
}

/* How the consumer tells at which row a step begins. If batches are counted so that none begins at
 * that row yet, they are counted anew. */
enum step_origin {
    STEP_NAMED, /* it names its row and sends a step_row that can be one: at step_row */
    STEP_TOKEN, /* it sends only a token, before any batch was released: at the token's row */
    STEP_UNTOLD /* neither: at the row asked for, but only if that is not numbered */
};

static enum step_origin step_origin_of(const struct rp_rejoin_facts *facts, uint64_t row)
{
    uint64_t step_row = facts->step_row;
    if (facts->names_row)
        return step_row <= row && (row - step_row) % facts->batch_rows == 0 ? STEP_NAMED
                                                                            : STEP_UNTOLD;
    return facts->follows == RP_FOLLOWS_ROW && !facts->has_consumed ? STEP_TOKEN : STEP_UNTOLD;
}

struct rp_placement rp_rejoin_decide(const struct rp_rejoin_facts *facts)
{
    RP_ASSERT(facts->batch_rows > 0 && facts->step_rows % facts->batch_rows == 0);
    RP_ASSERT(facts->has_consumer || !facts->ring_has_consumer);
    RP_ASSERT(facts->release <= facts->tail && facts->release <= facts->lowest_other);
    struct rp_placement placement = {.row = row_asked_for(facts), .base_row = facts->base_row};
    bool numbered = is_numbered(facts, placement.row);
    if (numbered)
        placement.batch = (placement.row - facts->base_row) / facts->batch_rows;

    enum step_origin origin = step_origin_of(facts, placement.row);
    uint64_t step_row = origin == STEP_NAMED ? facts->step_row : placement.row;
    bool counts_anew = !facts->has_consumer && origin != STEP_UNTOLD &&
                       !begins_step(facts, step_row);
    bool in_ring = numbered && !counts_anew && facts->stream != RP_STREAM_OTHER &&
                   is_in_ring(facts, placement.batch);

    if (facts->has_failed && (!in_ring || facts->memory_may_be_read))
        return refuse(placement, RP_REFUSAL_FAILED);
    if (in_ring) {
        placement.action = facts->memory_may_be_read ? RP_PLACEMENT_REBUILD : RP_PLACEMENT_KEEP;
        return placement;
    }
    if (facts->has_consumer)
        return decide_with_others(facts, placement);
    return decide_alone(facts, placement, numbered && !counts_anew ? facts->base_row : step_row);
}
