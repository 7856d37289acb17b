/* SPDX-License-Identifier: Apache-2.0 */
/* stream_kit.h — small streams of version 2, over sources that are lists of lengths. */
#ifndef RP_TESTS_STREAM_KIT_H
#define RP_TESTS_STREAM_KIT_H

#include "plan_corpus.h"

#include "plan/v2/planner.h"

#define STREAM_SOURCES_MAX 3
#define STREAM_STAGES_MAX 2

/* A stream of one source. Documents that nobody visits may be damaged. */
struct stream_lengths {
    uint32_t count;
    const uint64_t *lengths;
    const uint8_t *counts; /* NULL: all are 1 */
};

struct stream {
    struct stream_lengths lengths[STREAM_SOURCES_MAX];
    struct rp_stream_source sources[STREAM_SOURCES_MAX];
    struct rp_stage_spec stages[STREAM_STAGES_MAX];
    struct rp_stream_spec spec;
    struct rp_calendar *calendar;
    struct rp_planner *plan;
};

static inline void stream_lengths_of(const void *context, const uint64_t *documents, uint32_t count,
                                     uint64_t *tokens)
{
    const struct stream_lengths *own = context;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(documents[i] < own->count);
        tokens[i] = own->lengths[documents[i]];
    }
}

static inline int stream_counts_of(const void *context, const uint64_t *documents, uint32_t count,
                                   uint8_t *counts, struct rp_error *error)
{
    const struct stream_lengths *own = context;
    (void)error;
    for (uint32_t i = 0; i < count; i++)
        counts[i] = own->counts[documents[i]];
    return 0;
}

/* A stream of one stage of `lookahead` rows, shuffle none, without sources. */
static inline void stream_begin(struct stream *stream, uint32_t seq_len)
{
    *stream = (struct stream){
        .spec =
            {.fixed = {.seed = 7, .group = 1, .bos_id = RP_NO_TOKEN_ID, .eos_id = RP_NO_TOKEN_ID},
             .sources = stream->sources,
             .stages = stream->stages,
             .stage_count = 1},
    };
    stream->stages[0] = (struct rp_stage_spec){
        .sets = RP_SETS_WEIGHTS | RP_SETS_SEQ_LEN | RP_SETS_ALIGN | RP_SETS_PACKING |
                RP_SETS_WINDOW | RP_SETS_ROW_GAP | RP_SETS_SPREAD | RP_SETS_MAX_DOCS | RP_SETS_DEAL,
        .seq_len = seq_len,
        .align = 1,
        .packing = RP_PACKING_LOOKAHEAD,
        .window = 2,
        .spread = 2,
        .max_docs_per_row = seq_len,
    };
}

static inline struct rp_stream_source *stream_add(struct stream *stream, const char *name,
                                                  const uint64_t *lengths, uint32_t count)
{
    uint32_t number = stream->spec.source_count++;
    stream->lengths[number] = (struct stream_lengths){.count = count, .lengths = lengths};
    stream->sources[number] = (struct rp_stream_source){
        .name = name,
        .documents = count,
        .range_end = RP_NO_ROW,
        .passes = 1,
        .limits = {.max_epochs = 1},
        .view = {.context = &stream->lengths[number], .lengths = stream_lengths_of},
    };
    return &stream->sources[number];
}

/* Also after an error, call stream_close. */
static inline int stream_try_open(struct stream *stream, struct rp_error *error)
{
    struct rp_calendar_position position = {0};
    int code = rp_calendar_open(&stream->calendar, &stream->spec, &position, error);
    if (code == 0)
        code = rp_planner_open(&stream->plan, stream->calendar, error);
    return code;
}

static inline void stream_open(struct stream *stream)
{
    struct rp_error error = {0};
    if (stream_try_open(stream, &error) < 0)
        fail_msg("%s", error.message);
}

static inline void stream_close(struct stream *stream)
{
    rp_planner_close(stream->plan);
    rp_calendar_close(stream->calendar);
    stream->plan = NULL;
    stream->calendar = NULL;
}

/* The next row must have these fragments: (source, document, offset, length), with length 0 after
 * the last; and the stream ends there if the first has none. */
struct stream_fragment {
    uint32_t source;
    uint64_t document, offset;
    uint32_t length;
};
static inline void stream_expect(struct stream *stream, const struct stream_fragment *expected)
{
    struct rp_error error = {0};
    struct rp_stream_row row;
    int planned = rp_planner_next(stream->plan, &row, &error);
    if (planned < 0)
        fail_msg("%s", error.message);
    assert_int_equal(planned, expected[0].length > 0);
    uint32_t count = 0;
    for (; expected[count].length > 0; count++) {
        assert_true(count < row.count);
        const struct rp_fragment *found = &row.fragments[count];
        assert_int_equal(found->source, expected[count].source);
        assert_int_equal(found->document, expected[count].document);
        assert_int_equal(found->offset, expected[count].offset);
        assert_int_equal(found->length, expected[count].length);
    }
    if (planned > 0)
        assert_int_equal(row.count, count);
}

static inline struct rp_snapshot stream_snapshot(const struct stream *stream)
{
    struct rp_snapshot snapshot = {0};
    struct rp_error error = {0};
    if (rp_planner_snapshot(stream->plan, &snapshot, &error) < 0)
        fail_msg("%s", error.message);
    return snapshot;
}

#endif
