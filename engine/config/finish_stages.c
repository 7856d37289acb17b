/* SPDX-License-Identifier: Apache-2.0 */
/* finish_stages.c — check the stages of a config, and compile their ends and the skips to rows
 * (engine/plan/STREAM2.md sections 9.1 and 10.3).
 *
 * Errors: -RP_E_CONFIG with file:line:column. The calendar (plan/v2/calendar.h) checks what follows
 * from the corpus or from a position. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "config/key.h"

__extension__ typedef unsigned __int128 wide;

#define ROWS_MAX ((uint64_t)INT64_MAX) /* STREAM2.md section 13 */

/* The stage that is being checked, and the values in force in it. */
struct walk {
    struct rp_config *config;
    struct rp_config_stage *stage;
    uint32_t number;
    uint32_t seq_len, align, batch_size;
    uint64_t step_rows;
    uint64_t ramp_end; /* the row at which the newest ramp is over, and its stage */
    uint32_t ramp_stage;
    wide places; /* before the stage */
    struct rp_error *error;
};

static struct rp_key_place place_of(const struct walk *walk, enum rp_stage_key_index key)
{
    struct rp_config_place place = walk->stage->places[key];
    return rp_config_nested_place(walk->config, RP_KEY_stages,
                                  place.line ? place : walk->stage->place);
}

