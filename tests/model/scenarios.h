/* SPDX-License-Identifier: Apache-2.0 */
/* scenarios.h — all of them, and their common parts. */
#ifndef RP_TESTS_MODEL_SCENARIOS_H
#define RP_TESTS_MODEL_SCENARIOS_H

#include "model.h"

extern const struct model_scenario model_event;
extern const struct model_scenario model_flow_threads, model_flow_reads, model_flow_space,
    model_flow_packer_killed, model_flow_announces, model_flow_joins, model_flow_joins_later;
extern const struct model_scenario model_ring_one_slot, model_ring_leases, model_ring_seats,
    model_ring_failure, model_ring_wakes, model_ring_trainer_killed, model_ring_engine_killed,
    model_ring_ready;

/** Forget the segments of the last run (segment_model.c). */
void model_segments_reset(void);
/** Add the state of the segments to a snapshot (snapshot.h). */
void model_segments_save(void);

#endif
