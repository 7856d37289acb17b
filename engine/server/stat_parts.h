/* SPDX-License-Identifier: Apache-2.0 */
/* stat_parts.h — the parts of the answer of `ringpack stat`. A value that is not known is null. */
#ifndef RP_SERVER_STAT_PARTS_H
#define RP_SERVER_STAT_PARTS_H

#include <jansson.h>

#include "server/engine.h"

void rp_stat_set_count(json_t *object, const char *key, uint64_t value);
void rp_stat_set_real(json_t *object, const char *key, double value);
static inline double rp_stat_seconds(uint64_t ns)
{
    return (double)ns * 1e-9;
}

/** Row and step of the local ranks, and the distance between the first and the last rank. */
void rp_stat_add_progress(json_t *object, const struct rp_engine *engine);
/** The cost of all batches that a rank got; null if one has none. */
void rp_stat_add_rank_cost(json_t *object, const struct rp_engine *engine,
                           const struct rp_ring *ring);
/** Waiting of local ranks for each other, by cost; null if it is not known. */
void rp_stat_add_imbalance(json_t *object, const struct rp_flow *flow);
/** Tokens, steps and bytes read a second, recently and since the engine started. */
void rp_stat_add_speed(json_t *object, const struct rp_engine *engine,
                       const struct rp_flow_counts *counts);
/** The phase of the engine's life, and the error of a failed one. */
void rp_stat_add_phase(json_t *object, const struct rp_engine_life *life);
/** Saves, and their copies in the mirror. */
void rp_stat_add_saves(json_t *object, const struct rp_engine *engine);
void rp_stat_add_memory(json_t *object, const struct rp_delivery *delivery);
/** The ledger of the rows before ledger_row, by source. ledger_row is next_row, or the start row if
 * the state of next_row is not kept. */
void rp_stat_add_ledger(json_t *object, const struct rp_engine *engine);

#endif
