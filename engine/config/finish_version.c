/* SPDX-License-Identifier: Apache-2.0 */
/* finish_version.c — the keys of stream version 2 (engine/plan/STREAM2.md): refused with version 1,
 * checked with version 2. Keys of stages are in finish_stages.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "config/key.h"
#include "corpus/range.h"

#define NAME_BYTES_MAX 63u /* STREAM2.md section 1.2 */
#define HINT_2 "write `stream_version: 2`"

struct rp_key_place rp_config_key_place(const struct rp_config *config, enum rp_key_index key)
{
    uint32_t line = config->lines[key];
    return line == RP_CONFIG_OPTION ? (struct rp_key_place){0}
                                    : (struct rp_key_place){config->called, line, 0};
}

struct rp_key_place rp_config_nested_place(const struct rp_config *config, enum rp_key_index key,
                                           struct rp_config_place place)
{
    static const char *const options[] = {
        [RP_KEY_deal] = "--deal", [RP_KEY_stages] = "--stages", [RP_KEY_skip] = "--skip"};
    bool is_option = config->lines[key] == RP_CONFIG_OPTION;
    return (struct rp_key_place){is_option ? options[key] : config->called, place.line,
                                 place.column};
}

void rp_config_place_text(const struct rp_config *config, const char *key,
                          struct rp_config_place place, char *text, size_t bytes)
{
    size_t i = rp_key_index(&rp_config_key_list, key);
    RP_ASSERT(i < RP_KEY_COUNT);
    struct rp_key_place at = rp_config_nested_place(config, (enum rp_key_index)i, place);
    text[0] = '\0';
    if (at.path && at.line)
        snprintf(text, bytes, "%.200s:%u:%u: ", at.path, at.line, at.column);
}

static struct rp_key_place source_key_place(const struct rp_config *config,
                                            const struct rp_config_source *source,
                                            enum rp_source_key_index key)
{
    struct rp_config_place place = source->places[key];
    if (source->line == 0)
        return (struct rp_key_place){0}; /* an option's */
    return (struct rp_key_place){config->called, place.line ? place.line : source->line,
                                 place.column};
}

