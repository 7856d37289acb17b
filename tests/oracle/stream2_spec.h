/* SPDX-License-Identifier: Apache-2.0 */
/* stream2_spec.h — a stream of version 2 in JSON as the engine's spec, for tests that compare the
 * engine with the oracle (fuzz_stream2.py writes the JSON).
 *
 * Expressions are evaluated by the writer, which gives the count of each document. All memory of a
 * spec is freed by rp_spec2_free. Files of tests are trusted: a fault in one ends the program. */
#ifndef RP_TESTS_ORACLE_STREAM2_SPEC_H
#define RP_TESTS_ORACLE_STREAM2_SPEC_H

#include "plan/v2/planner_token.h"
#include "plan_spec.h"

struct rp_spec2_memory {
    struct rp_spec2_memory *next;
};

struct rp_spec2 {
    struct rp_stream_spec spec;
    struct rp_spec2_memory *memory;
};

/* Context of the views of a source. */
struct rp_spec2_source {
    uint64_t documents;
    const uint64_t *lengths;
    const uint8_t *counts;                 /* NULL: all 1 */
    const uint32_t *span_places;           /* begin, end, begin, …, of all documents */
    const uint64_t *span_from;             /* by document, the first of its places; documents + 1 */
    const struct rp_source_prints *prints; /* at 0, 1, … documents; the last one from there on */
    uint64_t prints_count;
    uint32_t bos, eos; /* 0, 1: inserted */
    bool drops_documents, across_cuts;
};

static inline void *rp_spec2_take(struct rp_spec2 *spec, size_t count, size_t size)
{
    struct rp_spec2_memory *memory = calloc(1, 16 + count * size);
    memory->next = spec->memory;
    spec->memory = memory;
    return (char *)memory + 16;
}

static inline void rp_spec2_free(struct rp_spec2 *spec)
{
    while (spec->memory != NULL) {
        struct rp_spec2_memory *next = spec->memory->next;
        free(spec->memory);
        spec->memory = next;
    }
}

static inline uint64_t rp_spec2_number(const json_t *value)
{
    if (json_is_string(value)) /* JSON integers of jansson are signed */
        return strtoull(json_string_value(value), NULL, 0);
    return (uint64_t)json_integer_value(value);
}

static inline uint64_t rp_spec2_at(const json_t *array, size_t i)
{
    return rp_spec2_number(json_array_get(array, i));
}

/* A number that may be missing. */
static inline uint64_t rp_spec2_get(const json_t *object, const char *key, uint64_t missing)
{
    const json_t *value = json_object_get(object, key);
    return value == NULL ? missing : rp_spec2_number(value);
}

static inline uint64_t *rp_spec2_numbers(struct rp_spec2 *spec, const json_t *array)
{
    uint64_t *numbers = rp_spec2_take(spec, json_array_size(array), sizeof *numbers);
    for (size_t i = 0; i < json_array_size(array); i++)
        numbers[i] = rp_spec2_at(array, i);
    return numbers;
}

/* ---- views of a source ----------------------------------------------------------------------- */

static inline void rp_spec2_lengths(const void *context, const uint64_t *documents, uint32_t count,
                                    uint64_t *tokens)
{
    const struct rp_spec2_source *source = context;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t d = documents[i];
        if (d >= source->documents)
            rp_spec_fail("a document beyond the source", "lengths");
        tokens[i] = source->lengths[d];
        if (source->drops_documents && source->span_from[d] == source->span_from[d + 1])
            tokens[i] = 0;
    }
}

static inline int rp_spec2_counts(const void *context, const uint64_t *documents, uint32_t count,
                                  uint8_t *counts, struct rp_error *error)
{
    (void)error;
    const struct rp_spec2_source *source = context;
    for (uint32_t i = 0; i < count; i++) {
        if (documents[i] >= source->documents)
            rp_spec_fail("a document beyond the source", "counts");
        counts[i] = source->counts[documents[i]];
    }
    return 0;
}

/* Section 11: token `t` of a document of a source with a mask, inserted tokens counted. */
static inline bool rp_spec2_trained(const struct rp_spec2_source *source, uint64_t d, uint64_t t)
{
    uint64_t own = source->lengths[d];
    if (t < source->bos || t >= own + source->bos + source->eos)
        return false;
    t -= source->bos;
    if (t == own) /* the EOS, as the token before it */
        t--;
    for (uint64_t i = source->span_from[d]; i < source->span_from[d + 1]; i += 2) {
        if (source->span_places[i] <= t && t < source->span_places[i + 1])
            return true;
    }
    return false;
}

