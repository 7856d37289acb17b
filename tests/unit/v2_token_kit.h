/* SPDX-License-Identifier: Apache-2.0 */
/* v2_token_kit.h — small streams of version 2 of every kind, and their state tokens. */
#ifndef RP_TESTS_V2_TOKEN_KIT_H
#define RP_TESTS_V2_TOKEN_KIT_H

#include "plan_corpus.h"

#include "plan/v2/planner_token_format.h"

enum { KIT_SOURCES = 3, KIT_STAGES = 3, KIT_TOKEN_BYTES = 1 << 16, KIT_ROWS = 40 };
#define KIT_VARIANTS 72u
static const char *const kit_names[KIT_SOURCES] = {"web", "code", "a source with a longer name"};

/* Lengths of documents are a function of salt and number, so a source can grow. */
struct kit_source {
    uint64_t salt, documents;
};

static inline uint64_t kit_length(const struct kit_source *source, uint64_t document)
{
    uint64_t state = (source->salt << 32) + document + 1;
    draw(&state);
    return draw_below(&state, 8) ? 1 + draw_below(&state, 12) : draw_below(&state, 60);
}

static inline void kit_lengths(const void *context, const uint64_t *documents, uint32_t count,
                               uint64_t *tokens)
{
    const struct kit_source *source = context;
    for (uint32_t i = 0; i < count; i++) {
        if (documents[i] >= source->documents)
            fail_msg("document %" PRIu64 " of %" PRIu64, documents[i], source->documents);
        tokens[i] = kit_length(source, documents[i]);
    }
}

static inline int kit_prints(const void *context, uint64_t documents,
                             struct rp_source_prints *prints, struct rp_error *error)
{
    const struct kit_source *source = context;
    if (documents > source->documents)
        return rp_fail(error, -RP_E_CHANGED, NULL, "no prefix has %" PRIu64 " documents",
                       documents);
    *prints = (struct rp_source_prints){source->salt * 1000 + documents, 0, 0};
    return 0;
}

struct kit_stream {
    struct rp_stream_spec spec;
    struct kit_source contexts[KIT_SOURCES];
    struct rp_stream_source sources[KIT_SOURCES];
    struct rp_stage_spec stages[KIT_STAGES];
    struct rp_row_range skips[2];
};

static inline struct rp_stage_spec kit_first_stage(uint32_t variant)
{
    static const uint32_t weights[KIT_SOURCES] = {3, 1, 0};
    bool concat = variant % 3 == RP_PACKING_CONCAT;
    struct rp_stage_spec stage = {
        .sets = RP_SETS_WEIGHTS | RP_SETS_SEQ_LEN | RP_SETS_ALIGN | RP_SETS_PACKING |
                RP_SETS_WINDOW | RP_SETS_ROW_GAP | RP_SETS_SPREAD | RP_SETS_DEAL,
        .weights = weights,
        .seq_len = 24,
        .align = variant / 18 % 2 ? 4 : 1,
        .packing = (enum rp_packing)(variant % 3),
        .window = concat ? 0 : 5,
        .spread = concat ? 0 : 3,
        .row_gap = concat ? RP_ROW_GAP_PAD : (enum rp_row_gap)(variant / 3 % 2),
    };
    if (variant / 18 % 2)
        stage.deal = (struct rp_deal){.window = 4,
                                      .step = 2,
                                      .tier = 2,
                                      .bundle = 1,
                                      .order = RP_DEAL_MIDDLE,
                                      .cost.k = 8,
                                      .cost.b = 1};
    return stage;
}

/* Every packing, fill and shuffle, with deal and without, with groups and without. A third source
 * joins at row 9, in a ramp; row 18 changes the shape. */
static inline void kit_make(struct kit_stream *kit, uint32_t variant)
{
    static const uint32_t later[KIT_SOURCES] = {1, 2, 1};
    static const uint64_t out[] = {0, 3, 5};
    static const struct rp_without without = {0, RP_ARRAY_COUNT(out), out};
    uint32_t group = variant / 36 % 2 ? 2 : 1;
    memset(kit, 0, sizeof *kit);
    for (uint32_t j = 0; j < KIT_SOURCES; j++) {
        kit->contexts[j] = (struct kit_source){j + 1, 30 + 10 * j};
        kit->sources[j] = (struct rp_stream_source){
            .name = kit_names[j],
            .documents = kit->contexts[j].documents,
            .range_end = RP_NO_ROW,
            .too_long = group > 1 ? RP_TOO_LONG_DROP
                        : j == 1  ? RP_TOO_LONG_TRUNCATE
                                  : 0,
            .passes = 1,
            .limits = {.max_epochs = 2},
            .view = {.context = &kit->contexts[j], .lengths = kit_lengths, .prints = kit_prints},
        };
    }
    kit->stages[0] = kit_first_stage(variant);
    kit->stages[1] = (struct rp_stage_spec){.from = 9,
                                            .sets = RP_SETS_WEIGHTS,
                                            .weights = later,
                                            .ramp = 6,
                                            .without = &without,
                                            .without_count = 1};
    kit->stages[2] = (struct rp_stage_spec){.from = 18,
                                            .sets = RP_SETS_SEQ_LEN | RP_SETS_PACKING |
                                                    RP_SETS_WINDOW | RP_SETS_ROW_GAP |
                                                    RP_SETS_SPREAD,
                                            .seq_len = 32,
                                            .packing = RP_PACKING_BEST_FIT,
                                            .window = 4,
                                            .spread = 2,
                                            .row_gap = RP_ROW_GAP_SPLIT};
    kit->skips[0] = (struct rp_row_range){3, 5};
    kit->skips[1] = (struct rp_row_range){20, 21};
    kit->spec = (struct rp_stream_spec){
        .fixed = {.seed = variant + 7,
                  .shuffle = (enum rp_shuffle)(variant / 6 % 3),
                  .block_documents = 4,
                  .window_blocks = 2,
                  .group = group,
                  .bos_id = 1,
                  .eos_id = RP_NO_TOKEN_ID,
                  .tokenizer = {5, 6}},
        .source_count = KIT_SOURCES,
        .sources = kit->sources,
        .stage_count = KIT_STAGES,
        .stages = kit->stages,
        .skip_count = 2,
        .skips = kit->skips,
    };
}

