/* SPDX-License-Identifier: Apache-2.0 */
/* finish_packing.c — the packing of each stage, and its size: `packing_buffer` of lookahead,
 * `open_bins` of best_fit.
 *
 * The two sizes are independent: a stage packs with the newest value of the key of its own packing,
 * or with its default. A key is refused where its packing packs no row. `window`, the older name of
 * both, sets both. */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "config/key.h"

#define SIZES 2u

static const struct size {
    const char *packing;
    enum rp_key_index key;
    enum rp_stage_key_index of_stage;
} sizes[SIZES] = {
    {"lookahead", RP_KEY_packing_buffer, RP_STAGE_KEY_packing_buffer},
    {"best_fit", RP_KEY_open_bins, RP_STAGE_KEY_open_bins},
};

static const char *name_of(const struct size *size)
{
    return rp_config_key_table[size->key].name;
}

static uint32_t packing_of(const struct size *size)
{
    return (uint32_t)rp_word_index(rp_config_key_table[RP_KEY_packing].words, size->packing);
}

/* The size of a packing; NULL: concat, which has none. */
static const struct size *size_of(uint32_t packing)
{
    for (size_t i = 0; i < SIZES; i++)
        if (packing_of(&sizes[i]) == packing)
            return &sizes[i];
    return NULL;
}

uint32_t rp_config_window(const struct rp_config *config)
{
    return RP_KEY_IS(config, packing, "best_fit") ? config->open_bins : config->packing_buffer;
}

/* Refuse the size of a packing that is not in force. `used`: of the packing in force, or NULL. */
static int fail_unused(struct rp_key_place place, const struct size *size, const struct size *used,
                       struct rp_error *error)
{
    char hint[96];
    const char *packing = used ? used->packing : "concat";
    if (used)
        snprintf(hint, sizeof hint, "give `%s`, or choose packing: %s", name_of(used),
                 size->packing);
    else
        snprintf(hint, sizeof hint, "leave it out, or choose packing: %s", size->packing);
    return rp_key_fail(place, name_of(size), hint, error,
                       "it is the size of packing: %s, and packing is %s", size->packing, packing);
}

/* ---- the config ------------------------------------------------------------------------------ */

static bool packs(const struct rp_config *config, uint32_t packing)
{
    bool packs = config->packing == packing;
    for (uint32_t i = 0; i < config->stages.count; i++) {
        const struct rp_config_stage *stage = &config->stages.stages[i];
        packs |= stage->places[RP_STAGE_KEY_packing].line && stage->packing == packing;
    }
    return packs;
}

/* Options replace keys of a stream, and these replace keys at the top. */
static int level_of(const struct rp_config *config, enum rp_key_index key)
{
    return config->lines[key] == RP_CONFIG_OPTION ? 2 : config->of_stream[key];
}

void rp_config_settle_window(struct rp_config *config)
{
    uint32_t packing = config->packing;
    for (size_t i = 0; i < SIZES; i++) {
        enum rp_key_index key = sizes[i].key;
        if (config->of_window[key] && !packs(config, packing_of(&sizes[i])))
            config->lines[key] = 0;
    }
    for (uint32_t i = 0; i < config->stages.count; i++) {
        struct rp_config_stage *stage = &config->stages.stages[i];
        if (stage->places[RP_STAGE_KEY_packing].line)
            packing = stage->packing;
        const struct size *used = stage->has_window ? size_of(packing) : NULL;
        for (size_t k = 0; used && k < SIZES; k++)
            if (&sizes[k] != used)
                stage->places[sizes[k].of_stage] = (struct rp_config_place){0, 0};
    }
}