static inline int rp_spec2_labelled(const void *context, uint64_t document, uint32_t offset,
                                    uint32_t length, struct rp_error *error)
{
    (void)error;
    const struct rp_spec2_source *source = context;
    for (uint64_t t = 1; t < length; t++) {
        if (rp_spec2_trained(source, document, offset + t))
            return 1;
    }
    return source->across_cuts && rp_spec2_trained(source, document, (uint64_t)offset + length);
}

static inline int rp_spec2_prints(const void *context, uint64_t documents,
                                  struct rp_source_prints *prints, struct rp_error *error)
{
    const struct rp_spec2_source *source = context;
    if (documents > source->documents)
        return rp_fail(error, -RP_E_CHANGED, NULL, "no prefix has %" PRIu64 " documents",
                       documents);
    *prints = source->prints[rp_min_u64(documents, source->prints_count - 1)];
    return 0;
}

/* ---- sources --------------------------------------------------------------------------------- */

static inline void rp_spec2_read_spans(struct rp_spec2 *spec, struct rp_spec2_source *source,
                                       const json_t *spans)
{
    uint64_t *from = rp_spec2_take(spec, source->documents + 1, sizeof *from);
    for (uint64_t d = 0; d < source->documents; d++)
        from[d + 1] = from[d] + 2 * json_array_size(json_array_get(spans, d));
    uint32_t *places = rp_spec2_take(spec, from[source->documents], sizeof *places);
    for (uint64_t d = 0; d < source->documents; d++) {
        const json_t *own = json_array_get(spans, d);
        for (uint64_t i = 0; i < from[d + 1] - from[d]; i++)
            places[from[d] + i] = (uint32_t)rp_spec2_at(json_array_get(own, i / 2), i % 2);
    }
    source->span_from = from;
    source->span_places = places;
}

static inline struct rp_limits rp_spec2_limits(const json_t *from)
{
    return (struct rp_limits){.max_tokens = rp_spec2_get(from, "max_tokens", 0),
                              .max_epochs = (uint32_t)rp_spec2_get(from, "max_epochs", 0),
                              .on_exhausted = (unsigned)rp_spec2_get(from, "on_exhausted", 0)};
}

static inline struct rp_source_view rp_spec2_view(struct rp_spec2 *spec, const json_t *from)
{
    struct rp_spec2_source *source = rp_spec2_take(spec, 1, sizeof *source);
    const json_t *lengths = rp_spec_get(from, "lengths"), *prints = rp_spec_get(from, "prints");
    const json_t *counts = json_object_get(from, "counts"), *spans = json_object_get(from, "spans");
    *source = (struct rp_spec2_source){
        .documents = json_array_size(lengths),
        .lengths = rp_spec2_numbers(spec, lengths),
        .prints_count = json_array_size(prints),
        .bos = spec->spec.fixed.bos_id != RP_NO_TOKEN_ID,
        .eos = spec->spec.fixed.eos_id != RP_NO_TOKEN_ID,
        .drops_documents = spans && rp_spec_u64(from, "drop_untrained") == RP_DROP_DOCUMENTS,
        .across_cuts = spec->spec.fixed.label_across_cuts};
    struct rp_source_view view = {
        .context = source, .lengths = rp_spec2_lengths, .prints = rp_spec2_prints};
    struct rp_source_prints *at = rp_spec2_take(spec, source->prints_count, sizeof *at);
    for (uint64_t n = 0; n < source->prints_count; n++) {
        const json_t *own = json_array_get(prints, n);
        at[n] = (struct rp_source_prints){rp_spec2_at(own, 0), rp_spec2_at(own, 1),
                                          rp_spec2_at(own, 2)};
    }
    source->prints = at;
    if (counts != NULL) {
        uint8_t *own = rp_spec2_take(spec, source->documents, 1);
        for (uint64_t d = 0; d < source->documents; d++)
            own[d] = (uint8_t)rp_spec2_at(counts, d);
        source->counts = own;
        view.counts = rp_spec2_counts;
    }
    if (spans != NULL) {
        rp_spec2_read_spans(spec, source, spans);
        if (rp_spec_u64(from, "drop_untrained") == RP_DROP_FRAGMENTS)
            view.labelled = rp_spec2_labelled;
    }
    return view;
}

