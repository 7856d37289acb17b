/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch.h — first step of the flow: the plan becomes tickets. One thread; the only one that
 * calls the plan. */
#ifndef RP_FLOW_DISPATCH_H
#define RP_FLOW_DISPATCH_H

#include <pthread.h>

#include "flow/flow.h"
#include "flow/revalidation.h"
#include "flow/reads.h"
#include "flow/queue.h"

struct rp_dispatch {
    const struct rp_flow_options *options;
    struct rp_arena *arena;
    struct rp_reads reads;
    struct rp_plan *plan;
    struct rp_queue queue; /* planned rows of the present step */
    const struct rp_numbering *numbering;
    uint64_t begin_row;          /* row of the first micro-batch of this start */
    uint64_t batch;              /* the micro-batch that is planned now, or next */
    const uint64_t *start_batch; /* [ring]: micro-batches below it are not made for the ring */

    bool skips_step;          /* all rows of the step of `batch` are skipped */
    struct rp_step_sums step; /* the step that has `batch` */
    struct rp_ticket *ticket; /* under construction, or NULL */
    uint64_t next_ticket;
    uint64_t handed_on;      /* tickets below it are PLANNED: readers and packers have them */
    uint64_t hand_on_at_ns;  /* closed tickets are handed on from this time on */
    uint64_t revalidated_ns; /* when the token files without hashes were last checked */
    struct rp_revalidation *revalidation;
    int wake_fd; /* eventfd of the engine: written when a check is answered, or a ring joined */

    pthread_t thread;
    bool started;
};

RP_MUST_CHECK int rp_dispatch_start(struct rp_dispatch *dispatch, struct rp_error *error);
void rp_dispatch_join(struct rp_dispatch *dispatch);

#endif
