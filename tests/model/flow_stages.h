/* SPDX-License-Identifier: Apache-2.0 */
/* flow_stages.h — the planning and the reading stage of flow/ without a plan and without files:
 * their own steps on the prefetch ring, with tickets of one row. */
#ifndef RP_TESTS_MODEL_FLOW_STAGES_H
#define RP_TESTS_MODEL_FLOW_STAGES_H

#include "flow/revalidation.h"
#include "flow/ticket.h"

struct rp_plan;
struct rp_error;
/** In the place of rp_plan_try_save and rp_plan_row: the number of planned batches. */
int stage_save(const struct rp_plan *plan, void *token, size_t *bytes, struct rp_error *error);
uint64_t stage_row(const struct rp_plan *plan);

extern uint64_t stage_planned; /* batches; the planner's own */

#define STAGE_TOKENS 2u /* a row: batch k holds 100 + k, 200 + k */

/** Plan `batches` tickets of one row, each a micro-batch; with reads, or with their data in place;
 * as the first ticket an empty one, which ends no micro-batch. Then answer requests for a check of
 * files, of which there are none, until the flow stops. */
void stage_plan(struct rp_arena *arena, struct rp_revalidation *revalidation, int wake_fd,
                uint64_t batches, bool with_reads, bool with_empty);
/** Plan as many, with their data in place; the stream ends only when the bell has rung. Then
 * answer as well. */
void stage_plan_awaited(struct rp_arena *arena, struct rp_revalidation *revalidation, int wake_fd,
                        uint64_t batches, unsigned bell);
/** Plan `batches` micro-batches of one row for each of two rings, for ring 1 from batch `first` on,
 * which is planned as if ring 1 were not left out yet (flow/catch_up.h). Then answer as well. */
void stage_plan_joining(struct rp_arena *arena, struct rp_revalidation *revalidation, int wake_fd,
                        uint64_t first, uint64_t batches);
/** Read what is planned until the flow stops. */
void stage_read(struct rp_arena *arena);

#endif