static inline void rp_spec2_read_source(struct rp_spec2 *spec, struct rp_stream_source *source,
                                        const json_t *from)
{
    const json_t *range = rp_spec_get(from, "range");
    *source = (struct rp_stream_source){
        .name = json_string_value(rp_spec_get(from, "name")),
        .documents = json_array_size(rp_spec_get(from, "lengths")),
        .range_first = rp_spec2_at(range, 0),
        .range_end = rp_spec2_at(range, 1),
        .is_percent = rp_spec2_get(from, "is_percent", 0) != 0,
        .too_long = (unsigned)rp_spec_u64(from, "too_long"),
        .drop_untrained = (unsigned)rp_spec_u64(from, "drop_untrained"),
        .passes = (uint8_t)rp_spec_u64(from, "passes"),
        .limits = rp_spec2_limits(from),
        .view = rp_spec2_view(spec, from)};
}

/* ---- stages ---------------------------------------------------------------------------------- */

static inline struct rp_deal rp_spec2_deal(const json_t *d)
{
    if (!json_is_array(d))
        return (struct rp_deal){0};
    return (struct rp_deal){.window = (uint32_t)rp_spec2_at(d, 0),
                            .step = (uint32_t)rp_spec2_at(d, 1),
                            .tier = (uint32_t)rp_spec2_at(d, 2),
                            .bundle = (uint32_t)rp_spec2_at(d, 3),
                            .order = (unsigned)rp_spec2_at(d, 4),
                            .cost.k = (uint32_t)rp_spec2_at(d, 5),
                            .cost.w = (uint32_t)rp_spec2_at(d, 6),
                            .cost.h = (uint8_t)rp_spec2_at(d, 7),
                            .cost.b = (uint8_t)rp_spec2_at(d, 8)};
}

/* Lists of [source, …]. */
static inline void rp_spec2_read_lists(struct rp_spec2 *spec, struct rp_stage_spec *stage,
                                       const json_t *from)
{
    const json_t *limits = json_object_get(from, "limits"),
                 *without = json_object_get(from, "without"),
                 *documents = json_object_get(from, "documents");
    stage->limits_count = (uint32_t)json_array_size(limits);
    stage->without_count = (uint32_t)json_array_size(without);
    stage->documents_count = (uint32_t)json_array_size(documents);
    struct rp_limits_change *change = rp_spec2_take(spec, stage->limits_count, sizeof *change);
    for (uint32_t i = 0; i < stage->limits_count; i++) {
        const json_t *own = json_array_get(limits, i);
        change[i] = (struct rp_limits_change){(uint32_t)rp_spec2_at(own, 0),
                                              (uint8_t)rp_spec2_at(own, 1),
                                              rp_spec2_limits(json_array_get(own, 2))};
    }
    struct rp_without *out = rp_spec2_take(spec, stage->without_count, sizeof *out);
    for (uint32_t i = 0; i < stage->without_count; i++) {
        const json_t *own = json_array_get(without, i), *list = json_array_get(own, 1);
        out[i] = (struct rp_without){(uint32_t)rp_spec2_at(own, 0), json_array_size(list),
                                     rp_spec2_numbers(spec, list)};
    }
    struct rp_source_count *count = rp_spec2_take(spec, stage->documents_count, sizeof *count);
    for (uint32_t i = 0; i < stage->documents_count; i++) {
        const json_t *own = json_array_get(documents, i);
        count[i] = (struct rp_source_count){(uint32_t)rp_spec2_at(own, 0), rp_spec2_at(own, 1)};
    }
    stage->limits = change;
    stage->without = out;
    stage->documents = count;
}

static inline const uint32_t *rp_spec2_weights(struct rp_spec2 *spec, const json_t *from)
{
    if (!json_is_array(from))
        return NULL;
    uint32_t *weights = rp_spec2_take(spec, json_array_size(from), sizeof *weights);
    for (size_t j = 0; j < json_array_size(from); j++)
        weights[j] = (uint32_t)rp_spec2_at(from, j);
    return weights;
}

