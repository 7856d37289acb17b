/* SPDX-License-Identifier: Apache-2.0 */
/* sums.h — a table of the sums of the newest steps, by their first rows: for flows that begin
 * inside a step, after a restart or for a ring that catches up (queue.h). All flows of an engine
 * share it. Threads: any; it has a lock. */
#ifndef RP_FLOW_SUMS_H
#define RP_FLOW_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "flow/ticket.h"

struct rp_sums;

struct rp_sums *rp_sums_make(void);       /* NULL: out of memory */
void rp_sums_free(struct rp_sums *steps); /* NULL is fine */
/** Forget the steps that begin at `row` or later, because the plan of their rows changes. */
void rp_sums_forget_from(struct rp_sums *steps, uint64_t row);

/** Keep the sums of a step, if they are known; find them. `steps` NULL: without effect, and false.
 */
void rp_sums_add(struct rp_sums *steps, uint64_t first_row, uint64_t row_count,
                 const struct rp_step_sums *sums);
bool rp_sums_find(struct rp_sums *steps, uint64_t first_row, uint64_t row_count,
                  struct rp_step_sums *sums);

#endif
