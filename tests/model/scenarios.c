/* SPDX-License-Identifier: Apache-2.0 */
/* scenarios.c — in the order of their exploration. */
#include "scenarios.h"

const struct model_scenario *const model_scenarios[] = {
    &model_event,
    &model_ring_ready,
    &model_ring_wakes,
    &model_ring_one_slot,
    &model_ring_leases,
    &model_ring_seats,
    &model_ring_failure,
    &model_ring_trainer_killed,
    &model_ring_engine_killed,
    &model_flow_threads,
    &model_flow_packer_killed,
    &model_flow_reads,
    &model_flow_space,
    &model_flow_announces,
    &model_flow_joins,
    &model_flow_joins_later,
    NULL,
};
