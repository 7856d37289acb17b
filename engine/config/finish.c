/* SPDX-License-Identifier: Apache-2.0 */
/* finish.c — check ranges and combinations once all keys are read, and set derived values.
 *
 * Errors: -RP_E_CONFIG with the line of the key, the value found, and the legal values. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/cpus.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "config/key.h"
#include "config/packers.h"
#include "corpus/index/index.h"
#include "corpus/range.h"
#include "object/url.h"

/* Compare whole numbers with their bounds. A number that was not given and has no default is 0
 * here: it is set later, or it is required and missing. */
static int check_ranges(struct rp_config *config, struct rp_error *error)
{
    for (size_t i = 0; i < RP_KEY_COUNT; i++) {
        const struct rp_key *key = &rp_config_key_table[i];
        struct rp_key_place place = rp_config_key_place(config, (enum rp_key_index)i);
        bool is_required = !strcmp(key->standard, "(required)");
        if (config->lines[i] == 0 && is_required && key->kind != RP_KIND_SOURCES &&
            rp_key_number(key, config) == 0)
            return rp_key_fail(place, key->name, "add it to the config, or give it as an option",
                               error, "required, but not given: %s", key->help);
        int code = config->lines[i] == 0 ? 0 : rp_key_check(key, config, place, error);
        if (code < 0)
            return code;
    }
    return 0;
}

static int check_run(struct rp_config *config, struct rp_error *error)
{
    size_t length = strlen(config->run);
    bool legal = length <= 64;
    for (size_t i = 0; i < length; i++)
        legal &= isalnum((unsigned char)config->run[i]) || strchr("._-", config->run[i]);
    if (!legal || config->run[0] == '.')
        return RP_KEY_FAIL(
            config, run, NULL, error,
            "expected 1 … 64 letters, digits, dots, dashes and underscores, not beginning"
            " with a dot; found `%.100s`",
            config->run);
    return 0;
}

/* ---- the index ------------------------------------------------------------------------------- */

/* A name that ends with .rpi, a file that is there, or an object is the index of all sources. */
static bool is_index_file(const char *path)
{
    struct stat info;
    if (stat(path, &info) == 0)
        return !S_ISDIR(info.st_mode);
    return rp_url_is(path) || rp_text_has_suffix(path, RP_INDEX_SUFFIX);
}

static int finish_index(struct rp_config *config, struct rp_error *error)
{
    const char *old = config->manifest ? "manifest" : config->index_dir ? "index_dir" : NULL;
    config->index_is_file = config->index && is_index_file(config->index);
    if (old && config->index)
        return RP_KEY_FAIL(config, index, "leave the older key out", error,
                           "`%s` is an older name of this key, and both are given", old);
    if (old)
        rp_log(RP_LOG_WARNING,
               "config: `%s` is now `index`; the next version does not read the older name", old);
    return 0;
}

/* ---- sources --------------------------------------------------------------------------------- */

static struct rp_key_place source_place(const struct rp_config *config,
                                        const struct rp_config_source *source)
{
    return source->line ? (struct rp_key_place){config->called, source->line, 0}
                        : (struct rp_key_place){0};
}

/* corpus/part-0.bin -> part-0; c4/ -> c4, for a directory that does not exist */
static char *stem_of_path(const char *path)
{
    const char *end = path + strlen(path);
    while (end > path && end[-1] == '/')
        end--;
    const char *name = end;
    while (name > path && name[-1] != '/')
        name--;
    const char *dot = memrchr(name, '.', (size_t)(end - name));
    return rp_asprintf("%.*s", (int)((dot && dot > name ? dot : end) - name), name);
}

/* The query of a URL, which may hold a secret, is no part of its name. */
static char *stem_of(const char *shard)
{
    char *name = rp_url_is(shard) ? rp_url_name(shard) : strdup(shard);
    char *stem = name ? stem_of_path(name) : NULL;
    free(name);
    return stem;
}

/* Then no pattern is expanded, and no shard examined: the index has them. */
static bool has_index(const struct rp_config *config)
{
    return rp_config_index_file(config) && !config->ignores_index;
}

static int finish_source(struct rp_config *config, struct rp_config_source *source,
                         struct rp_error *error)
{
    struct rp_key_place place = source_place(config, source);
    if (source->shard_count == 0)
        return rp_key_fail(place, "sources", "give it `shards:`", error,
                           "the source names no shard");
    if (source->eos < -1)
        return rp_key_fail(place, "eos", NULL, error,
                           "expected a token id, or -1 for none; found %" PRId64, source->eos);
    struct rp_document_range range;
    if (source->documents && !rp_range_parse(source->documents, &range))
        return rp_key_fail(place, "documents", "quote it: documents: \"0-90%\"", error,
                           "expected %s; found `%.60s`", RP_RANGE_WORDS, source->documents);
    int code = has_index(config) ? 0 : rp_config_source_expand(source, place, error);
    if (code == 0)
        code = rp_key_fill_texts(&rp_source_key_list, source, error);
    if (code == 0 && !source->name && !has_index(config) &&
        !(source->name = stem_of(source->shards[0])))
        code = rp_fail(error, -ENOMEM, NULL, "out of memory while naming sources");
    return code;
}

