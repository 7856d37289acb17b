/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h — the sums of a step over all rows of all ranks, before its first batch is published
 * (STREAM2.md section 10.4, STREAM.md section 6).
 *
 * A second plan, the *scout*, plans the rows of each step just before dispatch does. So each node
 * has the sums of the rows that other nodes deliver, without a message. It reads no token: labels
 * follow from lengths and spans. The sums of the newest steps are kept for flows that begin inside
 * a step: after a restart, and for a ring that catches up.
 *
 * A sum is known or it is not, and never wrong: if the scout cannot plan a row of the step, because
 * its index is damaged or no state before the step is known, the step has no sums.
 *
 * Threads: dispatch counts; the table of kept sums has a lock. */
#ifndef RP_FLOW_STEPS_H
#define RP_FLOW_STEPS_H

#include <pthread.h>

#include "flow/masks.h"
#include "flow/ticket.h"

#define RP_STEPS_KEPT 1024u

/* Sums of the newest steps, by their first rows. One for all flows of an engine. */
struct rp_steps {
    pthread_mutex_t lock;
    struct rp_kept_step {
        uint64_t first_row, row_count; /* row_count 0: no step */
        struct rp_step_sums sums;
    } kept[RP_STEPS_KEPT];
};

struct rp_steps *rp_steps_make(void);       /* NULL: out of memory */
void rp_steps_free(struct rp_steps *steps); /* NULL is fine */
/** Forget the steps that begin at `row` or later: their rows are going to be planned otherwise. */
void rp_steps_forget_from(struct rp_steps *steps, uint64_t row);

struct rp_step_counter {
    const struct rp_flow_options *options;
    const struct rp_arena *arena;
    struct rp_plan *scout; /* NULL: only kept sums are found */
    struct rp_masks *masks;
    uint64_t base_row;
};

/** Find the sums of the step of a micro-batch that is about to be planned: kept ones, or counted by
 * the scout, from the state of the micro-batch if it is the first of its step, otherwise from the
 * scout's row. sums->is_known 0: they cannot be known. Errors: -RP_E_STOPPED; with drop_last also
 * those of the plan, because it is not known then whether the step exists. */
RP_MUST_CHECK int rp_step_find(const struct rp_step_counter *counter, uint64_t batch,
                               struct rp_step_sums *sums, struct rp_error *error);

#endif
