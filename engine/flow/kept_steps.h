/* SPDX-License-Identifier: Apache-2.0 */
/* kept_steps.h — the sums of the newest steps, by their first rows: for flows that begin inside a
 * step, after a restart or for a ring that catches up (step_rows.h). One table for all flows of an
 * engine. Threads: any; it has a lock. */
#ifndef RP_FLOW_KEPT_STEPS_H
#define RP_FLOW_KEPT_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "flow/ticket.h"

struct rp_kept_steps;

struct rp_kept_steps *rp_kept_steps_make(void);       /* NULL: out of memory */
void rp_kept_steps_free(struct rp_kept_steps *steps); /* NULL is fine */
/** Forget the steps that begin at `row` or later: their rows are going to be planned otherwise. */
void rp_kept_steps_forget_from(struct rp_kept_steps *steps, uint64_t row);

/** Keep sums that are known, and find them. `steps` may be NULL: nothing is kept. */
void rp_kept_steps_add(struct rp_kept_steps *steps, uint64_t first_row, uint64_t row_count,
                       const struct rp_step_sums *sums);
bool rp_kept_steps_find(struct rp_kept_steps *steps, uint64_t first_row, uint64_t row_count,
                        struct rp_step_sums *sums);

#endif