/* A source without a name gets the name of its first shard, which the index knows. The open of the
 * corpus checks whether this is the index of these sources. */
static int take_names(struct rp_config *config, struct rp_error *error)
{
    struct rp_index *index = NULL;
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < config->source_count; i++) {
        struct rp_config_source *source = &config->sources[i];
        if (source->name)
            continue;
        if (!index)
            code = rp_index_open_place(&index, rp_config_index_file(config), config->cache_dir,
                                       error);
        if (code < 0)
            break;
        source->name = i < index->source_count ? strdup(index->sources[i].texts[RP_INDEX_NAME])
                                               : stem_of(source->shards[0]);
        if (!source->name)
            code = rp_fail(error, -ENOMEM, NULL, "out of memory while naming sources");
    }
    rp_index_close(index);
    return code;
}

static int check_names(struct rp_config *config, struct rp_error *error)
{
    uint32_t count = rp_config_numbered(config);
    char **names = rp_calloc(count, sizeof *names);
    if (!names)
        return rp_fail(error, -ENOMEM, NULL, "out of memory while naming sources");
    for (uint32_t i = 0; i < config->source_count; i++)
        names[i] = config->sources[i].name;
    for (uint32_t i = config->source_count; i < count; i++) {
        struct rp_config_of_source *removed = &config->removed.pairs[i - config->source_count];
        removed->source = i;
        names[i] = removed->name;
    }
    const char *twin;
    int code = rp_first_twin(names, count, &twin, error);
    free(names);
    if (code == 0 && twin)
        code = RP_KEY_FAIL(config, sources, "give each of them a `name:` of its own", error,
                           "two sources are named `%.200s`", twin);
    return code;
}

static int finish_weights(struct rp_config *config, struct rp_error *error)
{
    uint64_t divisor = 0;
    for (uint32_t i = 0; i < config->source_count; i++)
        divisor = rp_gcd_u64(divisor, config->sources[i].weight);
    for (uint32_t i = 0; i < config->removed.count; i++)
        divisor = rp_gcd_u64(divisor, config->removed.pairs[i].number);
    if (divisor == 0)
        return RP_KEY_FAIL(config, sources, "give at least one source a weight above 0", error,
                           "all sources have the weight 0");
    config->weight_unit = divisor;
    for (uint32_t i = 0; i < config->source_count; i++) {
        struct rp_config_source *source = &config->sources[i];
        source->weight /= divisor;
        struct rp_key_place place = source_place(config, source);
        if (source->weight > UINT32_MAX)
            return rp_key_fail(
                place, "weight",
                "use fewer digits: only the ratios of weights count, as of 7.2 and 1.3", error,
                "the weights have no common scale below 2^32");
    }
    for (uint32_t i = 0; i < config->removed.count; i++) {
        struct rp_config_of_source *removed = &config->removed.pairs[i];
        if (removed->number / divisor > UINT32_MAX)
            return RP_KEY_FAIL(config, removed, "give it the weight that it had", error,
                               "the weights have no common scale below 2^32");
        removed->weight = (uint32_t)(removed->number / divisor);
    }
    return 0;
}

static int finish_sources(struct rp_config *config, struct rp_error *error)
{
    if (config->source_count == 0 && config->lines[RP_KEY_sources])
        return RP_KEY_FAIL(config, sources, "name the files with the tokens: `sources: [PATH]`",
                           error, "expected at least one source, found an empty list");
    if (config->source_count == 0)
        return RP_KEY_FAIL(config, sources, "add `sources: [PATH]`", error,
                           "required, but not given: where the tokens are");
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < config->source_count; i++)
        code = finish_source(config, &config->sources[i], error);
    if (code == 0 && has_index(config))
        code = take_names(config, error);
    if (code == 0)
        code = check_names(config, error);
    return code == 0 ? finish_weights(config, error) : code;
}

/* ---- the stream and the batches -------------------------------------------------------------- */

static int finish_stream(struct rp_config *config, struct rp_error *error)
{
    if (config->max_docs_per_row > config->seq_len)
        return RP_KEY_FAIL(config, max_docs_per_row, NULL, error,
                           "expected at most seq_len, which is %u; found %u", config->seq_len,
                           config->max_docs_per_row);
    if (RP_KEY_IS(config, packing, "concat") && RP_KEY_IS(config, row_gap, "pad") &&
        config->lines[RP_KEY_row_gap])
        return RP_KEY_FAIL(config, row_gap, "leave row_gap out, or choose packing: lookahead",
                           error, "packing: concat always splits; `pad` cannot be had with it");
    return 0;
}