#define FAIL_STAGE(walk, key, hint, ...)                                                           \
    rp_key_fail(place_of(walk, RP_STAGE_KEY_##key), #key, hint, (walk)->error, __VA_ARGS__)

static bool sets(const struct walk *walk, enum rp_stage_key_index key)
{
    return walk->stage->places[key].line != 0;
}

/* ---- sources by name ------------------------------------------------------------------------- */

static int find_source(const struct walk *walk, const char *key, struct rp_config_of_source *pair)
{
    const struct rp_config *config = walk->config;
    struct rp_key_place place = rp_config_nested_place(config, RP_KEY_stages, pair->place);
    struct rp_text_near near = {.word = pair->name};
    for (uint32_t i = 0; i < config->source_count; i++) {
        pair->source = i;
        if (!strcmp(config->sources[i].name, pair->name))
            return 0;
        rp_text_offer(&near, config->sources[i].name);
    }
    for (uint32_t i = 0; i < config->removed.count; i++) {
        pair->source = config->removed.pairs[i].source;
        if (!strcmp(config->removed.pairs[i].name, pair->name))
            return 0;
    }
    if (near.best)
        return rp_key_fail(place, key, NULL, walk->error,
                           "no source is named `%.100s`; did you mean `%.100s`?", pair->name,
                           near.best);
    return rp_key_fail(place, key, "`ringpack config show sources` lists them", walk->error,
                       "no source is named `%.100s`", pair->name);
}

static int find_sources(const struct walk *walk, const char *key, struct rp_config_by_source *map)
{
    bool *seen = rp_calloc(rp_config_numbered(walk->config), sizeof *seen);
    int code = seen ? 0 : rp_fail(walk->error, -ENOMEM, NULL, "out of memory for the stages");
    for (uint32_t i = 0; i < map->count && code == 0; i++) {
        struct rp_config_of_source *pair = &map->pairs[i];
        code = find_source(walk, key, pair);
        if (code == 0 && seen[pair->source])
            code = rp_key_fail(rp_config_nested_place(walk->config, RP_KEY_stages, pair->place),
                               key, "keep one of the two", walk->error,
                               "the source `%.100s` is named twice", pair->name);
        if (code == 0)
            seen[pair->source] = true;
    }
    free(seen);
    return code;
}

static int check_maps(const struct walk *walk)
{
    struct rp_config_stage *stage = walk->stage;
    int code = find_sources(walk, "weights", &stage->weights);
    if (code == 0)
        code = find_sources(walk, "limits", &stage->limits);
    if (code == 0)
        code = find_sources(walk, "without", &stage->without);
    return code == 0 ? find_sources(walk, "documents", &stage->documents) : code;
}

/* ---- weights --------------------------------------------------------------------------------- */

static int reduce_weights(const struct walk *walk)
{
    struct rp_config_by_source *weights = &walk->stage->weights;
    uint64_t divisor = 0;
    for (uint32_t i = 0; i < weights->count; i++)
        divisor = rp_gcd_u64(divisor, weights->pairs[i].number);
    if (divisor == 0)
        return FAIL_STAGE(walk, weights, "give at least one source a weight above 0",
                          "all weights of stage %u are 0", walk->number);
    for (uint32_t i = 0; i < weights->count; i++) {
        if (weights->pairs[i].number / divisor > UINT32_MAX)
            return FAIL_STAGE(walk, weights,
                              "use fewer digits: only the ratios of weights count, as of 7.2 and "
                              "1.3",
                              "the weights of stage %u have no common scale below 2^32",
                              walk->number);
        weights->pairs[i].weight = (uint32_t)(weights->pairs[i].number / divisor);
    }
    return 0;
}

static int check_weights(struct walk *walk)
{
    const struct rp_config_stage *stage = walk->stage;
    if (!sets(walk, RP_STAGE_KEY_weights))
        return stage->ramp == 0 ? 0
                                : FAIL_STAGE(walk, ramp, "add `weights` to the stage",
                                             "stage %u sets no weights to move to", walk->number);
    if (walk->number == 0 && stage->ramp > 0)
        return FAIL_STAGE(walk, ramp, "give a first stage with the weights to begin with",
                          "stage 0 has no weights before it to move from");
    if (stage->from < walk->ramp_end)
        return FAIL_STAGE(walk, weights, "end it before, or set the weights later",
                          "stage %u begins at row %" PRIu64
                          ", and the ramp of stage %u ends at row "
                          "%" PRIu64,
                          walk->number, stage->from, walk->ramp_stage, walk->ramp_end);
    walk->ramp_end = stage->from + stage->ramp;
    walk->ramp_stage = walk->number;
    return reduce_weights(walk);
}

/* ---- rows and batches ------------------------------------------------------------------------ */

static int check_rows(struct walk *walk)
{
    const struct rp_config_stage *stage = walk->stage;
    uint32_t most = stage->max_docs_per_row, group = walk->config->group;
    bool is_new = sets(walk, RP_STAGE_KEY_seq_len) || sets(walk, RP_STAGE_KEY_align);
    if (walk->config->is_repeated && walk->number > 0 && sets(walk, RP_STAGE_KEY_seq_len) &&
        walk->seq_len != stage->seq_len) /* such a stage ends the engine, and each pass with it */
        return FAIL_STAGE(walk, seq_len, "make two streams of it, one of each seq_len",
                          "stage %u changes seq_len from %u to %u, and a pass over stream %s has "
                          "rows of one length",
                          walk->number, walk->seq_len, stage->seq_len,
                          rp_config_stream_name(walk->config));
    if (sets(walk, RP_STAGE_KEY_seq_len))
        walk->seq_len = stage->seq_len;
    if (sets(walk, RP_STAGE_KEY_align))
        walk->align = stage->align;
    if (is_new && walk->seq_len % walk->align != 0)
        return FAIL_STAGE(walk, seq_len, NULL, "seq_len %u of stage %u is no multiple of align %u",
                          walk->seq_len, walk->number, walk->align);
    if (is_new && walk->seq_len < group)
        return FAIL_STAGE(walk, seq_len, NULL, "seq_len %u of stage %u is below group, which is %u",
                          walk->seq_len, walk->number, group);
    if (sets(walk, RP_STAGE_KEY_max_docs_per_row) && (most < group || most > walk->seq_len))
        return FAIL_STAGE(walk, max_docs_per_row, NULL,
                          "expected %u … %u (group and seq_len of stage %u), found %u", group,
                          walk->seq_len, walk->number, most);
    return 0;
}

/* Stage 0 has the sizes of the config. */
static int check_first_batches(const struct walk *walk)
{
    const struct rp_config_stage *stage = walk->stage;
    if (sets(walk, RP_STAGE_KEY_batch_size) && stage->batch_size != walk->config->batch_size)
        return FAIL_STAGE(walk, batch_size, "set the key batch_size of the config",
                          "stage 0 has %u, and the config %u", stage->batch_size,
                          walk->config->batch_size);
    if (sets(walk, RP_STAGE_KEY_global_batch_size) &&
        stage->global_batch_size != walk->config->global_batch_size)
        return FAIL_STAGE(walk, global_batch_size, "set the key global_batch_size of the config",
                          "stage 0 has %" PRIu64 ", and the config %" PRIu64,
                          stage->global_batch_size, walk->config->global_batch_size);
    return 0;
}

static int check_batches(struct walk *walk)
{
    const struct rp_config_stage *stage = walk->stage;
    if (sets(walk, RP_STAGE_KEY_batch_size))
        walk->batch_size = stage->batch_size;
    if (sets(walk, RP_STAGE_KEY_global_batch_size))
        walk->step_rows = stage->global_batch_size;
    uint64_t rows = (uint64_t)walk->batch_size * walk->config->dp_world_size;
    if (walk->step_rows % rows != 0)
        return FAIL_STAGE(walk, global_batch_size, NULL,
                          "%" PRIu64 " rows of a step of stage %u are no multiple of %" PRIu64
                          " (batch_size * dp_world_size)",
                          walk->step_rows, walk->number, rows);
    if ((uint64_t)walk->batch_size * walk->seq_len > INT32_MAX)
        return FAIL_STAGE(walk, batch_size, NULL,
                          "batch_size * seq_len of stage %u is %" PRIu64
                          "; at most 2147483647 tokens fit a batch",
                          walk->number, (uint64_t)walk->batch_size * walk->seq_len);
    return walk->number == 0 ? check_first_batches(walk) : 0;
}

/* ---- the end of a stage ---------------------------------------------------------------------- */

static int fail_backwards(const struct walk *walk, const char *unit, uint64_t begin)
{
    return FAIL_STAGE(walk, until, "`until` counts from the beginning of the stream",
                      "stage %u begins at %s %" PRIu64 ", and would end at %" PRIu64, walk->number,
                      unit, begin, walk->stage->until.number);
}

static int fail_between(const struct walk *walk)
{
    uint64_t from = walk->stage->from, row = walk->stage->until.number;
    uint64_t below = row - (row - from) % walk->step_rows;
    char rows[64];
    if (below > from)
        snprintf(rows, sizeof rows, "row %" PRIu64 " or row %" PRIu64, below,
                 below + walk->step_rows);
    else
        snprintf(rows, sizeof rows, "row %" PRIu64, below + walk->step_rows);
    return FAIL_STAGE(walk, until, NULL,
                      "row %" PRIu64 " is within a step of %" PRIu64
                      " rows; stage %u may end at %s",
                      row, walk->step_rows, walk->number, rows);
}

/* Such a stage may begin inside a step, for instance at the end of a stream that continues. */
static bool sets_limits_only(const struct rp_config_stage *stage)
{
    for (uint32_t key = 0; key < RP_STAGE_KEY_COUNT; key++)
        if (stage->places[key].line != 0 && key != RP_STAGE_KEY_until && key != RP_STAGE_KEY_limits)
            return false;
    return true;
}

/* Set *end to the first row after the stage. */
static int find_end(const struct walk *walk, wide *end)
{
    const struct rp_config_stage *stage = walk->stage;
    uint64_t number = stage->until.number;
    wide step_tokens = (wide)walk->seq_len * walk->step_rows;
    switch (stage->until.unit) {
    case RP_UNTIL_STEPS:
        if (number <= stage->first_step)
            return fail_backwards(walk, "step", stage->first_step);
        *end = stage->from + (wide)(number - stage->first_step) * walk->step_rows;
        break;
    case RP_UNTIL_TOKENS:
        if (number <= walk->places)
            return fail_backwards(walk, "token", (uint64_t)walk->places);
        *end = stage->from +
               (number - walk->places + step_tokens - 1) / step_tokens * walk->step_rows;
        break;
    default:
        if (number <= stage->from)
            return fail_backwards(walk, "row", stage->from);
        if ((number - stage->from) % walk->step_rows != 0 && !sets_limits_only(stage + 1))
            return fail_between(walk);
        *end = number;
        break;
    }
    return 0;
}

/* Where the next stage begins. */
static int begin_next(struct walk *walk, struct rp_config_stage *next)
{
    wide end = 0;
    if (!sets(walk, RP_STAGE_KEY_until))
        return FAIL_STAGE(walk, until, "add `until: N steps`, `N tokens` or `row N`",
                          "stage %u has no end, and stage %u follows it", walk->number,
                          walk->number + 1);
    int code = find_end(walk, &end);
    if (code < 0)
        return code;
    walk->places += (end - walk->stage->from) * walk->seq_len;
    if (end > ROWS_MAX || walk->places > ROWS_MAX)
        return FAIL_STAGE(walk, until, NULL, "stage %u would end after 2^63 rows or tokens",
                          walk->number);
    next->from = (uint64_t)end;
    next->first_step = walk->stage->first_step +
                       rp_div_up(next->from - walk->stage->from, walk->step_rows);
    return 0;
}

static int finish_stage(struct walk *walk)
{
    struct rp_config_stages *stages = &walk->config->stages;
    bool is_last = walk->number + 1 == stages->count;
    int code = check_maps(walk);
    if (code == 0)
        code = check_weights(walk);
    if (code == 0)
        code = check_rows(walk);
    if (code == 0)
        code = check_batches(walk);
    if (code < 0)
        return code;
    walk->stage->step_rows = walk->step_rows;
    walk->stage->batch_rows = (uint64_t)walk->batch_size * walk->config->dp_world_size;
    if (is_last && sets(walk, RP_STAGE_KEY_until))
        return FAIL_STAGE(walk, until, "leave it out, or add a stage after it",
                          "the last stage ends with the stream");
    return is_last ? 0 : begin_next(walk, walk->stage + 1);
}

/* ---- skips ----------------------------------------------------------------------------------- */

static int compare_ranges(const void *a, const void *b)
{
    const struct rp_config_range *left = a, *right = b;
    return (left->first > right->first) - (left->first < right->first);
}

static int finish_skips(struct rp_config *config, struct rp_error *error)
{
    struct rp_config_skip *skip = &config->skip;
    uint32_t count = skip->rows.count + skip->steps.count, kept = 0;
    if (count == 0)
        return 0;
    struct rp_config_range *all = rp_calloc(count, sizeof *all);
    if (!all)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for the skips");
    if (skip->rows.count)
        memcpy(all, skip->rows.ranges, skip->rows.count * sizeof *all);
    skip->all.ranges = all;
    for (uint32_t i = 0; i < skip->steps.count; i++) {
        const struct rp_config_range *steps = &skip->steps.ranges[i];
        uint64_t first, end;
        if (!rp_config_row_of_step(config, steps->first, &first) ||
            !rp_config_row_of_step(config, steps->end, &end))
            return rp_key_fail(rp_config_nested_place(config, RP_KEY_skip, steps->place), "steps",
                               NULL, error, "step %" PRIu64 " has rows above 2^63", steps->end - 1);
        all[skip->rows.count + i] = (struct rp_config_range){first, end, steps->place};
    }
    qsort(all, count, sizeof *all, compare_ranges);
    for (uint32_t i = 0; i < count; i++) {
        if (kept > 0 && all[i].first <= all[kept - 1].end)
            all[kept - 1].end = rp_max_u64(all[kept - 1].end, all[i].end);
        else
            all[kept++] = all[i];
    }
    skip->all.count = kept;
    return 0;
}

int rp_config_finish_stages(struct rp_config *config, struct rp_error *error)
{
    struct walk walk = {.config = config,
                        .seq_len = config->seq_len,
                        .align = config->align,
                        .batch_size = config->batch_size,
                        .step_rows = config->global_batch_size,
                        .error = error};
    bool sets_rows = config->stages.count &&
                     (config->stages.stages[0].places[RP_STAGE_KEY_seq_len].line ||
                      config->stages.stages[0].places[RP_STAGE_KEY_align].line);
    if (config->stream_version == 1)
        return 0;
    if (!sets_rows && (config->seq_len % config->align != 0 || config->seq_len < config->group))
        return rp_key_fail(rp_config_key_place(config, RP_KEY_seq_len), "seq_len", NULL, error,
                           "expected a multiple of align %" PRIu32 ", and at least group %" PRIu32
                           "; found %" PRIu32,
                           config->align, config->group, config->seq_len);
    int code = 0;
    for (uint32_t i = 0; i < config->stages.count && code == 0; i++) {
        walk.stage = &config->stages.stages[i];
        walk.number = i;
        code = finish_stage(&walk);
    }
    return code == 0 ? finish_skips(config, error) : code;
}
