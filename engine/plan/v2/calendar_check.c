/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the inputs of a calendar, one by one. Inputs without effect get the values that the
 * text gives them (STREAM2.md sections 1 and 8). Values that depend on records are checked in
 * calendar_walk.c. */
#include "plan/v2/calendar_parts.h"

#include <string.h>

/* ---- fixed parameters ------------------------------------------------------------------------ */

static int refuse_range(struct rp_error *error, const char *field, uint64_t value, uint64_t least,
                        uint64_t most)
{
    return rp_fail(error, -RP_E_CONFIG, NULL,
                   "%s: expected %" PRIu64 " to %" PRIu64 ", found %" PRIu64, field, least, most,
                   value);
}

int rp_calendar_check_fixed(struct rp_calendar *calendar, struct rp_error *error)
{
    struct rp_stream_fixed *fixed = &calendar->spec.fixed;
    uint32_t k = fixed->group;
    if (k < 1 || k > RP_GROUP_MAX)
        return refuse_range(error, "group", k, 1, RP_GROUP_MAX);
    if (fixed->shuffle > RP_SHUFFLE_BLOCK)
        return refuse_range(error, "shuffle", fixed->shuffle, 0, RP_SHUFFLE_BLOCK);
    if (fixed->long_doc > RP_LONG_DOC_DROP)
        return refuse_range(error, "long_doc", fixed->long_doc, 0, RP_LONG_DOC_DROP);
    if (k > 1)
        fixed->long_doc = RP_LONG_DOC_SPLIT;
    if (fixed->shuffle != RP_SHUFFLE_BLOCK) {
        fixed->block_documents = fixed->window_blocks = 0;
        return 0;
    }
    if (fixed->block_documents == 0 || fixed->block_documents % k != 0)
        return rp_fail(error, -RP_E_CONFIG, "choose a multiple of group",
                       "block_documents: expected a multiple of group %" PRIu32 ", found %" PRIu32,
                       k, fixed->block_documents);
    if (fixed->window_blocks == 0)
        return refuse_range(error, "window_blocks", 0, 1, UINT32_MAX);
    return 0;
}

/* ---- sources --------------------------------------------------------------------------------- */

static int check_source(const struct rp_stream_source *source, uint32_t k, struct rp_error *error)
{
    const char *name = source->name;
    uint64_t documents = source->documents;
    if (source->range_first >= source->range_end || source->range_first % k != 0)
        return rp_fail(
            error, -RP_E_CONFIG, "choose FIRST below END, and a multiple of group",
            "source \"%s\": documents: expected FIRST-END with FIRST a multiple of group "
            "%" PRIu32 ", found FIRST %" PRIu64,
            name, k, source->range_first);
    if (documents >= RP_MAX_ROWS || documents > source->range_end - source->range_first)
        return rp_fail(error, -RP_E_CONFIG, NULL,
                       "source \"%s\": %" PRIu64 " documents do not fit into its range", name,
                       documents);
    if (source->is_percent && source->range_end == RP_NO_ROW)
        return rp_fail(error, -RP_E_CONFIG, NULL,
                       "source \"%s\": documents: a range of percent has no end", name);
    if (source->too_long > RP_TOO_LONG_ERROR || source->drop_untrained > RP_DROP_FRAGMENTS ||
        source->limits.on_exhausted > RP_EXHAUSTED_ERROR)
        return rp_fail(error, -RP_E_CONFIG, NULL,
                       "source \"%s\": too_long, drop_untrained or on_exhausted is no value of its "
                       "list",
                       name);
    if (k > 1 && source->too_long == RP_TOO_LONG_TRUNCATE)
        return rp_fail(error, -RP_E_CONFIG, "use too_long: drop or error, or group: 1",
                       "source \"%s\": too_long: truncate would cut a group of %" PRIu32
                       " documents",
                       name, k);
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct rp_calendar_name *)a)->name,
                  ((const struct rp_calendar_name *)b)->name);
}

uint32_t rp_calendar_find(const struct rp_calendar *calendar, const char *name)
{
    struct rp_calendar_name key = {.name = name};
    const struct rp_calendar_name *found = bsearch(
        &key, calendar->by_name, calendar->spec.source_count, sizeof key, compare_names);
    return found ? found->source : RP_NO_SOURCE;
}