/* A size that packs no row is left out if a packing has replaced the one that it was given for. */
static int check_size(struct rp_config *config, const struct size *size, struct rp_error *error)
{
    uint32_t *line = &config->lines[size->key];
    if (*line == 0 || packs(config, packing_of(size)))
        return 0;
    if (level_of(config, RP_KEY_packing) <= level_of(config, size->key))
        return fail_unused(rp_config_key_place(config, size->key), size, size_of(config->packing),
                           error);
    *line = 0;
    return 0;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* The stage that is being checked, and what is in force in it. */
struct walk {
    const struct rp_config *config;
    struct rp_config_stage *stage;
    uint32_t number, packing;
    uint32_t newest[SIZES]; /* values of the keys */
    uint32_t window;        /* the newest size in force */
    struct rp_error *error;
};

static struct rp_key_place place_of(const struct walk *walk, enum rp_stage_key_index key)
{
    return rp_config_nested_place(walk->config, RP_KEY_stages, walk->stage->places[key]);
}

static bool sets(const struct walk *walk, enum rp_stage_key_index key)
{
    return walk->stage->places[key].line != 0;
}

static int check_concat(const struct walk *walk)
{
    static const enum rp_stage_key_index of_rows[] = {RP_STAGE_KEY_packing_buffer,
                                                      RP_STAGE_KEY_open_bins, RP_STAGE_KEY_row_gap,
                                                      RP_STAGE_KEY_spread};
    for (size_t i = 0; i < RP_ARRAY_COUNT(of_rows); i++)
        if (sets(walk, of_rows[i]))
            return rp_key_fail(place_of(walk, of_rows[i]), rp_stage_key_table[of_rows[i]].name,
                               "leave it out, or choose another packing", walk->error,
                               "packing is concat in stage %u, which has none", walk->number);
    return 0;
}

static int check_after_concat(const struct walk *walk, const struct size *size)
{
    char hint[64];
    if (sets(walk, size->of_stage) && sets(walk, RP_STAGE_KEY_row_gap))
        return 0;
    snprintf(hint, sizeof hint, "add `%s` and `row_gap` to the stage", name_of(size));
    return rp_key_fail(place_of(walk, RP_STAGE_KEY_packing), "packing", hint, walk->error,
                       "stage %u follows packing: concat, which has neither of them", walk->number);
}

static int take_sizes(struct walk *walk, const struct size *used)
{
    for (size_t i = 0; i < SIZES; i++) {
        const struct size *size = &sizes[i];
        if (!sets(walk, size->of_stage) && !walk->stage->has_window)
            continue;
        walk->newest[i] = (uint32_t)rp_key_number(&rp_stage_key_table[size->of_stage], walk->stage);
        if (size != used && sets(walk, size->of_stage))
            return fail_unused(place_of(walk, size->of_stage), size, used, walk->error);
    }
    return 0;
}

static int finish_stage(struct walk *walk)
{
    struct rp_config_stage *stage = walk->stage;
    bool was_concat = !size_of(walk->packing);
    if (sets(walk, RP_STAGE_KEY_packing))
        walk->packing = stage->packing;
    const struct size *size = size_of(walk->packing);
    if (!size)
        return check_concat(walk);
    int code = take_sizes(walk, size);
    if (code == 0 && was_concat && walk->number > 0)
        code = check_after_concat(walk, size);
    uint32_t window = walk->newest[size - sizes];
    stage->window = sets(walk, size->of_stage) || window != walk->window ? window : 0;
    walk->window = window;
    return code;
}

int rp_config_finish_packing(struct rp_config *config, struct rp_error *error)
{
    struct walk walk = {.config = config,
                        .packing = config->packing,
                        .newest = {config->packing_buffer, config->open_bins},
                        .window = rp_config_window(config),
                        .error = error};
    int code = 0;
    rp_config_settle_window(config);
    for (size_t i = 0; i < SIZES && code == 0; i++)
        code = check_size(config, &sizes[i], error);
    for (uint32_t i = 0; i < config->stages.count && code == 0; i++) {
        walk.stage = &config->stages.stages[i];
        walk.number = i;
        code = finish_stage(&walk);
    }
    return code;
}
