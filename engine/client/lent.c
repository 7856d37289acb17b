/* SPDX-License-Identifier: Apache-2.0 */
/* lent.c — the struct that describes a batch to the caller, from its slot. */
#include "client/core.h"

/* An engine that begins inside a step may not know the step's sums. A trainer that has met the step
 * before does: the sums follow from the contract and the first row of the step. */
static void set_step(struct rp_client *client, const struct rp_slot_header *header,
                     struct rp_batch *batch)
{
    const struct rp_geometry *g = &client->current->view.geometry;
    uint64_t before = g->rank + (uint64_t)header->micro_batch * g->world; /* in units of rows */
    uint64_t first_row = header->first_row - before * header->rows;
    struct rp_client_step *step = &client->step;
    if (header->known & RP_KNOWN_STEP)
        *step = (struct rp_client_step){true, first_row, header->step_rows, header->step_tokens,
                                        header->step_tokens_loss};
    if (!step->is_known || step->first_row != first_row)
        return;
    batch->known |= RP_KNOWN_STEP;
    batch->step_rows = step->rows;
    batch->step_tokens = step->tokens;
    batch->step_tokens_loss = step->tokens_loss;
}

struct rp_batch rp_client_batch_of(struct rp_client *client, const uint8_t *slot,
                                   const struct rp_slot_header *header)
{
    const struct rp_mapping *mapping = client->current;
    const struct rp_geometry *g = &mapping->view.geometry;
    struct rp_batch batch = {.lease = mapping->number,
                             .number = header->batch,
                             .first_row = header->first_row,
                             .next_row = header->next_row,
                             .rows = header->rows,
                             .seq_len = g->seq_len,
                             .rows_real = header->rows_real,
                             .tokens_real = header->tokens_real,
                             .tokens_loss = header->tokens_loss,
                             .max_seqlen = header->max_seqlen,
                             .segments = header->segments,
                             .sum_len_squared = header->sum_len_squared,
                             .cost = header->cost,
                             .known = header->known & RP_KNOWN_COST,
                             .step = header->step,
                             .micro_batch = header->micro_batch,
                             .micro_batches = header->micro_batches};
    for (unsigned i = 0; i < RP_SECTION_ROOM; i++)
        batch.sections[i] = g->sections[i].offset ? slot + g->sections[i].offset : NULL;
    set_step(client, header, &batch);
    return batch;
}
