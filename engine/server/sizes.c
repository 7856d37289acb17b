/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.c — the sizes of an engine that are known before it runs: rings, flow, memory, descriptors.
 *
 * The engine touches its rings in full, the prefetch ring soon after the first batch
 * (flow/prefault.h), so their sizes are resident sizes. Mapped files (indexes, and token files that
 * the page cache holds) are not counted: their pages belong to the page cache, and the kernel
 * reclaims them under pressure. Nor is the checkpoint that the run began at, if it has contents: it
 * stays in memory for as long as the engine runs, with its contents, about as large as the rings'
 * batches at that save.
 *
 * A catch-up flow (flow/catch_up.h) exists only while a rank catches up, so its memory is counted
 * apart. Several ranks may catch up at a time, each with a flow. If the disk is slow, a flow that
 * has caught up keeps its memory until its last read is done. */
#include "server/sizes.h"

#include "cache/cache.h"
#include "corpus/sides.h"
#include "flow/catch_up.h"
#include "flow/descriptors.h"
#include "flow/prefill.h"
#include "stream.h"

/* Heap and stacks of a process, without the state tokens. */
#define PROCESS_BYTES (1u << 20)
/* State tokens, or structures as large, on the heap: those kept for the start and for trainers that
 * attach, and the FIFOs of the plans. */
#define TOKENS_KEPT 4u
/* The same for a catch-up flow: the FIFOs of its two plans, and their first state. */
#define CATCH_UP_TOKENS 3u

uint32_t rp_engine_sections(const struct rp_config *config, const struct rp_plan *plan)
{
    bool has_plans = rp_plan_row_form(plan).has_row_plans;
    return config->sections | (has_plans ? 1u << RP_SECTION_ROW_PLANS : 0);
}

/* Labels that are aligned with their tokens have no place for a token of another row; a config that
 * wants both is refused. */
static uint32_t label_mode_of(const struct rp_config *config, const struct rp_plan *plan)
{
    bool crosses = rp_plan_row_form(plan).label_across_cuts;
    RP_ASSERT(!crosses || config->label_mode == RP_LABELS_SHIFTED);
    return crosses ? RP_LABELS_ACROSS_CUTS : config->label_mode;
}

struct rp_geometry rp_engine_geometry(const struct rp_config *config,
                                      const struct rp_corpus *corpus, const struct rp_plan *plan)
{
    const struct rp_batch_stage *first = &config->batches.stages[0];
    struct rp_geometry geometry = {
        .rows = config->batches.rows_max,
        .seq_len = rp_plan_run_seq_len(plan),
        .max_docs_per_row = rp_plan_max_docs_per_row(plan),
        .world = config->dp_world_size,
        .micro_batches = (uint32_t)(first->step_rows / first->batch_rows),
        .slots = config->prefetch_factor,
        .label_mode = label_mode_of(config, plan),
        .pad_id = config->pad_id,
        .state_bytes = rp_plan_state_bytes_max(plan)};
    rp_sides_describe(rp_corpus_sides(corpus), geometry.sides);
    return geometry;
}

struct rp_flow_options rp_engine_flow_options(const struct rp_config *config,
                                              const struct rp_corpus *corpus,
                                              const struct rp_plan *plan)
{
    return (struct rp_flow_options){.corpus = corpus,
                                    .readers = config->readers,
                                    .packers = config->packers,
                                    .packer_processes = config->packer_processes,
                                    .verify_blocks = config->verify_blocks != RP_SWITCH_OFF,
                                    .token_limit = rp_stream_token_limit(config),
                                    .pad_id = config->pad_id,
                                    .dp_world_size = config->dp_world_size,
                                    .rank_first = config->rank_first,
                                    .rank_count = config->rank_count,
                                    .batch_size = config->batches.rows_max,
                                    .step_batches = config->batches.step_batches_max,
                                    .drop_last = config->drop_last,
                                    .prefetch_bytes = config->prefetch_bytes,
                                    .seq_len = rp_plan_run_seq_len(plan),
                                    .state_bytes = rp_plan_state_bytes_max(plan),
                                    .batch_slots = config->prefetch_factor,
                                    .other_descriptors = rp_engine_descriptors(config),
                                    .cost = config->cost.is_given ? &config->cost.cost : NULL,
                                    .truncates = config->long_doc == RP_LONG_DOC_TRUNCATE,
                                    .form = rp_plan_row_form(plan)};
}

struct rp_engine_memory rp_engine_memory(const struct rp_config *config,
                                         const struct rp_corpus *corpus, const struct rp_plan *plan)
{
    uint64_t state_bytes = rp_plan_state_bytes_max(plan);
    struct rp_geometry geometry = rp_engine_geometry(config, corpus, plan);
    struct rp_flow_options flow = rp_engine_flow_options(config, corpus, plan);
    flow.prefetch_bytes = rp_flow_prefetch_bytes(&flow, plan, rp_plan_row(plan));
    uint64_t ring = rp_geometry_layout(&geometry, rp_engine_sections(config, plan),
                                       config->token_dtype);
    uint64_t catch_up = rp_flow_catch_up_memory_bytes(&flow);
    return (struct rp_engine_memory){
        .batch_rings = ring * config->rank_count,
        .flow_reading = rp_flow_memory_bytes(&flow, false),
        .flow_mapped = rp_flow_memory_bytes(&flow, true),
        .catch_up = catch_up ? catch_up + CATCH_UP_TOKENS * state_bytes : 0,
        .process = PROCESS_BYTES + TOKENS_KEPT * state_bytes +
                   (config->cache_bytes ? RP_CACHE_QUEUE_BYTES + RP_PREFILL_BYTES : 0)};
}

#define DESCRIPTORS_OF_AN_ENGINE 32u /* program, loop, listener, a checkpoint */
#define DESCRIPTORS_OF_A_SEAT 3u /* its control page, the process that reads it, its connection */
#define DESCRIPTORS_OF_A_CATCH_UP (RP_DESCRIPTORS_MIN + 2) /* its files, its reader */

uint32_t rp_engine_descriptors(const struct rp_config *config)
{
    uint64_t seats = (uint64_t)config->rank_count * config->consumers_per_rank;
    uint32_t packers = config->packer_processes ? config->packers : 1; /* threads share theirs */
    uint64_t all = DESCRIPTORS_OF_AN_ENGINE + config->rank_count + DESCRIPTORS_OF_A_SEAT * seats +
                   2 * (uint64_t)config->readers + 2 * (uint64_t)packers;
    if (config->cache_bytes)
        all += RP_PREFILL_DESCRIPTORS;
    all += DESCRIPTORS_OF_A_CATCH_UP * (uint64_t)rp_flow_catch_ups_max(config->rank_count);
    return (uint32_t)rp_min_u64(all, UINT32_MAX);
}
