/* SPDX-License-Identifier: Apache-2.0 */
/* v2_kit.h — a small stream of version 2, opened as a plan. */
#ifndef RP_TESTS_V2_KIT_H
#define RP_TESTS_V2_KIT_H

#include "plan_corpus.h"

#include "base/bits.h"
#include "plan/v2/planner_token.h"

enum { SOURCES = 2, SEQ_LEN = 64, CHANGE_ROW = 40, TOKEN_BYTES = 1 << 16 };

/* ---- a corpus -------------------------------------------------------------------------------- */

struct lengths {
    uint32_t salt;
};

static inline void view_lengths(const void *context, const uint64_t *documents, uint32_t count,
                                uint64_t *tokens)
{
    const struct lengths *lengths = context;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t x = (documents[i] + 1) * (lengths->salt + UINT64_C(0x9E3779B97F4A7C15));
        tokens[i] = 1 + (x >> 40) % ((x >> 33) % 4 ? 30 : 150);
    }
}

static inline int view_prints(const void *context, uint64_t documents,
                              struct rp_source_prints *prints, struct rp_error *error)
{
    const struct lengths *lengths = context;
    (void)error;
    *prints = (struct rp_source_prints){.sampled = documents * 1000 + lengths->salt};
    return 0;
}

static inline int view_counts(const void *context, const uint64_t *documents, uint32_t count,
                              uint8_t *counts, struct rp_error *error)
{
    (void)context;
    (void)error;
    for (uint32_t i = 0; i < count; i++)
        counts[i] = documents[i] % 3 == 0 ? 2 : 1;
    return 0;
}

static const struct lengths salts[SOURCES] = {{7}, {11}};

struct stream {
    struct rp_stream_source sources[SOURCES];
    struct rp_stage_spec stages[3];
    uint32_t weights[2][SOURCES];
    struct rp_row_range skips[1];
    struct rp_stream_spec spec;
};

/* The second source of the config joins first, so it has number 0. */
static inline void make(struct stream *stream, enum rp_shuffle shuffle, uint64_t documents)
{
    *stream = (struct stream){.weights = {{0, 3}, {1, 2}}, .skips = {{50, 53}}};
    for (uint32_t s = 0; s < SOURCES; s++)
        stream->sources[s] = (struct rp_stream_source){
            .name = s ? "web" : "code",
            .documents = documents,
            .range_end = RP_NO_ROW,
            .passes = 1,
            .limits = {.max_epochs = 3},
            .view = {.context = &salts[s], .lengths = view_lengths, .prints = view_prints}};
    stream->stages[0] = (struct rp_stage_spec){
        .sets = RP_SETS_WEIGHTS | RP_SETS_SEQ_LEN | RP_SETS_ALIGN | RP_SETS_PACKING |
                RP_SETS_WINDOW | RP_SETS_ROW_GAP | RP_SETS_SPREAD | RP_SETS_MAX_DOCS | RP_SETS_DEAL,
        .weights = stream->weights[0],
        .seq_len = SEQ_LEN,
        .align = 1,
        .window = 8,
        .spread = 4,
        .max_docs_per_row = SEQ_LEN,
        .packing = RP_PACKING_LOOKAHEAD,
        .row_gap = RP_ROW_GAP_SPLIT};
    stream->stages[1] = (struct rp_stage_spec){
        .from = CHANGE_ROW, .sets = RP_SETS_WEIGHTS, .weights = stream->weights[1]};
    stream->spec = (struct rp_stream_spec){
        .fixed = {.seed = 5,
                  .shuffle = shuffle,
                  .block_documents = shuffle == RP_SHUFFLE_BLOCK ? 8 : 0,
                  .window_blocks = shuffle == RP_SHUFFLE_BLOCK ? 3 : 0,
                  .group = 1,
                  .bos_id = RP_NO_TOKEN_ID,
                  .eos_id = RP_NO_TOKEN_ID},
        .source_count = SOURCES,
        .sources = stream->sources,
        .stage_count = 2,
        .stages = stream->stages,
        .skip_count = 1,
        .skips = stream->skips};
}

static inline void deal(struct stream *stream)
{
    stream->stages[0].deal = (struct rp_deal){
        .window = 16, .step = 8, .tier = 4, .bundle = 2, .cost.k = 64, .cost.b = 1};
}

static inline struct rp_plan *open_stream(const struct stream *stream)
{
    struct rp_plan *plan;
    struct rp_error error = {0};
    if (rp_plan_open_stream(&plan, &stream->spec, &error) < 0)
        fail_msg("%s; %s", error.message, error.hint);
    assert_int_equal(rp_plan_version(plan), 2);
    return plan;
}

static inline void check(int code, const struct rp_error *error)
{
    if (code < 0)
        fail_msg("%s; %s", error->message, error->hint);
}

static inline size_t save(const struct rp_plan *plan, uint8_t *token)
{
    assert_true(rp_plan_state_bytes_max(plan) <= TOKEN_BYTES);
    size_t bytes = rp_plan_save(plan, token);
    assert_true(bytes > 0 && bytes <= rp_plan_state_bytes_max(plan));
    return bytes;
}

static inline struct rp_record contract_of(const struct rp_plan *plan,
                                           struct rp_record_writer *writer)
{
    *writer = (struct rp_record_writer){0};
    rp_plan_contract(plan, writer);
    assert_false(writer->out_of_memory);
    struct rp_record record;
    struct rp_error error = {0};
    check(rp_record_open(&record, writer->text, writer->bytes, &error), &error);
    return record;
}

#endif
