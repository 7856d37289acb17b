/* SPDX-License-Identifier: Apache-2.0 */
/* sums.h — the sums of the newest steps, by their first rows: for flows that begin inside a
 * step, after a restart or for a ring that catches up (queue.h). One table for all flows of an
 * engine. Threads: any; it has a lock. */
#ifndef RP_FLOW_SUMS_H
#define RP_FLOW_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "flow/ticket.h"

struct rp_sums;

struct rp_sums *rp_sums_make(void);       /* NULL: out of memory */
void rp_sums_free(struct rp_sums *steps); /* NULL is fine */
/** Forget the steps that begin at `row` or later: their rows are going to be planned otherwise. */
void rp_sums_forget_from(struct rp_sums *steps, uint64_t row);

/** Keep sums that are known, and find them. `steps` may be NULL: nothing is kept. */
void rp_sums_add(struct rp_sums *steps, uint64_t first_row, uint64_t row_count,
                 const struct rp_step_sums *sums);
bool rp_sums_find(struct rp_sums *steps, uint64_t first_row, uint64_t row_count,
                  struct rp_step_sums *sums);

#endif