static int sort_names(struct rp_calendar *calendar, struct rp_error *error)
{
    uint32_t count = calendar->spec.source_count;
    struct rp_calendar_name *sorted = rp_calendar_take(calendar, count, sizeof *sorted, error);
    if (!sorted)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        const char *name = calendar->sources[i].name;
        size_t bytes = name ? strnlen(name, RP_SOURCE_NAME_MAX + 1) : 0;
        if (bytes == 0 || bytes > RP_SOURCE_NAME_MAX)
            return rp_fail(error, -RP_E_CONFIG, NULL,
                           "source %" PRIu32 ": name: expected 1 to %u bytes, found %s", i,
                           RP_SOURCE_NAME_MAX, bytes ? "more" : "none");
        sorted[i] = (struct rp_calendar_name){name, i};
    }
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (uint32_t i = 1; i < count; i++)
        if (strcmp(sorted[i - 1].name, sorted[i].name) == 0)
            return rp_fail(error, -RP_E_CONFIG, "give each source a name of its own",
                           "two sources have the name \"%s\"", sorted[i].name);
    calendar->by_name = sorted;
    return 0;
}

int rp_calendar_check_sources(struct rp_calendar *calendar, struct rp_error *error)
{
    uint32_t count = calendar->spec.source_count, k = calendar->spec.fixed.group;
    if (count < 1 || count > RP_SOURCES_MAX)
        return refuse_range(error, "sources", count, 1, RP_SOURCES_MAX);
    calendar->sources = rp_calendar_take(calendar, count, sizeof *calendar->sources, error);
    if (!calendar->sources)
        return -ENOMEM;
    memcpy(calendar->sources, calendar->spec.sources, count * sizeof *calendar->sources);
    calendar->spec.sources = calendar->sources;
    int code = sort_names(calendar, error);
    for (uint32_t i = 0; code == 0 && i < count; i++) {
        struct rp_stream_source *source = &calendar->sources[i];
        if (source->is_absent)
            continue;
        code = check_source(source, k, error);
        source->too_long = rp_too_long_of(source->too_long, k);
        if (source->passes == 0)
            source->passes = 1;
    }
    return code;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* A number that a stage sets must be in its range. */
struct bound {
    uint32_t set;
    const char *field;
    uint64_t value, least, most;
};

static int check_bounds(const struct rp_calendar *calendar, const struct rp_stage_spec *stage,
                        uint32_t i, bool is_concat, struct rp_error *error)
{
    const struct bound bounds[] = {
        {RP_SETS_WEIGHTS, "ramp", stage->ramp, 0, i == 0 ? 0 : (UINT64_C(1) << 53) - 1},
        {RP_SETS_SEQ_LEN, "seq_len", stage->seq_len, calendar->spec.fixed.group, RP_SEQ_LEN_MAX},
        {RP_SETS_ALIGN, "align", stage->align, 1, RP_ALIGN_MAX},
        {RP_SETS_PACKING, "packing", stage->packing, 0, RP_PACKING_BEST_FIT},
        {RP_SETS_WINDOW, "window", stage->window, !is_concat, is_concat ? 0 : RP_WINDOW_MAX},
        {RP_SETS_ROW_GAP, "row_gap", stage->row_gap, 0, is_concat ? 0 : RP_ROW_GAP_SPLIT},
        {RP_SETS_SPREAD, "spread", stage->spread, !is_concat, is_concat ? 0 : RP_SPREAD_MAX},
    };
    for (size_t b = 0; b < RP_ARRAY_COUNT(bounds); b++)
        if ((stage->sets & bounds[b].set) &&
            (bounds[b].value < bounds[b].least || bounds[b].value > bounds[b].most))
            return RP_REFUSE_STAGE(
                error, i, stage->from,
                is_concat && bounds[b].most == 0 ? "leave it out: packing: concat has none"
                : i == 0 && bounds[b].set == RP_SETS_WEIGHTS ? "give the ramp to a later stage"
                                                             : NULL,
                "%s: expected %" PRIu64 " to %" PRIu64 ", found %" PRIu64, bounds[b].field,
                bounds[b].least, bounds[b].most, bounds[b].value);
    return 0;
}

/* Section 1.3, "concat": what the packing of a stage implies. */
static int check_packing(struct rp_stage_spec *stage, uint32_t i, bool was_concat, bool *is_concat,
                         struct rp_error *error)
{
    const uint32_t three = RP_SETS_WINDOW | RP_SETS_ROW_GAP | RP_SETS_SPREAD;
    bool sets = stage->sets & RP_SETS_PACKING;
    *is_concat = sets ? stage->packing == RP_PACKING_CONCAT : was_concat;
    if (!sets)
        return 0;
    if (*is_concat) {
        stage->window = stage->sets & RP_SETS_WINDOW ? stage->window : 0;
        stage->row_gap = stage->sets & RP_SETS_ROW_GAP ? stage->row_gap : RP_ROW_GAP_PAD;
        stage->spread = stage->sets & RP_SETS_SPREAD ? stage->spread : 0;
        stage->sets |= three;
    } else if (i == 0 || was_concat) {
        uint32_t lacking = three & ~stage->sets;
        if (lacking & (RP_SETS_WINDOW | RP_SETS_ROW_GAP))
            return RP_REFUSE_STAGE(error, i, stage->from, "set window and row_gap with the packing",
                                   "%s is missing: %s",
                                   lacking & RP_SETS_WINDOW ? "window" : "row_gap",
                                   i == 0 ? "the first stage sets all parameters"
                                          : "the packing before it was concat, which has none");
        if (lacking)
            stage->spread = RP_SPREAD_DEFAULT;
        stage->sets |= three;
    }
    return 0;
}

int rp_calendar_check_deal(const struct rp_deal *deal, struct rp_error *error)
{
    const struct bound bounds[] = {
        {0, "deal: bundle", deal->bundle, 1, UINT32_MAX},
        {0, "deal: K", deal->cost.k, 1, RP_SEQ_LEN_MAX - 1},
        {0, "deal: w", deal->cost.w, 0, RP_SEQ_LEN_MAX},
        {0, "deal: b", deal->cost.b, 1, 64},
        {0, "deal: h", deal->cost.h, 0, deal->cost.b},
        {0, "deal: order", deal->order, 0, RP_DEAL_ORDERS - 1},
        {0, "deal: tier", deal->tier, deal->bundle, UINT32_MAX},
        {0, "deal: step", deal->step, deal->tier, UINT32_MAX},
        {0, "deal: window", deal->window, deal->step, UINT32_C(1) << 20},
    };
    for (size_t b = 0; b < RP_ARRAY_COUNT(bounds); b++)
        if (bounds[b].value < bounds[b].least || bounds[b].value > bounds[b].most)
            return refuse_range(error, bounds[b].field, bounds[b].value, bounds[b].least,
                                bounds[b].most);
    const uint32_t parts[] = {deal->window, deal->step, deal->tier, deal->bundle};
    const char *const names[] = {"window", "step", "tier", "bundle"};
    for (unsigned i = 0; i < 3; i++)
        if (parts[i] % parts[i + 1] != 0)
            return rp_fail(error, -RP_E_CONFIG, NULL,
                           "deal: %s: expected a multiple of %s %" PRIu32 ", found %" PRIu32,
                           names[i], names[i + 1], parts[i + 1], parts[i]);
    return 0;
}

struct rp_deal rp_calendar_reduce_deal(const struct rp_deal *deal)
{
    struct rp_deal reduced = *deal;
    uint8_t divisor = (uint8_t)rp_gcd_u64(deal->cost.h, deal->cost.b);
    if (deal->window == 0)
        return (struct rp_deal){0};
    if (divisor > 1) {
        reduced.cost.h = (uint8_t)(deal->cost.h / divisor);
        reduced.cost.b = (uint8_t)(deal->cost.b / divisor);
    }
    return reduced;
}

/* The fault in the lists of sources of a stage or record; NULL: none. */
static const char *fault_of(const struct rp_calendar *calendar, const struct rp_stage_spec *stage)
{
    uint32_t sources = calendar->spec.source_count;
    bool lacks_weight = stage->sets & RP_SETS_WEIGHTS;
    for (uint32_t i = 0; lacks_weight && i < sources; i++)
        lacks_weight = stage->weights[i] == 0;
    if (lacks_weight)
        return "weight: no source has a weight above 0";
    for (uint32_t i = 0; i < stage->limits_count; i++) {
        const struct rp_limits_change *change = &stage->limits[i];
        if (change->source >= sources)
            return "limits: a source is not in the config";
        if (change->sets == 0 || change->sets > 7)
            return "limits: a source has no limit";
        if ((change->sets & 4) && change->limits.on_exhausted > RP_EXHAUSTED_ERROR)
            return "on_exhausted: expected continue, stop or error";
    }
    for (uint32_t i = 0; i < stage->without_count; i++)
        if (stage->without[i].source >= sources)
            return "without: a source is not in the config";
    for (uint32_t i = 0; i < stage->documents_count; i++)
        if (stage->documents[i].source >= sources)
            return "documents: a source is not in the config";
    return NULL;
}

static int check_without(const struct rp_calendar *calendar, const struct rp_stage_spec *stage,
                         uint32_t i, struct rp_error *error)
{
    for (uint32_t n = 0; n < stage->without_count; n++) {
        const struct rp_without *without = &stage->without[n];
        for (uint64_t d = 0; d < without->count; d++)
            if (without->documents[d] >= RP_MAX_ROWS ||
                (d > 0 && without->documents[d] <= without->documents[d - 1]))
                return RP_REFUSE_STAGE(
                    error, i, stage->from, NULL,
                    "without: source \"%s\": documents do not ascend at %" PRIu64,
                    calendar->sources[without->source].name, without->documents[d]);
    }
    return 0;
}

static int check_stage(struct rp_calendar *calendar, uint32_t i, bool *is_concat,
                       struct rp_error *error)
{
    struct rp_stage_spec *stage = &calendar->stages[i];
    const uint32_t needed = RP_SETS_WEIGHTS | RP_SETS_SEQ_LEN | RP_SETS_PACKING;
    if (i == 0 && stage->from != 0)
        return RP_REFUSE_STAGE(error, i, stage->from, NULL, "the first stage begins at row %u", 0u);
    if (i > 0 && (stage->from <= stage[-1].from || stage->from >= RP_MAX_ROWS))
        return RP_REFUSE_STAGE(error, i, stage->from, "let each stage have a step at least",
                               "it does not begin after the stage before it, from row %" PRIu64,
                               stage[-1].from);
    if (i == 0) {
        if (needed & ~stage->sets)
            return RP_REFUSE_STAGE(error, i, stage->from, NULL, "the first stage lacks %s",
                                   "weights, seq_len or packing");
        stage->align = stage->sets & RP_SETS_ALIGN ? stage->align : 1;
        stage->sets |= RP_SETS_ALIGN;
        if (!(stage->sets & (RP_SETS_DEAL | RP_WANTS_DEAL))) {
            stage->deal = (struct rp_deal){0};
            stage->sets |= RP_SETS_DEAL;
        }
    }
    const char *fault = fault_of(calendar, stage);
    if (fault)
        return RP_REFUSE_STAGE(error, i, stage->from, NULL, "%s", fault);
    int code = check_packing(stage, i, *is_concat, is_concat, error);
    if (code == 0)
        code = check_bounds(calendar, stage, i, *is_concat, error);
    if (code == 0)
        code = check_without(calendar, stage, i, error);
    if (code == 0 && (stage->sets & RP_SETS_DEAL) && stage->deal.window > 0) {
        code = rp_calendar_check_deal(&stage->deal, error);
        if (code < 0)
            code = rp_fail_context(error, code, "stage %" PRIu32 " (from row %" PRIu64 ")", i,
                                   stage->from);
    }
    if (stage->sets & RP_SETS_DEAL)
        stage->deal = rp_calendar_reduce_deal(&stage->deal);
    return code;
}

/* Records that the spec has ahead. */
static int check_records(const struct rp_calendar *calendar, struct rp_error *error)
{
    const struct rp_stage_spec *records = calendar->spec.records;
    for (uint32_t i = 0; i < calendar->spec.record_count; i++) {
        if (records[i].from >= RP_MAX_ROWS || (i > 0 && records[i].from <= records[i - 1].from))
            return rp_fail(error, -RP_E_CONFIG, "write one record for a row",
                           "the rows of records do not ascend at row %" PRIu64, records[i].from);
        const char *fault = fault_of(calendar, &records[i]);
        if (fault)
            return rp_fail(error, -RP_E_CONFIG, NULL, "the record for row %" PRIu64 ": %s",
                           records[i].from, fault);
    }
    return 0;
}

int rp_calendar_check_stages(struct rp_calendar *calendar, struct rp_error *error)
{
    uint32_t count = calendar->spec.stage_count;
    bool is_concat = false;
    if (count < 1 || count > RP_STAGES_MAX)
        return refuse_range(error, "stages", count, 1, RP_STAGES_MAX);
    calendar->stages = rp_calendar_take(calendar, count, sizeof *calendar->stages, error);
    if (!calendar->stages)
        return -ENOMEM;
    memcpy(calendar->stages, calendar->spec.stages, count * sizeof *calendar->stages);
    calendar->spec.stages = calendar->stages;
    for (uint32_t i = 0; i < count; i++) {
        int code = check_stage(calendar, i, &is_concat, error);
        if (code < 0)
            return code;
    }
    return check_records(calendar, error);
}