/* The divisors of n up to `most`, for messages: "1, 2, 4". */
static void list_divisors(uint64_t n, uint64_t most, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint64_t d = 1; d <= most && d <= n && used + 32 < bytes; d++)
        if (n % d == 0)
            used += (size_t)snprintf(text + used, bytes - used, "%s%" PRIu64, used ? ", " : "", d);
}

/* STREAM.md section 6: a step is a whole number of micro-batches on every rank. */
static int finish_step(struct rp_config *config, struct rp_error *error)
{
    uint64_t rows = config->batch_size, world = config->dp_world_size;
    if (config->global_batch_size == 0)
        config->global_batch_size = rows * world;
    uint64_t step = config->global_batch_size;
    char legal[200];
    if (step % rows != 0) {
        list_divisors(step, rows, legal, sizeof legal);
        return RP_KEY_FAIL(config, batch_size, NULL, error,
                           "%" PRIu64 " does not divide global_batch_size %" PRIu64
                           "; legal up to it: %s",
                           rows, step, legal);
    }
    if (step / rows % world != 0) {
        list_divisors(step / rows, 1u << 20, legal, sizeof legal);
        return RP_KEY_FAIL(config, dp_world_size, NULL, error,
                           "batch_size %" PRIu64 " * dp_world_size %" PRIu64
                           " does not divide global_batch_size %" PRIu64
                           "; legal dp_world_size with this batch_size: %s",
                           rows, world, step, legal);
    }
    return 0;
}

static int finish_ranks(struct rp_config *config, struct rp_error *error)
{
    if (config->rank_count == 0)
        config->rank_count = config->dp_world_size;
    uint64_t end = (uint64_t)config->rank_first + config->rank_count;
    if (end > config->dp_world_size)
        return RP_KEY_FAIL(config, ranks, NULL, error,
                           "expected ranks below dp_world_size %u, found %" PRIu64,
                           config->dp_world_size, end - 1);
    return 0;
}

#define BIT(section) (1u << RP_SECTION_##section)

/* The sections and types that frameworks expect. */
static const struct profile {
    const char *name;
    uint32_t sections;
    enum rp_dtype dtype;
    enum rp_label_mode labels;
} profiles[] = {
    {"min", BIT(CU_SEQLENS), RP_DTYPE_I32, RP_LABELS_SHIFTED},
    {"hf", BIT(LABELS) | BIT(POSITION_IDS) | BIT(CU_SEQLENS), RP_DTYPE_I64, RP_LABELS_ALIGNED},
    {"trl", BIT(LABELS) | BIT(POSITION_IDS) | BIT(CU_SEQLENS), RP_DTYPE_I64, RP_LABELS_ALIGNED},
    {"megatron", BIT(LABELS) | BIT(POSITION_IDS) | BIT(LOSS_MASK) | BIT(CU_SEQLENS), RP_DTYPE_I64,
     RP_LABELS_SHIFTED},
    {"grain", BIT(SEGMENT_IDS) | BIT(POSITION_IDS), RP_DTYPE_I32, RP_LABELS_SHIFTED},
    {"olmo", BIT(LOSS_MASK), RP_DTYPE_I64, RP_LABELS_SHIFTED},
    {"torchtitan", BIT(LABELS) | BIT(POSITION_IDS) | BIT(CU_SEQLENS), RP_DTYPE_I64,
     RP_LABELS_SHIFTED},
    {"pairs", BIT(LABELS), RP_DTYPE_I64, RP_LABELS_ALIGNED},
    {"full", (1u << RP_SECTION_ROW_PLANS) - 1, RP_DTYPE_I32, RP_LABELS_SHIFTED},
};

static int check_token_dtype(const struct rp_config *config, struct rp_error *error)
{
    bool u16 = config->token_dtype == RP_DTYPE_U16;
    int64_t least = u16 ? 0 : config->token_dtype == RP_DTYPE_I32 ? INT32_MIN : INT64_MIN;
    int64_t most = u16 ? UINT16_MAX : config->token_dtype == RP_DTYPE_I32 ? INT32_MAX : INT64_MAX;
    if (config->pad_id < least || config->pad_id > most)
        return RP_KEY_FAIL(config, pad_id, NULL, error,
                           "expected %" PRId64 " … %" PRId64 " (token_dtype), found %" PRId64,
                           least, most, config->pad_id);
    if (config->vocab_size > (uint64_t)most + 1)
        return RP_KEY_FAIL(config, vocab_size, "choose a wider token_dtype", error,
                           "token ids up to %" PRIu64 " do not fit token_dtype",
                           config->vocab_size - 1);
    return 0;
}