#define FAIL_SOURCE(config, source, key, hint, error, ...)                                         \
    rp_key_fail(source_key_place(config, source, RP_SOURCE_KEY_##key), #key, hint, error,          \
                __VA_ARGS__)

/* ---- one version or the other ---------------------------------------------------------------- */

/* A key that needs version 2, in a stream of version 1. */
static int fail_later(const struct rp_config *config, struct rp_key_place place, const char *key,
                      const char *what, struct rp_error *error)
{
    if (config->version_from == RP_VERSION_KEPT)
        return rp_key_fail(
            place, key,
            "leave it out, and the run continues; to use it, begin a new stream in a "
            "checkpoint_dir of its own",
            error,
            "%s is of stream version 2, and the run that is resumed here is of "
            "version 1",
            what);
    return rp_key_fail(place, key, HINT_2, error,
                       "%s is of stream version 2, and this stream is of version 1", what);
}

static int check_source_of_1(const struct rp_config *config, const struct rp_config_source *source,
                             struct rp_error *error)
{
    static const enum rp_source_key_index later[] = {
        RP_SOURCE_KEY_select,        RP_SOURCE_KEY_repeat,     RP_SOURCE_KEY_unseen_of,
        RP_SOURCE_KEY_unseen_source, RP_SOURCE_KEY_atomic,     RP_SOURCE_KEY_too_long,
        RP_SOURCE_KEY_max_epochs,    RP_SOURCE_KEY_max_tokens, RP_SOURCE_KEY_on_exhausted};
    const struct rp_key *dropped = &rp_source_key_table[RP_SOURCE_KEY_drop_untrained];
    for (size_t i = 0; i < RP_ARRAY_COUNT(later); i++)
        if (source->places[later[i]].line)
            return fail_later(config, source_key_place(config, source, later[i]),
                              rp_source_key_table[later[i]].name, "this key", error);
    if (rp_key_is(dropped, source, "fragment"))
        return fail_later(config, source_key_place(config, source, RP_SOURCE_KEY_drop_untrained),
                          dropped->name, "`fragment`", error);
    if (source->weight == 0)
        return FAIL_SOURCE(config, source, weight,
                           "leave the source out; with `stream_version: 2` it waits", error,
                           "expected a number above 0 with at most 6 decimals, such as 2 or 0.25, "
                           "found `0`");
    return 0;
}

static int check_keys_of_1(const struct rp_config *config, struct rp_error *error)
{
    static const enum rp_key_index later[] = {
        RP_KEY_align,  RP_KEY_spread, RP_KEY_group,
        RP_KEY_bos_id, RP_KEY_eos_id, RP_KEY_label_across_cuts,
        RP_KEY_deal,   RP_KEY_stages, RP_KEY_skip,
        RP_KEY_grow,   RP_KEY_removed};
    for (size_t i = 0; i < RP_ARRAY_COUNT(later); i++)
        if (config->lines[later[i]])
            return fail_later(config, rp_config_key_place(config, later[i]),
                              rp_config_key_table[later[i]].name, "this key", error);
    int code = 0;
    for (uint32_t i = 0; i < config->source_count && code == 0; i++)
        code = check_source_of_1(config, &config->sources[i], error);
    return code;
}

void rp_config_keep_version(struct rp_config *config, uint32_t version)
{
    if (config->stream_version != 0)
        return;
    config->stream_version = version;
    config->version_from = RP_VERSION_KEPT;
}

bool rp_config_reads_alike(const struct rp_config *config)
{
    bool are_alike = config->stages.count == 0;
    for (uint32_t i = 0; i < config->source_count; i++) {
        const struct rp_config_source *source = &config->sources[i];
        are_alike &= !source->places[RP_SOURCE_KEY_max_epochs].line && !source->limits.max_tokens &&
                     !source->select && !source->repeat.count;
    }
    return are_alike;
}

bool rp_config_fits_each_version(const struct rp_config *config)
{
    return config->lines[RP_KEY_stream_version] == 0 && config->plan_partitions == 1 &&
           check_keys_of_1(config, NULL) == 0;
}

int rp_config_check_version(struct rp_config *config, struct rp_error *error)
{
    if (config->stream_version == 0) {
        config->stream_version = RP_STREAM_VERSION_NEW;
        config->version_from = RP_VERSION_NEW;
    }
    if (config->stream_version == 1)
        return check_keys_of_1(config, error);
    if (config->plan_partitions > 1)
        return RP_KEY_FAIL(config, plan_partitions,
                           "leave it out, because `spread` mixes long documents; or write "
                           "`stream_version: 1`",
                           error,
                           "expected 1, found %" PRIu32 ": the key is of stream version 1 only",
                           config->plan_partitions);
    return 0;
}

/* ---- version 2 ------------------------------------------------------------------------------- */

/* Formats other than these two do not end a document with a token that is declared. */
static bool ends_with(const struct rp_config_source *source, uint32_t eos_id)
{
    bool is_declared = source->eos >= 0 && source->eos == (int64_t)eos_id;
    return is_declared && (!strcmp(source->format, "auto") || !strcmp(source->format, "raw") ||
                           !strcmp(source->format, "npy"));
}

static int check_range(const struct rp_config *config, const struct rp_config_source *source,
                       struct rp_error *error)
{
    struct rp_document_range range;
    if (!source->documents || !rp_range_parse(source->documents, &range) || range.is_percent ||
        range.first % config->group == 0)
        return 0;
    return FAIL_SOURCE(config, source, documents, NULL, error,
                       "expected a FIRST that is a multiple of group, which is %" PRIu32
                       "; found `%.60s`",
                       config->group, source->documents);
}

static int finish_source(const struct rp_config *config, struct rp_config_source *source,
                         struct rp_error *error)
{
    const struct rp_key *too_long = &rp_source_key_table[RP_SOURCE_KEY_too_long];
    bool truncates = rp_key_is(too_long, source, "truncate");
    if (!source->places[RP_SOURCE_KEY_max_epochs].line)
        source->limits.max_epochs = config->num_epochs;
    if (strlen(source->name) > NAME_BYTES_MAX)
        return FAIL_SOURCE(config, source, name, "give it a shorter `name:`", error,
                           "expected a name of at most %u bytes, found `%.100s`", NAME_BYTES_MAX,
                           source->name);
    if (source->places[RP_SOURCE_KEY_too_long].line && !source->atomic && config->group == 1)
        return FAIL_SOURCE(config, source, too_long, "add `atomic: true`, or use `long_doc`", error,
                           "documents of `%.100s` may be cut, and only atomic ones can be too long",
                           source->name);
    if (truncates && config->group > 1)
        return FAIL_SOURCE(config, source, too_long, "use `drop` or `error`", error,
                           "a group of %" PRIu32 " documents cannot be truncated", config->group);
    if (source->unseen_source && !source->unseen_of)
        return FAIL_SOURCE(config, source, unseen_source, "add `unseen_of: FILE`", error,
                           "it names a source of the state of unseen_of, which is not given");
    if (ends_with(source, config->eos_id))
        return FAIL_SOURCE(config, source, eos, "leave eos_id out", error,
                           "documents of `%.100s` end with token %" PRIu32
                           " already, which eos_id would insert once more",
                           source->name, config->eos_id);
    return check_range(config, source, error);
}

static int check_tokens(const struct rp_config *config, struct rp_error *error)
{
    static const enum rp_key_index keys[] = {RP_KEY_bos_id, RP_KEY_eos_id};
    uint64_t limit = config->token_dtype == RP_DTYPE_U16   ? 1u << 16
                     : config->token_dtype == RP_DTYPE_I32 ? 1u << 31
                                                           : 1ull << 32;
    if (config->vocab_size)
        limit = rp_min_u64(limit, config->vocab_size);
    for (size_t i = 0; i < RP_ARRAY_COUNT(keys); i++) {
        uint64_t token = rp_key_number(&rp_config_key_table[keys[i]], config);
        if (token != RP_CONFIG_CHOSEN && token >= limit)
            return rp_key_fail(
                rp_config_key_place(config, keys[i]), rp_config_key_table[keys[i]].name, NULL,
                error, "expected a token id below %" PRIu64 ", found %" PRIu64, limit, token);
    }
    return 0;
}

/* ---- a cost in a deal ------------------------------------------------------------------------ */

static bool is_cost(const struct rp_config_deal *deal, const struct rp_cost *cost)
{
    bool has_window = cost->h > 0;
    return deal->cost == cost->k && deal->window_layers * cost->b == deal->layers * cost->h &&
           (!has_window || deal->attention_window == cost->w);
}

static int check_cost(const struct rp_config *config, const struct rp_config_deal *deal,
                      enum rp_key_index key, struct rp_error *error)
{
    if (!(deal->sets & RP_DEAL_COST) || is_cost(deal, &config->cost.cost))
        return 0;
    return rp_key_fail(
        rp_config_nested_place(config, key, deal->place), "deal",
        "leave `cost` out of the deal: it takes the key `cost`. A deal that rows "
        "were delivered with stays as it is: leave out the key",
        error,
        "its cost %" PRIu32 ", with %" PRIu32 " of %" PRIu32 " layers of a window of %" PRIu32
        ", is not the key `cost`: %" PRIu32 ", %u of %u, %" PRIu32,
        deal->cost, deal->window_layers, deal->layers, deal->attention_window, config->cost.cost.k,
        config->cost.cost.h, config->cost.cost.b, config->cost.cost.w);
}

/* Batches and reports would show costs by which rows were not dealt. */
static int check_costs(const struct rp_config *config, struct rp_error *error)
{
    if (config->lines[RP_KEY_cost] == 0)
        return 0;
    int code = check_cost(config, &config->deal, RP_KEY_deal, error);
    for (uint32_t i = 0; i < config->stages.count && code == 0; i++)
        code = check_cost(config, &config->stages.stages[i].deal, RP_KEY_stages, error);
    return code;
}

int rp_config_finish_version(struct rp_config *config, struct rp_error *error)
{
    bool is_block = RP_KEY_IS(config, shuffle, "block");
    if (config->stream_version == 1)
        return 0;
    if (is_block && config->block_documents % config->group != 0)
        return RP_KEY_FAIL(config, block_documents, NULL, error,
                           "expected a multiple of group, which is %" PRIu32 "; found %" PRIu32,
                           config->group, config->block_documents);
    if (config->label_across_cuts && config->label_mode == RP_LABELS_ALIGNED)
        return RP_KEY_FAIL(config, label_across_cuts, "choose label_mode: shifted", error,
                           "label_mode is aligned, which has no place for such a label");
    int code = check_costs(config, error);
    if (code == 0)
        code = check_tokens(config, error);
    for (uint32_t i = 0; i < config->source_count && code == 0; i++)
        code = finish_source(config, &config->sources[i], error);
    return code;
}
