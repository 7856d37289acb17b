/* SPDX-License-Identifier: Apache-2.0 */
#include "stream_spec.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "stream_view.h"
#include "stream_without.h"

/* The config module numbers these words in the order of STREAM2.md; it may not include spec.h. */
_Static_assert(RP_KEEP_UNTRAINED == 0 && RP_DROP_DOCUMENTS == 1 && RP_DROP_FRAGMENTS == 2,
               "drop_untrained");
_Static_assert(RP_EXHAUSTED_CONTINUE == 0 && RP_EXHAUSTED_STOP == 1 && RP_EXHAUSTED_ERROR == 2,
               "on_exhausted");
_Static_assert(RP_TOO_LONG_DROP == 1 && RP_TOO_LONG_TRUNCATE == 2 && RP_TOO_LONG_ERROR == 3,
               "too_long, which the config counts from 0");
_Static_assert(RP_DEAL_DESCENDING == 0 && RP_DEAL_MIDDLE == 1 && RP_DEAL_WAVE == 2 &&
                   RP_DEAL_LATE_WAVE == 3,
               "order of a deal");
_Static_assert(RP_NO_TOKEN_ID == RP_CONFIG_CHOSEN, "bos_id and eos_id");

/* The arrays of one stage, which its spec borrows. */
struct stage_arrays {
    uint32_t *weights;
    struct rp_limits_change *limits;
    struct rp_without *without;
    struct rp_source_count *documents;
};

struct rp_compiled {
    const struct rp_config *config;
    const struct rp_corpus *corpus;
    struct rp_stream_spec spec;
    struct rp_planned_source *views; /* [spec.source_count] */
    struct rp_stream_source *sources;
    struct rp_stage_spec *stages; /* [spec.stage_count] */
    struct stage_arrays *arrays;
    struct rp_row_range *skips;
};

static int no_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "out of memory for the stages of the stream");
}

/* ---- sources --------------------------------------------------------------------------------- */

static struct rp_limits limits_of(const struct rp_config_limits *limits)
{
    return (struct rp_limits){.max_tokens = limits->max_tokens,
                              .max_epochs = (uint32_t)limits->max_epochs,
                              .on_exhausted = (enum rp_on_exhausted)limits->on_exhausted};
}

