/* SPDX-License-Identifier: Apache-2.0 */
/* forecast.h — the distance of a block of documents: the length of the stream up to its next use.
 *
 * With `block` shuffle, or none, the place of a block in an epoch is the inverse of a permutation,
 * so it is computed in O(1) for this epoch and the next ones. Its distance is the number of blocks
 * from the lane's present position, times the tokens that the stream delivers per block of the
 * lane. Distances are in tokens of the stream, so they can be compared between sources: a source
 * with a tenth of the weight gets to its next block ten times later.
 *
 * A forecast is a hint: the plan does not depend on it. If documents are shuffled singly, a block
 * is used everywhere in an epoch, and its distance is the distance of the epoch's end.
 *
 * Threads: one that sets the positions of lanes (rp_forecast_set), and one that queries. */
#ifndef RP_PLAN_FORECAST_H
#define RP_PLAN_FORECAST_H

#include "plan/blocks.h"

#define RP_FORECAST_NEVER UINT64_MAX

struct rp_forecast;

/** `tokens`[source]: in all documents of a source. The plan may be closed or moved afterwards;
 * lanes read where it is now. */
RP_MUST_CHECK int rp_forecast_open(struct rp_forecast **forecast_out, const struct rp_plan *plan,
                                   const uint64_t *tokens, struct rp_error *error);
void rp_forecast_close(struct rp_forecast *forecast); /* NULL is fine */

/** Blocks below this position of a lane and a source have been read. */
void rp_forecast_set(struct rp_forecast *forecast, uint32_t lane, uint32_t source,
                     uint64_t position);
/** The present position of each lane in each source of a plan. */
void rp_forecast_set_all(struct rp_forecast *forecast, const struct rp_plan *plan);
/** Rows of this lane are not delivered here, or are. At first, all are. */
void rp_forecast_set_local(struct rp_forecast *forecast, uint32_t lane, bool is_local);

/** The position that was set, and whether the lane is local. */
uint64_t rp_forecast_position(const struct rp_forecast *forecast, uint32_t lane, uint32_t source);
bool rp_forecast_is_local(const struct rp_forecast *forecast, uint32_t lane);
/** The block at a position of a lane and a source, as rp_plan_block_at has it. By any thread. */
bool rp_forecast_block_at(const struct rp_forecast *forecast, uint32_t lane, uint32_t source,
                          uint64_t position, struct rp_plan_block *block);
/** The distance, in tokens, of a block that is `blocks` blocks ahead of a lane's position. Threads:
 * any. */
uint64_t rp_forecast_tokens(const struct rp_forecast *forecast, uint32_t source, uint64_t blocks);

/** Documents in a block. */
uint64_t rp_forecast_documents(const struct rp_forecast *forecast);
/** The distance of a block in tokens; NEVER after the last epoch, or if no lane of this node has it
 * in the next epochs. */
uint64_t rp_forecast_distance(struct rp_forecast *forecast, uint32_t source, uint64_t block);
/** The first lane's epoch of a source, and the length of an epoch of it in tokens of the stream. */
uint64_t rp_forecast_epoch(const struct rp_forecast *forecast, uint32_t source);
uint64_t rp_forecast_epoch_tokens(const struct rp_forecast *forecast, uint32_t source);

#endif