static int finish_batch(struct rp_config *config, struct rp_error *error)
{
    int index = rp_word_index(RP_PROFILES, config->profile);
    RP_ASSERT(index >= 0 && !strcmp(profiles[index].name, config->profile));
    const struct profile *profile = &profiles[index];
    if (!strcmp(profile->name, "pairs") && config->group % 2 != 0)
        return RP_KEY_FAIL(config, profile, "add `group: 2`", error,
                           "pairs: expected a group of 2 documents, found %" PRIu32, config->group);
    uint32_t always = BIT(ROWS) | BIT(DOC_LENS) | BIT(INPUT_IDS), listed = config->sections;
    if (!config->lines[RP_KEY_sections] || config->lines[RP_KEY_profile])
        config->sections |= profile->sections;
    config->sections |= always;
    if (listed & (profile->sections | always))
        config->sections_unlisted = config->sections & ~always & ~listed;
    if (!config->lines[RP_KEY_label_mode])
        config->label_mode = profile->labels;
    if (config->token_dtype == RP_DTYPE_NONE)
        config->token_dtype = profile->dtype;
    if ((uint64_t)config->batch_size * config->seq_len > INT32_MAX)
        return RP_KEY_FAIL(config, batch_size, NULL, error,
                           "batch_size * seq_len is %" PRIu64
                           "; at most 2147483647 tokens fit a batch",
                           (uint64_t)config->batch_size * config->seq_len);
    return check_token_dtype(config, error);
}

/* `checkpoint_dir: none`: no other key of checkpoints counts. */
static void leave_checkpoints_out(struct rp_config *config)
{
    free(config->checkpoint_dir);
    free(config->checkpoint_mirror_dir);
    config->checkpoint_dir = config->checkpoint_mirror_dir = NULL;
    config->checkpoint_steps = 0;
    config->resume = RP_RESUME_AUTO;
}

static int finish_machine(struct rp_config *config, struct rp_error *error)
{
    if (config->checkpoint_dir && !strcmp(config->checkpoint_dir, "none"))
        leave_checkpoints_out(config);
    /* At least 2: one batch that the trainer holds, and one that is being filled. */
    config->prefetch_factor = (uint32_t)rp_pow2_at_least(rp_max_u64(2, config->prefetch_factor));
    struct rp_cpus cpus;
    if (config->cpus && !rp_cpus_parse(&cpus, config->cpus))
        return RP_KEY_FAIL(config, cpus, NULL, error,
                           "expected CPUs below %u, like 0-7,16-23; found `%.100s`", RP_CPUS_MAX,
                           config->cpus);
    const char *hint = "add `checkpoint_dir: PATH`";
    if (!config->checkpoint_dir && config->checkpoint_steps)
        return RP_KEY_FAIL(config, checkpoint_steps, hint, error,
                           "there is no checkpoint_dir to write to");
    if (!config->checkpoint_dir && config->resume == RP_RESUME_REQUIRED)
        return RP_KEY_FAIL(config, resume, hint, error, "required, but there is no checkpoint_dir");
    if (!config->checkpoint_dir && config->checkpoint_mirror_dir)
        return RP_KEY_FAIL(config, checkpoint_mirror_dir, hint, error,
                           "there is no checkpoint_dir to copy");
    if (config->checkpoint_mirror_dir &&
        !strcmp(config->checkpoint_mirror_dir, config->checkpoint_dir))
        return RP_KEY_FAIL(config, checkpoint_mirror_dir, "choose a directory on another disk",
                           error, "it is the same as checkpoint_dir");
    rp_config_choose_packers(config);
    return 0;
}

int rp_config_make_private(struct rp_config *config, struct rp_error *error)
{
    free(config->alert_command);
    config->alert_command = NULL;
    config->alert_starved_ms = 0;
    config->alert_skew_rows = config->alert_disk_free = 0;
    return rp_config_set(config, "mount_guard_dir", "none", error);
}

static int fill_texts(struct rp_config *config, struct rp_error *error)
{
    return rp_key_fill_texts(&rp_config_key_list, config, error);
}

int rp_config_finish(struct rp_config *config, struct rp_error *error)
{
    typedef int finish(struct rp_config *, struct rp_error *);
    static finish *const steps[] = {rp_config_choose_stream,
                                    fill_texts,
                                    check_ranges,
                                    rp_config_check_version,
                                    rp_config_finish_packing,
                                    check_run,
                                    finish_index,
                                    finish_sources,
                                    finish_stream,
                                    finish_step,
                                    finish_ranks,
                                    finish_batch,
                                    rp_config_finish_sides,
                                    rp_config_finish_version,
                                    rp_config_finish_stages,
                                    rp_config_finish_batches,
                                    finish_machine};
    int code = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(steps) && code == 0; i++)
        code = steps[i](config, error);
    return code;
}