static int take_source(struct rp_compiled *compiled, uint32_t i, struct rp_error *error)
{
    const struct rp_config *config = compiled->config;
    const struct rp_config_source *source = &config->sources[i];
    const struct rp_source *opened = rp_corpus_source(compiled->corpus, i);
    struct rp_stream_source *made = &compiled->sources[i];
    struct rp_source_range range = rp_source_range(opened);
    bool is_atomic = source->atomic || config->group > 1;
    *made = (struct rp_stream_source){
        .name = rp_source_name(opened),
        .documents = rp_source_documents(opened),
        .range_first = range.first,
        .range_end = range.is_open ? RP_NO_ROW : range.end,
        .is_percent = range.is_percent,
        .too_long = is_atomic ? (enum rp_too_long)(source->too_long + 1) : RP_TOO_LONG_CUT,
        .drop_untrained = (enum rp_drop_untrained)source->drop_untrained,
        .passes = 1,
        .limits = limits_of(&source->limits),
    };
    int code = rp_planned_open(&compiled->views[i], config, i, compiled->corpus, error);
    if (code == 0)
        rp_planned_take(&compiled->views[i], made);
    return code;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* The job at this start, in rows of a stage. */
struct job {
    uint64_t step, tier;
    uint32_t bundle;
};

static struct job job_of(const struct rp_config *config, const struct rp_config_stage *stage)
{
    struct job job = {config->global_batch_size,
                      (uint64_t)config->batch_size * config->dp_world_size, config->batch_size};
    if (stage) {
        job.step = stage->step_rows;
        job.tier = stage->batch_rows;
        job.bundle = (uint32_t)(stage->batch_rows / config->dp_world_size);
    }
    return job;
}

static uint32_t u32_or_most(uint64_t rows)
{
    return (uint32_t)rp_min_u64(rows, UINT32_MAX); /* the calendar refuses it */
}

static bool is_declared(const struct rp_config_deal *deal)
{
    return (deal->sets & RP_DEAL_DECLARED) == RP_DEAL_DECLARED;
}

#define DEAL_STEPS 8u
#define DEAL_WINDOW_MAX (1u << 20)

/* Section 8, "From the job". */
static struct rp_deal deal_of_job(const struct rp_config_deal *deal, const struct job *job,
                                  const struct rp_cost *cost)
{
    uint32_t sets = deal->sets;
    struct rp_deal made = {.window = deal->window,
                           .step = deal->step,
                           .tier = deal->tier,
                           .bundle = deal->bundle,
                           .order = is_declared(deal) || (sets & RP_DEAL_ORDER)
                                        ? (enum rp_deal_order)deal->order
                                        : RP_DEAL_MIDDLE,
                           .cost = *cost};
    if (!(sets & RP_DEAL_STEP))
        made.step = u32_or_most(job->step);
    if (!(sets & RP_DEAL_TIER))
        made.tier = u32_or_most(job->tier);
    if (!(sets & (RP_DEAL_TIER | RP_DEAL_BUNDLE)))
        made.bundle = job->bundle;
    if (!(sets & RP_DEAL_WINDOW) && made.step <= DEAL_WINDOW_MAX)
        made.window = (uint32_t)rp_min_u64(DEAL_STEPS, DEAL_WINDOW_MAX / made.step) * made.step;
    else if (!(sets & RP_DEAL_WINDOW))
        made.window = DEAL_WINDOW_MAX;
    return made;
}

/* A deal whose numbers the config has all becomes the stage's; another becomes a record. */
static void take_deal(const struct rp_config *config, const struct rp_config_deal *deal,
                      const struct rp_config_stage *stage, struct rp_stage_spec *made)
{
    const struct rp_cost own = {deal->cost, deal->attention_window, (uint8_t)deal->window_layers,
                                (uint8_t)deal->layers};
    const struct rp_cost *cost = deal->sets & RP_DEAL_COST ? &own : &config->cost.cost;
    const struct job job = job_of(config, stage);
    made->sets = (made->sets & ~(uint32_t)(RP_SETS_DEAL | RP_WANTS_DEAL)) |
                 (deal->mode == RP_DEAL_OFF || is_declared(deal) ? RP_SETS_DEAL : RP_WANTS_DEAL);
    made->deal = (struct rp_deal){.window = 0};
    if (deal->mode == RP_DEAL_OFF)
        return;
    made->deal = deal_of_job(deal, &job, cost);
}

static int take_weights(const struct rp_compiled *compiled, const struct rp_config_stage *stage,
                        struct rp_stage_spec *made, struct stage_arrays *arrays,
                        struct rp_error *error)
{
    const struct rp_config *config = compiled->config;
    bool is_given = stage && stage->weights.count > 0;
    if (!is_given && made->from > 0)
        return 0;
    arrays->weights = rp_calloc(compiled->spec.source_count, sizeof *arrays->weights);
    if (!arrays->weights)
        return no_memory(error);
    for (uint32_t i = 0; !is_given && i < config->source_count; i++)
        arrays->weights[i] = (uint32_t)config->sources[i].weight;
    for (uint32_t i = 0; !is_given && i < config->removed.count; i++)
        arrays->weights[config->removed.pairs[i].source] = config->removed.pairs[i].weight;
    for (uint32_t i = 0; is_given && i < stage->weights.count; i++)
        arrays->weights[stage->weights.pairs[i].source] = stage->weights.pairs[i].weight;
    made->sets |= RP_SETS_WEIGHTS;
    made->weights = arrays->weights;
    made->ramp = stage ? stage->ramp : 0;
    return 0;
}

static int take_limits(const struct rp_config_by_source *map, struct rp_stage_spec *made,
                       struct stage_arrays *arrays, struct rp_error *error)
{
    arrays->limits = rp_calloc(map->count, sizeof *arrays->limits);
    if (!arrays->limits)
        return no_memory(error);
    for (uint32_t i = 0; i < map->count; i++)
        arrays->limits[i] = (struct rp_limits_change){.source = map->pairs[i].source,
                                                      .sets = (uint8_t)map->pairs[i].limits.sets,
                                                      .limits = limits_of(&map->pairs[i].limits)};
    made->limits = arrays->limits;
    made->limits_count = map->count;
    return 0;
}

static int take_documents(const struct rp_config_by_source *map, struct rp_stage_spec *made,
                          struct stage_arrays *arrays, struct rp_error *error)
{
    arrays->documents = rp_calloc(map->count, sizeof *arrays->documents);
    if (!arrays->documents)
        return no_memory(error);
    for (uint32_t i = 0; i < map->count; i++)
        arrays->documents[i] = (struct rp_source_count){map->pairs[i].source, map->pairs[i].number};
    made->documents = arrays->documents;
    made->documents_count = map->count;
    return 0;
}

static int take_without(const struct rp_compiled *compiled, const struct rp_config_by_source *map,
                        struct rp_stage_spec *made, struct stage_arrays *arrays,
                        struct rp_error *error)
{
    arrays->without = rp_calloc(map->count, sizeof *arrays->without);
    if (!arrays->without)
        return no_memory(error);
    made->without = arrays->without;
    for (uint32_t i = 0; i < map->count; i++) {
        const struct rp_config_of_source *pair = &map->pairs[i];
        struct rp_without *without = &arrays->without[i];
        char place[256];
        without->source = pair->source;
        made->without_count = i + 1;
        const struct rp_stream_source *source = &compiled->sources[pair->source];
        int code = rp_without_read(without, pair->path,
                                   source->is_absent ? INT64_MAX : source->documents, error);
        rp_config_place_text(compiled->config, "stages", pair->place, place, sizeof place);
        if (code < 0)
            return rp_fail_context(error, code, "%swithout", place);
    }
    return 0;
}

/* Numbers that a stage gives in place of those before it. */
static void take_numbers(const struct rp_config_stage *stage, struct rp_stage_spec *made)
{
    static const struct {
        size_t from, to;
        uint32_t bit;
    } numbers[] = {
#define NUMBER(field, name)                                                                        \
    {offsetof(struct rp_config_stage, field), offsetof(struct rp_stage_spec, field), RP_SETS_##name}
        NUMBER(seq_len, SEQ_LEN),
        NUMBER(align, ALIGN),
        NUMBER(window, WINDOW),
        NUMBER(spread, SPREAD),
        NUMBER(max_docs_per_row, MAX_DOCS),
#undef NUMBER
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(numbers); i++) {
        uint32_t value;
        memcpy(&value, (const char *)stage + numbers[i].from, sizeof value);
        if (value == 0) /* each is 1 at least, if given */
            continue;
        memcpy((char *)made + numbers[i].to, &value, sizeof value);
        made->sets |= numbers[i].bit;
    }
}

static int take_stage(struct rp_compiled *compiled, uint32_t number,
                      const struct rp_config_stage *stage, struct rp_error *error)
{
    struct rp_stage_spec *made = &compiled->stages[number];
    struct stage_arrays *arrays = &compiled->arrays[number];
    take_numbers(stage, made);
    if (rp_config_stage_gives(stage, "packing")) {
        made->packing = (enum rp_packing)stage->packing;
        made->sets |= RP_SETS_PACKING;
    }
    if (rp_config_stage_gives(stage, "row_gap")) {
        made->row_gap = (enum rp_row_gap)stage->row_gap;
        made->sets |= RP_SETS_ROW_GAP;
    }
    if (rp_config_stage_gives(stage, "deal"))
        take_deal(compiled->config, &stage->deal, stage, made);
    int code = take_limits(&stage->limits, made, arrays, error);
    if (code == 0)
        code = take_documents(&stage->documents, made, arrays, error);
    return code == 0 ? take_without(compiled, &stage->without, made, arrays, error) : code;
}

/* Stage 0 has a value for all: from the config, then its own. */
static int take_first(struct rp_compiled *compiled, const struct rp_config_stage *stage,
                      struct rp_error *error)
{
    const struct rp_config *config = compiled->config;
    struct rp_stage_spec *made = &compiled->stages[0];
    *made = (struct rp_stage_spec){.sets = RP_SETS_SEQ_LEN | RP_SETS_ALIGN | RP_SETS_PACKING |
                                           RP_SETS_WINDOW | RP_SETS_ROW_GAP | RP_SETS_SPREAD |
                                           (config->max_docs_per_row ? RP_SETS_MAX_DOCS : 0),
                                   .seq_len = config->seq_len,
                                   .align = config->align,
                                   .window = rp_config_window(config),
                                   .spread = config->spread,
                                   .max_docs_per_row = config->max_docs_per_row,
                                   .packing = (enum rp_packing)config->packing,
                                   .row_gap = (enum rp_row_gap)config->row_gap};
    take_deal(config, &config->deal, stage, made);
    int code = stage ? take_stage(compiled, 0, stage, error) : 0;
    if (code == 0 && made->packing == RP_PACKING_CONCAT) {
        made->window = made->spread = 0;
        made->row_gap = RP_ROW_GAP_PAD;
    }
    return code;
}

static int take_stages(struct rp_compiled *compiled, struct rp_error *error)
{
    const struct rp_config_stages *stages = &compiled->config->stages;
    const struct rp_config_stage *given = stages->count ? stages->stages : NULL;
    int code = take_first(compiled, given, error);
    if (code == 0)
        code = take_weights(compiled, given, &compiled->stages[0], &compiled->arrays[0], error);
    for (uint32_t i = 1; i < stages->count && code == 0; i++) {
        compiled->stages[i].from = given[i].from;
        code = take_weights(compiled, &given[i], &compiled->stages[i], &compiled->arrays[i], error);
        if (code == 0)
            code = take_stage(compiled, i, &given[i], error);
    }
    return code;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void take_fixed(struct rp_compiled *compiled)
{
    const struct rp_config *config = compiled->config;
    bool is_block = config->shuffle == RP_SHUFFLE_BLOCK;
    compiled->spec.fixed = (struct rp_stream_fixed){
        .seed = config->seed,
        .shuffle = (enum rp_shuffle)config->shuffle,
        .block_documents = is_block ? config->block_documents : 0,
        .window_blocks = is_block ? config->window_blocks : 0,
        .group = config->group,
        .long_doc = config->group > 1 ? RP_LONG_DOC_SPLIT : (enum rp_long_doc)config->long_doc,
        .bos_id = config->bos_id,
        .eos_id = config->eos_id,
        .label_across_cuts = config->label_across_cuts,
        .tokenizer = rp_corpus_tokenizer(compiled->corpus)->hash};
    for (uint32_t i = 0; i < config->skip.all.count; i++)
        compiled->skips[i] = (struct rp_row_range){config->skip.all.ranges[i].first,
                                                   config->skip.all.ranges[i].end};
}

static int make_arrays(struct rp_compiled *compiled, struct rp_error *error)
{
    struct rp_stream_spec *spec = &compiled->spec;
    spec->source_count = rp_config_numbered(compiled->config);
    spec->stage_count = (uint32_t)rp_max_u64(1, compiled->config->stages.count);
    spec->skip_count = compiled->config->skip.all.count;
    spec->sources = compiled->sources = rp_calloc(spec->source_count, sizeof *compiled->sources);
    spec->stages = compiled->stages = rp_calloc(spec->stage_count, sizeof *compiled->stages);
    spec->skips = compiled->skips = rp_calloc(spec->skip_count, sizeof *compiled->skips);
    compiled->views = rp_calloc(spec->source_count, sizeof *compiled->views);
    compiled->arrays = rp_calloc(spec->stage_count, sizeof *compiled->arrays);
    return compiled->sources && compiled->stages && compiled->skips && compiled->views &&
                   compiled->arrays
               ? 0
               : no_memory(error);
}

int rp_compiled_open(struct rp_compiled **compiled_out, const struct rp_config *config,
                     const struct rp_corpus *corpus, struct rp_error *error)
{
    RP_ASSERT(config->stream_version == 2);
    struct rp_compiled *compiled = rp_calloc(1, sizeof *compiled);
    *compiled_out = NULL;
    if (!compiled)
        return no_memory(error);
    compiled->config = config;
    compiled->corpus = corpus;
    int code = make_arrays(compiled, error);
    for (uint32_t i = 0; i < config->source_count && code == 0; i++)
        code = take_source(compiled, i, error);
    for (uint32_t i = 0; i < config->removed.count; i++)
        compiled->sources[config->removed.pairs[i].source] = (struct rp_stream_source){
            .name = config->removed.pairs[i].name, .is_absent = true};
    if (code == 0)
        code = take_stages(compiled, error);
    if (code < 0) {
        rp_compiled_close(compiled);
        return code;
    }
    take_fixed(compiled);
    *compiled_out = compiled;
    return 0;
}

const struct rp_stream_spec *rp_compiled_spec(const struct rp_compiled *compiled)
{
    return &compiled->spec;
}

static void free_arrays(struct rp_compiled *compiled, uint32_t stage)
{
    struct stage_arrays *arrays = &compiled->arrays[stage];
    for (uint32_t i = 0; arrays->without && i < compiled->stages[stage].without_count; i++)
        rp_without_free(&arrays->without[i]);
    free(arrays->weights);
    free(arrays->limits);
    free(arrays->without);
    free(arrays->documents);
}

void rp_compiled_close(struct rp_compiled *compiled)
{
    if (!compiled)
        return;
    for (uint32_t i = 0; compiled->arrays && compiled->stages && i < compiled->spec.stage_count;
         i++)
        free_arrays(compiled, i);
    for (uint32_t i = 0; compiled->views && i < compiled->config->source_count; i++)
        rp_planned_close(&compiled->views[i]);
    free(compiled->sources);
    free(compiled->stages);
    free(compiled->skips);
    free(compiled->views);
    free(compiled->arrays);
    free(compiled);
}
