/* SPDX-License-Identifier: Apache-2.0 */
/* calendar_kit.h — two streams of version 2 with few documents, which tests may change before they
 * open a calendar: `three` sources with three stages, a record and skips, and `one` with groups. */
#ifndef RP_TESTS_CALENDAR_KIT_H
#define RP_TESTS_CALENDAR_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/v2/calendar.h"

/* The documents of a source: number d has (7·d + first) mod 50 tokens. */
struct calendar_documents {
    uint64_t first;
    struct rp_source_prints prints; /* sampled grows by the number of documents */
};

static void calendar_lengths(const void *context, const uint64_t *documents, uint32_t count,
                             uint64_t *tokens)
{
    const struct calendar_documents *own = context;
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (documents[i] * 7 + own->first) % 50;
}

static int calendar_prints(const void *context, uint64_t documents, struct rp_source_prints *prints,
                           struct rp_error *error)
{
    const struct calendar_documents *own = context;
    (void)error;
    *prints = own->prints;
    prints->sampled += own->prints.sampled ? documents : 0;
    return 0;
}

struct calendar_stream {
    struct rp_stream_spec spec;
    struct rp_stream_source sources[3];
    struct rp_stage_spec stages[3], record;
    uint32_t weights[4][3]; /* three stages and the record */
    struct rp_limits_change limits;
    struct rp_without without[2];
    struct rp_source_count grown;
};

static inline struct rp_stream_source calendar_source(const char *name, uint64_t documents,
                                                      const struct calendar_documents *context)
{
    return (struct rp_stream_source){
        .name = name,
        .documents = documents,
        .range_end = RP_NO_ROW,
        .passes = 1,
        .limits = {.max_epochs = 1},
        .view = {.context = context, .lengths = calendar_lengths, .prints = calendar_prints}};
}

static inline void calendar_three_sources(struct calendar_stream *stream)
{
    static const struct calendar_documents math = {2, {0x3000, 0, 0}},
                                           web = {0, {0x1000, 0xfeed, 0}},
                                           code = {1, {0x2000, 0, 0}};
    struct rp_stream_source *sources = stream->sources;
    memset(stream, 0, sizeof *stream);
    sources[0] = calendar_source("math \\1", 4, &math);
    sources[0].range_end = 8;
    sources[0].drop_untrained = RP_DROP_FRAGMENTS;
    sources[0].limits = (struct rp_limits){1000, 1, RP_EXHAUSTED_STOP};
    sources[1] = calendar_source("web", 6, &web);
    sources[2] = calendar_source("code", 5, &code);
    sources[2].too_long = RP_TOO_LONG_DROP;
    sources[2].limits.max_epochs = 0;
}

/* The sources are math, web and code in the config; web and code join first. */
static inline void calendar_three(struct calendar_stream *stream)
{
    static const uint64_t out_of_code[] = {1, 3}, out_of_web[] = {0};
    static const struct rp_row_range skips[] = {{10, 13}, {40, 41}};
    calendar_three_sources(stream);
    memcpy(stream->weights, (uint32_t[4][3]){{0, 2, 1}, {2, 1, 1}, {0, 0, 0}, {1, 3, 0}},
           sizeof stream->weights);
    stream->stages[0] = (struct rp_stage_spec){
        .sets = RP_SETS_WEIGHTS | RP_SETS_SEQ_LEN | RP_SETS_ALIGN | RP_SETS_PACKING |
                RP_SETS_WINDOW | RP_SETS_ROW_GAP | RP_SETS_SPREAD | RP_SETS_DEAL,
        .weights = stream->weights[0],
        .seq_len = 64,
        .align = 1,
        .window = 16,
        .row_gap = RP_ROW_GAP_SPLIT,
        .spread = 64};
    stream->limits = (struct rp_limits_change){.source = 1, .sets = 1, .limits = {.max_epochs = 3}};
    stream->without[0] = (struct rp_without){2, 2, out_of_code};
    stream->without[1] = (struct rp_without){1, 1, out_of_web};
    stream->stages[1] = (struct rp_stage_spec){.from = 100,
                                               .sets = RP_SETS_WEIGHTS,
                                               .weights = stream->weights[1],
                                               .ramp = 100,
                                               .limits = &stream->limits,
                                               .limits_count = 1,
                                               .without = stream->without,
                                               .without_count = 2};
    stream->stages[2] = (struct rp_stage_spec){.from = 500,
                                               .sets = RP_SETS_SEQ_LEN | RP_SETS_ALIGN |
                                                       RP_SETS_PACKING | RP_SETS_WINDOW |
                                                       RP_SETS_MAX_DOCS | RP_SETS_DEAL,
                                               .weights = stream->weights[2],
                                               .seq_len = 128,
                                               .align = 8,
                                               .packing = RP_PACKING_BEST_FIT,
                                               .window = 32,
                                               .max_docs_per_row = 9,
                                               .deal = {.window = 8,
                                                        .step = 4,
                                                        .tier = 2,
                                                        .bundle = 1,
                                                        .order = RP_DEAL_MIDDLE,
                                                        .cost.k = 4,
                                                        .cost.w = 16,
                                                        .cost.h = 2,
                                                        .cost.b = 4}};
    stream->record = (struct rp_stage_spec){
        .from = 300, .sets = RP_SETS_WEIGHTS | RP_SETS_DEAL, .weights = stream->weights[3]};
    stream->spec = (struct rp_stream_spec){
        .fixed = {.seed = 7,
                  .shuffle = RP_SHUFFLE_BLOCK,
                  .block_documents = 4,
                  .window_blocks = 2,
                  .group = 1,
                  .long_doc = RP_LONG_DOC_TRUNCATE,
                  .bos_id = 1,
                  .eos_id = RP_NO_TOKEN_ID,
                  .label_across_cuts = true,
                  .tokenizer = {0x0011223344556677, 0x0123456789abcdef}},
        .source_count = 3,
        .sources = stream->sources,
        .stage_count = 3,
        .stages = stream->stages,
        .record_count = 1,
        .records = &stream->record,
        .skip_count = 2,
        .skips = skips};
}

static inline void calendar_one(struct calendar_stream *stream)
{
    static const struct calendar_documents documents = {3, {0, 0, 0}};
    memset(stream, 0, sizeof *stream);
    stream->sources[0] = calendar_source("only", 8, &documents);
    stream->weights[0][0] = 1;
    stream->stages[0] = (struct rp_stage_spec){.sets = RP_SETS_WEIGHTS | RP_SETS_SEQ_LEN |
                                                       RP_SETS_PACKING,
                                               .weights = stream->weights[0],
                                               .seq_len = 4096,
                                               .packing = RP_PACKING_CONCAT};
    stream->spec = (struct rp_stream_spec){.fixed = {.group = 2,
                                                     .long_doc = RP_LONG_DOC_DROP,
                                                     .bos_id = RP_NO_TOKEN_ID,
                                                     .eos_id = RP_NO_TOKEN_ID,
                                                     .block_documents = 4,
                                                     .window_blocks = 1},
                                           .source_count = 1,
                                           .sources = stream->sources,
                                           .stage_count = 1,
                                           .stages = stream->stages};
}

static inline struct rp_calendar *calendar_open(const struct calendar_stream *stream,
                                                const struct rp_calendar_position *position)
{
    struct rp_calendar *calendar;
    struct rp_error error = {0};
    if (rp_calendar_open(&calendar, &stream->spec, position, &error) != 0)
        fail_msg("%s", error.message);
    return calendar;
}

#endif