static inline void rp_spec2_read_stage(struct rp_spec2 *spec, struct rp_stage_spec *stage,
                                       const json_t *from)
{
    static const struct {
        const char *name;
        uint32_t bit;
    } keys[] = {{"weight", RP_SETS_WEIGHTS}, {"seq_len", RP_SETS_SEQ_LEN},
                {"align", RP_SETS_ALIGN},    {"packing", RP_SETS_PACKING},
                {"window", RP_SETS_WINDOW},  {"fill", RP_SETS_ROW_GAP},
                {"spread", RP_SETS_SPREAD},  {"max_docs_per_row", RP_SETS_MAX_DOCS},
                {"deal", RP_SETS_DEAL}};
    *stage = (struct rp_stage_spec){
        .from = rp_spec_u64(from, "from"),
        .weights = rp_spec2_weights(spec, json_object_get(from, "weight")),
        .ramp = rp_spec2_get(from, "ramp", 0),
        .seq_len = (uint32_t)rp_spec2_get(from, "seq_len", 0),
        .align = (uint32_t)rp_spec2_get(from, "align", 0),
        .window = (uint32_t)rp_spec2_get(from, "window", 0),
        .spread = (uint32_t)rp_spec2_get(from, "spread", 0),
        .max_docs_per_row = (uint32_t)rp_spec2_get(from, "max_docs_per_row", 0),
        .packing = (unsigned)rp_spec2_get(from, "packing", 0),
        .row_gap = (unsigned)rp_spec2_get(from, "fill", 0),
        .deal = rp_spec2_deal(json_object_get(from, "deal"))};
    const json_t *job_deal = json_object_get(from, "job_deal");
    if (job_deal != NULL) {
        stage->deal = rp_spec2_deal(job_deal);
        stage->sets |= RP_WANTS_DEAL;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (json_object_get(from, keys[i].name) != NULL)
            stage->sets |= keys[i].bit;
    }
    rp_spec2_read_lists(spec, stage, from);
}

static inline const struct rp_stage_spec *rp_spec2_stages(struct rp_spec2 *spec, const json_t *from,
                                                          const char *key, uint32_t *count)
{
    const json_t *list = rp_spec_get(from, key);
    *count = (uint32_t)json_array_size(list);
    struct rp_stage_spec *stages = rp_spec2_take(spec, *count, sizeof *stages);
    for (uint32_t i = 0; i < *count; i++)
        rp_spec2_read_stage(spec, &stages[i], json_array_get(list, i));
    return stages;
}

/* The strings of `from` are borrowed. */
static inline void rp_spec2_read(struct rp_spec2 *spec, const json_t *from)
{
    const json_t *sources = rp_spec_get(from, "sources"), *skips = rp_spec_get(from, "skips");
    *spec = (struct rp_spec2){.spec = {.source_count = (uint32_t)json_array_size(sources),
                                       .skip_count = (uint32_t)json_array_size(skips)}};
    spec->spec.fixed = (struct rp_stream_fixed){
        .seed = rp_spec_u64(from, "seed"),
        .shuffle = (unsigned)rp_spec_u64(from, "shuffle"),
        .block_documents = rp_spec_u32(from, "block_documents"),
        .window_blocks = rp_spec_u32(from, "window_blocks"),
        .group = rp_spec_u32(from, "group"),
        .long_doc = (unsigned)rp_spec_u64(from, "long_doc"),
        .bos_id = rp_spec_u32(from, "bos_id"),
        .eos_id = rp_spec_u32(from, "eos_id"),
        .label_across_cuts = rp_spec_u64(from, "label_across_cuts") != 0,
        .tokenizer = rp_spec_hash(from, "tokenizer")};
    struct rp_stream_source *own = rp_spec2_take(spec, spec->spec.source_count, sizeof *own);
    for (uint32_t j = 0; j < spec->spec.source_count; j++)
        rp_spec2_read_source(spec, &own[j], json_array_get(sources, j));
    spec->spec.sources = own;
    spec->spec.stages = rp_spec2_stages(spec, from, "stages", &spec->spec.stage_count);
    spec->spec.records = rp_spec2_stages(spec, from, "records", &spec->spec.record_count);
    struct rp_row_range *ranges = rp_spec2_take(spec, spec->spec.skip_count, sizeof *ranges);
    for (uint32_t i = 0; i < spec->spec.skip_count; i++) {
        const json_t *pair = json_array_get(skips, i);
        ranges[i] = (struct rp_row_range){rp_spec2_at(pair, 0), rp_spec2_at(pair, 1)};
    }
    spec->spec.skips = ranges;
}

#endif
