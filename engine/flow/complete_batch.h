/* SPDX-License-Identifier: Apache-2.0 */
/* complete_batch.h — the parts of a batch that need all of its rows: the ends of its segments
 * (cu_seqlens), its slot header, and the state token after it. */
#ifndef RP_FLOW_COMPLETE_BATCH_H
#define RP_FLOW_COMPLETE_BATCH_H

#include "flow/deliver.h"

/** Complete the slot of a ring for the batch of `last`, its last ticket, and count the batch. All
 * its rows are packed, and it is not published. Called by the holder of the turn. */
void rp_complete_batch(struct rp_deliver *deliver, uint32_t ring, const struct rp_ticket *last);

#endif