/* ---- runs ------------------------------------------------------------------------------------ */

struct kit_run {
    struct rp_calendar *calendar;
    struct rp_planner *plan;
};

static inline struct kit_run kit_open(const struct rp_stream_spec *spec)
{
    struct kit_run run = {NULL, NULL};
    struct rp_error error = {0};
    const struct rp_calendar_position position = {0};
    if (rp_calendar_open(&run.calendar, spec, &position, &error) != 0 ||
        rp_planner_open(&run.plan, run.calendar, &error) != 0)
        fail_msg("open: %s", error.message);
    return run;
}

static inline void kit_close(struct kit_run *run)
{
    rp_planner_close(run->plan);
    rp_calendar_close(run->calendar);
    *run = (struct kit_run){NULL, NULL};
}

static inline size_t kit_save(struct kit_run *run, uint8_t *token)
{
    struct rp_error error = {0};
    size_t bytes = 0, most = rp_planner_token_bytes_max(run->calendar);
    assert_true(most <= KIT_TOKEN_BYTES);
    if (rp_planner_token_write(run->plan, token, &bytes, &error) != 0)
        fail_msg("rp_planner_token_write: %s", error.message);
    assert_true(bytes <= most);
    return bytes;
}

static inline bool kit_next(struct kit_run *run, struct rp_stream_row *row)
{
    struct rp_error error = {0};
    int planned = rp_planner_next(run->plan, row, &error);
    if (planned < 0)
        fail_msg("rp_planner_next: %s", error.message);
    return planned > 0;
}

/* The token of row `row`. */
static inline size_t kit_token_at(const struct rp_stream_spec *spec, uint64_t row, uint8_t *token)
{
    struct kit_run run = kit_open(spec);
    struct rp_stream_row planned;
    while (rp_planner_row(run.plan) < row)
        assert_true(kit_next(&run, &planned));
    size_t bytes = kit_save(&run, token);
    kit_close(&run);
    return bytes;
}

/* The contract of a calendar, on the heap. */
static inline char *kit_contract(const struct kit_run *run)
{
    struct rp_record_writer writer = {0};
    struct rp_error error = {0};
    assert_int_equal(rp_calendar_contract(run->calendar, &writer, &error), 0);
    char *text = calloc(writer.bytes + 1, 1);
    memcpy(text, writer.text, writer.bytes);
    free(writer.text);
    return text;
}

static inline int kit_try_with(struct kit_run *run, const struct rp_stream_spec *spec,
                               const uint8_t *token, size_t bytes,
                               const struct rp_stream_resume *with, struct rp_error *error)
{
    uint8_t *exact = malloc(bytes + 1); /* so that the sanitizer sees a read past the end */
    memcpy(exact, token, bytes);
    int code = rp_planner_token_resume(&run->calendar, &run->plan, spec, exact, bytes, with, error);
    free(exact);
    return code;
}

static inline struct kit_run kit_resume_with(const struct rp_stream_spec *spec,
                                             const uint8_t *token, size_t bytes,
                                             const struct rp_stream_resume *with)
{
    struct kit_run run;
    struct rp_error error = {0};
    if (kit_try_with(&run, spec, token, bytes, with, &error) != 0)
        fail_msg("rp_planner_token_resume: %s", error.message);
    return run;
}

static inline struct kit_run kit_resume(const struct rp_stream_spec *spec, const uint8_t *token,
                                        size_t bytes)
{
    const struct rp_stream_resume with = {.grow = true};
    return kit_resume_with(spec, token, bytes, &with);
}

/* The start must be refused with all of the words, and a hint. */
static inline void kit_refuse_with(const struct rp_stream_spec *spec, const uint8_t *token,
                                   size_t bytes, const struct rp_stream_resume *with, int code,
                                   const char *const words[3])
{
    struct kit_run run;
    struct rp_error error = {0};
    int found = kit_try_with(&run, spec, token, bytes, with, &error);
    if (found != code || run.plan || run.calendar || error.hint[0] == 0)
        fail_msg("expected %d, found %d: %s (%s)", code, found, error.message, error.hint);
    for (unsigned i = 0; i < 3 && words[i]; i++)
        if (!strstr(error.message, words[i]))
            fail_msg("`%s` does not have `%s`", error.message, words[i]);
}

#define KIT_REFUSE(spec, token, bytes, ...)                                                        \
    do {                                                                                           \
        const struct rp_stream_resume kit_with = {.grow = true};                                   \
        const char *const kit_words[3] = {__VA_ARGS__};                                            \
        kit_refuse_with(spec, token, bytes, &kit_with, -RP_E_MISMATCH, kit_words);                 \
    } while (0)

static inline void kit_rehash(uint8_t *token, size_t bytes)
{
    rp_store_u32(token + offsetof(struct rp_token2_header, bytes), (uint32_t)bytes);
    rp_hash128_store(token + bytes - sizeof(struct rp_hash128),
                     rp_hash128(token, bytes - sizeof(struct rp_hash128)));
}

#endif
