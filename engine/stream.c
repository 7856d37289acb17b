/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "config/description.h"
#include "corpus/sides.h"
#include "stream_spec.h"
#include "plan/v2/spec.h"

#define SIDE_ROW_BYTES_MAX (1u << 30)

/* The config module numbers these words in the order of STREAM.md; it may not include plan.h. */
_Static_assert(RP_SHUFFLE_NONE == 0 && RP_SHUFFLE_DOCUMENT == 1 && RP_SHUFFLE_BLOCK == 2,
               "shuffle");
_Static_assert(RP_PACKING_LOOKAHEAD == 0 && RP_PACKING_CONCAT == 1 && RP_PACKING_BEST_FIT == 2,
               "packing");
_Static_assert(RP_ROW_GAP_PAD == 0 && RP_ROW_GAP_SPLIT == 1, "row_gap");
_Static_assert(RP_LONG_DOC_SPLIT == 0 && RP_LONG_DOC_TRUNCATE == 1 && RP_LONG_DOC_DROP == 2,
               "long_doc");

struct rp_source_spec *rp_stream_sources(const struct rp_config *config)
{
    struct rp_source_spec *specs = rp_calloc(config->source_count, sizeof *specs);
    for (uint32_t i = 0; specs && i < config->source_count; i++) {
        const struct rp_config_source *source = &config->sources[i];
        specs[i] = (struct rp_source_spec){
            .name = source->name,
            .weight = source->weight,
            .shards = (const char *const *)source->shards,
            .shard_count = source->shard_count,
            .eos = source->eos,
            .column = source->column,
            .mask = {.name = source->mask, .value = source->mask_value, .of = source->mask_of},
            .drop_untrained = source->drop_untrained != RP_KEEP_UNTRAINED,
            .keeps_untrained = source->drop_untrained == RP_DROP_FRAGMENTS,
            .documents = source->documents};
        /* rp_config_finish has checked both words */
        bool known = rp_format_parse(source->format, &specs[i].format) &&
                     (!source->dtype || rp_token_type_parse(source->dtype, &specs[i].type));
        RP_ASSERT(known);
    }
    return specs;
}

/* Whether the line is `source[NNNN].name` of this source, which STREAM2.md section 14 escapes. */
static bool names_source(const struct rp_field *field, const char *name)
{
    char escaped[3 * RP_SOURCE_NAME_MAX + 4];
    size_t length = 0;
    bool is_name = field->name_bytes == strlen("source[0000].name") &&
                   memcmp(field->name, "source[", strlen("source[")) == 0 &&
                   memcmp(field->name + strlen("source[0000]"), ".name", strlen(".name")) == 0;
    for (; is_name && *name && length + 4 < sizeof escaped; name++) {
        unsigned char byte = (unsigned char)*name;
        bool is_plain = byte >= ' ' && byte <= '~' && byte != '\\';
        length += (size_t)snprintf(escaped + length, sizeof escaped - length,
                                   is_plain ? "%c" : "\\%02x", byte);
    }
    return is_name && length == field->value_bytes && memcmp(escaped, field->value, length) == 0;
}

/* Bounds of percent keep the documents that the source had when the run began. */
static void take_recorded_range(struct rp_source_spec *spec, const struct rp_record *run)
{
    struct rp_field field;
    char wanted[sizeof "].range[0000]"] = {0};
    size_t at = 0, text = spec->documents ? strlen(spec->documents) : 0;
    if (text == 0 || spec->documents[text - 1] != '%')
        return;
    while (!wanted[0] && rp_record_next(run, &at, &field))
        if (names_source(&field, spec->name))
            snprintf(wanted, sizeof wanted, "].range[%.4s]", field.name + strlen("source["));
    size_t head = strlen("record[0000"), bytes = strlen(wanted);
    for (at = 0; wanted[0] && rp_record_next(run, &at, &field);)
        if (field.name_bytes == head + bytes && memcmp(field.name + head, wanted, bytes) == 0)
            snprintf(spec->recorded, sizeof spec->recorded, "%.*s", (int)field.value_bytes,
                     field.value);
}

/* The entries of a row are one read. */
static int check_sides(const struct rp_config *config, const struct rp_corpus *corpus,
                       struct rp_error *error)
{
    const struct rp_sides *sides = rp_corpus_sides(corpus);
    int code = 0;
    for (uint32_t c = 0; c < sides->count && code == 0; c++) {
        uint64_t bytes = (config->seq_len + 1ull) * sides->columns[c].type.bytes; /* a row's */
        if (bytes > SIDE_ROW_BYTES_MAX)
            code = rp_fail(error, -RP_E_CONFIG, "lower seq_len, or make the entries shorter",
                           "column `%s`: expected at most %u bytes of a row, found %" PRIu64,
                           sides->columns[c].name, SIDE_ROW_BYTES_MAX, bytes);
    }
    return code;
}

/* Documents of a corpus that `ringpack convert` tokenized are pairs if it says so; documents that
 * were tokenized elsewhere are taken as pairs in their order. */
static int check_pairs(const struct rp_config *config, const struct rp_corpus *corpus,
                       struct rp_error *error)
{
    char mask[RP_MASK_NAME_BYTES + 64];
    if (strcmp(config->profile, "pairs") != 0 ||
        !rp_ids_know_tokenizer(rp_corpus_tokenizer(corpus)))
        return 0;
    for (uint32_t i = 0; i < config->source_count; i++) {
        const struct rp_source *source = rp_corpus_source(corpus, i);
        rp_source_mask_text(source, mask, sizeof mask);
        if (strncmp(mask, RP_MASK_OF_PAIRS, strlen(RP_MASK_OF_PAIRS)) != 0)
            return rp_fail(error, -RP_E_CONFIG,
                           "make pairs of rows with `chosen` and `rejected`, without --mask none: "
                           "`ringpack convert -o OUTPUT --tokenizer TOKENIZER pairs.jsonl`",
                           "profile: pairs: source \"%s\" has no pairs: expected documents with "
                           "the mask " RP_MASK_OF_PAIRS ", found mask %s",
                           rp_source_name(source), mask);
    }
    return 0;
}

int rp_stream_open_corpus_with(struct rp_corpus **corpus_out, const struct rp_config *config,
                               bool allow_missing, const struct rp_record *run,
                               const struct rp_corpus_gate *gate, struct rp_error *error)
{
    struct rp_source_spec *specs = rp_stream_sources(config);
    if (!specs)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for %u sources", config->source_count);
    struct rp_corpus_spec spec = {.sources = specs,
                                  .source_count = config->source_count,
                                  .index_dir = rp_config_index_dir(config),
                                  .index = rp_config_index_file(config),
                                  .cache_dir = config->cache_dir,
                                  .allow_missing_data = allow_missing,
                                  .gate = gate};
    for (uint32_t i = 0; run && config->stream_version > 1 && i < config->source_count; i++)
        take_recorded_range(&specs[i], run);
    const char *names[RP_SIDES_MAX];
    for (uint32_t c = 0; c < config->sides.count; c++)
        names[c] = config->sides.names[c];
    const struct rp_sides_spec sides = {names, config->sides.of, config->sides.count};
    spec.sides = &sides;
    int code = rp_corpus_open(corpus_out, &spec, error);
    free(specs);
    if (code < 0)
        return code;
    code = check_sides(config, *corpus_out, error);
    if (code == 0)
        code = check_pairs(config, *corpus_out, error);
    if (code < 0) {
        rp_corpus_close(*corpus_out);
        *corpus_out = NULL;
    }
    return code;
}

int rp_stream_open_corpus(struct rp_corpus **corpus_out, const struct rp_config *config,
                          bool allow_missing, struct rp_error *error)
{
    return rp_stream_open_corpus_with(corpus_out, config, allow_missing, NULL, NULL, error);
}

/* Bytes that a cache needs to keep all shards that are objects in stores. */
static uint64_t object_bytes_of(const struct rp_corpus *corpus)
{
    uint64_t bytes = 0;
    uint32_t count = rp_corpus_first_object(corpus) ? rp_corpus_data_count(corpus) : 0;
    for (uint32_t i = 0; i < count; i++)
        if (rp_corpus_shard(corpus, i)->url)
            bytes += rp_align_up(rp_corpus_shard(corpus, i)->bytes, RP_BLOCK_BYTES);
    return bytes;
}

/* Each document would cost a request: that is refused, unless a cache can hold all of them. */
static int check_requests(const struct rp_config *config, const struct rp_corpus *corpus,
                          const struct rp_shard *object, struct rp_error *error)
{
    if (config->shuffle != RP_SHUFFLE_DOCUMENT)
        return 0; /* object_bytes_of sums over all shards */
    uint64_t object_bytes = object_bytes_of(corpus);
    if (config->cache_bytes >= object_bytes)
        return 0;
    return rp_fail(
        error, -RP_E_CONFIG,
        "set `shuffle: block`, which reads about a thousand documents at once; or let the "
        "cache hold all objects: `cache_bytes` of at least that much",
        "%s: with `shuffle: document`, each document in a store would cost a request in every "
        "epoch: the objects take %" PRIu64 " bytes, and cache_bytes is %" PRIu64,
        object->path, object_bytes, config->cache_bytes);
}

int rp_stream_choose_io(struct rp_io_chosen *chosen, const struct rp_config *config,
                        const struct rp_corpus *corpus, char *why, struct rp_error *error)
{
    static const char *const names[] = {
        [RP_IO_AUTO] = NULL, [RP_IO_URING] = "io_uring", [RP_IO_PREAD] = "pread"};
    enum rp_io_choice io = config->io == RP_IO_MAPPED ? RP_IO_AUTO : config->io;
    const struct rp_shard *object = rp_corpus_first_object(corpus);
    int code = object ? check_requests(config, corpus, object, error) : 0;
    if (code < 0)
        return code;
    const char *begin = object ? "objects in stores are read with libcurl, and files by " : "";
    size_t length = strlen(begin);
    memcpy(why, begin, length + 1);
    *chosen = (struct rp_io_chosen){.may_fall_back = names[io] == NULL};
    code = rp_io_choose(names[io], &chosen->file_method, why + length, RP_STREAM_WHY_BYTES - length,
                        error);
    chosen->method = object ? rp_io_objects() : chosen->file_method;
    RP_ASSERT(code < 0 || chosen->method); /* else the object's URL would have been refused */
    return code;
}

static struct rp_plan_config plan_config_of(const struct rp_config *config,
                                            const struct rp_corpus *corpus)
{
    struct rp_fingerprint fingerprint = rp_corpus_fingerprint(corpus);
    return (struct rp_plan_config){.seed = config->seed,
                                   .num_epochs = config->num_epochs,
                                   .seq_len = config->seq_len,
                                   .shuffle = (enum rp_shuffle)config->shuffle,
                                   .block_documents = config->block_documents,
                                   .window_blocks = config->window_blocks,
                                   .packing = (enum rp_packing)config->packing,
                                   .window = rp_config_window(config),
                                   .row_gap = (enum rp_row_gap)config->row_gap,
                                   .long_doc = (enum rp_long_doc)config->long_doc,
                                   .max_docs_per_row = config->max_docs_per_row,
                                   .lanes = config->plan_partitions,
                                   .corpus_sampled = fingerprint.sampled,
                                   .corpus_full = fingerprint.full,
                                   .tokenizer = rp_corpus_tokenizer(corpus)->hash,
                                   .weight_unit = config->weight_unit};
}

/* The sources as the plan sees them; the caller frees them. NULL when out of memory. */
static struct rp_plan_source *plan_sources_of(const struct rp_config *config,
                                              const struct rp_corpus *corpus,
                                              struct rp_error *error)
{
    struct rp_plan_source *sources = rp_calloc(config->source_count, sizeof *sources);
    if (!sources)
        (void)rp_fail(error, -ENOMEM, NULL, "out of memory for %u sources", config->source_count);
    for (uint32_t i = 0; sources && i < config->source_count; i++) {
        const struct rp_source *source = rp_corpus_source(corpus, i);
        sources[i] = (struct rp_plan_source){.documents = rp_source_documents(source),
                                             .weight = config->sources[i].weight,
                                             .lengths = source,
                                             .length = rp_source_length,
                                             .length_many = rp_source_length_many,
                                             .name = rp_source_name(source)};
    }
    return sources;
}

static void close_compiled(void *compiled)
{
    rp_compiled_close(compiled);
}

/* A plan of version 2, which owns its compiled config. */
static int open_compiled_plan(struct rp_plan **plan_out, const struct rp_config *config,
                              const struct rp_corpus *corpus, struct rp_error *error)
{
    struct rp_compiled *compiled = NULL;
    *plan_out = NULL;
    int code = rp_compiled_open(&compiled, config, corpus, error);
    if (code == 0)
        code = rp_plan_open_stream(plan_out, rp_compiled_spec(compiled), error);
    if (code < 0)
        rp_compiled_close(compiled);
    else
        rp_plan_own(*plan_out, compiled, close_compiled);
    return code;
}

int rp_stream_open_plan_with(struct rp_plan **plan_out, const struct rp_config *config,
                             const struct rp_corpus *corpus, const struct rp_docs_per_row *found,
                             struct rp_error *error)
{
    if (config->stream_version > 1)
        return open_compiled_plan(plan_out, config, corpus, error);
    struct rp_plan_config plan_config = plan_config_of(config, corpus);
    struct rp_plan_source *sources = plan_sources_of(config, corpus, error);
    if (!sources)
        return -ENOMEM;
    if (plan_config.max_docs_per_row == 0)
        plan_config.max_docs_per_row = found->standard;
    int code = rp_plan_open(plan_out, &plan_config, sources, config->source_count, error);
    free(sources);
    return code;
}

int rp_stream_open_plan(struct rp_plan **plan_out, const struct rp_config *config,
                        const struct rp_corpus *corpus, struct rp_error *error)
{
    struct rp_docs_per_row found = {0};
    bool given = config->max_docs_per_row != 0;
    int code = given ? 0 : rp_stream_docs_per_row(&found, config, corpus, error);
    return code < 0 ? code : rp_stream_open_plan_with(plan_out, config, corpus, &found, error);
}

static void add_masks(struct rp_record_writer *writer, const struct rp_config *config,
                      const struct rp_corpus *corpus)
{
    char text[96];
    for (uint32_t i = 0; i < config->source_count; i++) {
        const struct rp_source *source = rp_corpus_source(corpus, i);
        rp_source_mask_text(source, text, sizeof text);
        if (rp_source_has_mask(source))
            rp_contract_add_of(writer, "source", i, "mask", "%s", text);
    }
}

/* In the order of the names of their fields, in which a bracket follows the name. */
static int compare_columns(const struct rp_side_info *a, const struct rp_side_info *b)
{
    char names[2][RP_SIDE_NAME_BYTES + 1];
    snprintf(names[0], sizeof names[0], "%s]", a->name);
    snprintf(names[1], sizeof names[1], "%s]", b->name);
    return strcmp(names[0], names[1]);
}

static void add_sides(struct rp_record_writer *writer, const struct rp_sides *sides)
{
    const struct rp_side_info *sorted[RP_SIDES_MAX];
    char names[RP_SIDES_MAX * RP_SIDE_NAME_BYTES] = "", type[RP_SIDE_TYPE_BYTES];
    size_t used = 0;
    for (uint32_t c = 0; c < sides->all; c++) {
        uint32_t place = c;
        for (; place > 0 && compare_columns(&sides->columns[c], sorted[place - 1]) < 0; place--)
            sorted[place] = sorted[place - 1];
        sorted[place] = &sides->columns[c];
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", c ? "," : "",
                                 sides->columns[c].name);
    }
    for (uint32_t c = 0; c < sides->all; c++) {
        const struct rp_side_info *info = sorted[c];
        char content[RP_HASH_HEX_BYTES], field[RP_SIDE_NAME_BYTES + 20];
        rp_sidefile_type_text(&info->type, type);
        snprintf(field, sizeof field, "column[%s].content", info->name);
        rp_contract_add(writer, field, "%s", rp_hash128_hex(info->content, content));
        snprintf(field, sizeof field, "column[%s].type", info->name);
        rp_contract_add(writer, field, "%s%s", type,
                        info->of == RP_SIDE_OF_LABEL      ? ", label"
                        : info->of == RP_SIDE_OF_DOCUMENT ? ", document"
                                                          : "");
    }
    if (sides->all)
        rp_contract_add(writer, "columns", "%s", names);
}

int rp_stream_make_contract(char **text_out, struct rp_contract *contract_out,
                            const struct rp_config *config, const struct rp_corpus *corpus,
                            const struct rp_plan *plan, struct rp_error *error)
{
    /* keys of the configuration, in alphabetical order; the masks of sources follow sections */
    static const char *const delivery[] = {"batch_size",        "dp_world_size", "drop_last",
                                           "global_batch_size", "label_mode",    "pad_id",
                                           "sections",          "token_dtype"};
    struct rp_record_writer writer = {0};
    rp_plan_contract(plan, &writer);
    rp_record_end(&writer);
    for (size_t i = 0; i < RP_ARRAY_COUNT(delivery); i++) {
        char value[RP_RECORD_VALUE_MAX + 1];
        rp_config_value_text(config, delivery[i], value, sizeof value);
        rp_contract_add(&writer, delivery[i], "%s", value);
        if (!strcmp(delivery[i], "sections")) {
            add_masks(&writer, config, corpus);
            rp_config_add_batches(&writer, config);
        }
        if (!strcmp(delivery[i], "batch_size"))
            add_sides(&writer, rp_corpus_sides(corpus));
    }
    *text_out = writer.text;
    if (writer.out_of_memory)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for the contract of the run");
    return rp_contract_open(contract_out, writer.text, writer.bytes, error);
}

int rp_stream_check_columns(const struct rp_contract *had, const struct rp_contract *has,
                            struct rp_error *error)
{
    static const struct rp_contract_sides sides = {RP_AT_RESUME, "the checkpoint", "this run", 0,
                                                   0};
    const struct rp_contract before = {has->stream, had->delivery}; /* the plan compares streams */
    return rp_contract_compare(&before, has, &sides, error);
}

/* In version 2 each stage has a default of its own, in the calendar. The estimate of the cost is of
 * rows that only the lengths of the documents decide. */
static bool has_plain_rows(const struct rp_config *config)
{
    return rp_config_reads_alike(config) && config->group == 1 && config->align == 1 &&
           config->bos_id == RP_CONFIG_CHOSEN && config->eos_id == RP_CONFIG_CHOSEN;
}

int rp_stream_docs_per_row(struct rp_docs_per_row *found, const struct rp_config *config,
                           const struct rp_corpus *corpus, struct rp_error *error)
{
    *found = (struct rp_docs_per_row){0};
    if (config->stream_version > 1 && !has_plain_rows(config))
        return 0;
    struct rp_plan_config plan_config = plan_config_of(config, corpus);
    struct rp_plan_source *sources = plan_sources_of(config, corpus, error);
    if (!sources)
        return -ENOMEM;
    int code = rp_docs_per_row(found, &plan_config, sources, config->source_count, error);
    free(sources);
    return code;
}

bool rp_stream_docs_per_row_text(const struct rp_docs_per_row *found,
                                 const struct rp_config *config, char *text, size_t bytes)
{
    if (found->cost <= RP_DOCS_PER_ROW_COST_MAX)
        return false;
    bool given = config->max_docs_per_row != 0;
    snprintf(text, bytes,
             "max_docs_per_row is %u%s: about %.0f %% of the tokens in a batch are padding because "
             "documents are so short that rows end before they are full; `max_docs_per_row: %u` "
             "fills them (that is another stream: a run that is resumed keeps its value)",
             given ? config->max_docs_per_row : found->standard,
             given ? "" : ", as much as state tokens of best_fit have room for", 100 * found->cost,
             found->wanted);
    return true;
}

/* ---- unverified tokens ----------------------------------------------------------------------- */

struct rp_source_part rp_stream_unverified(const struct rp_config *config,
                                           const struct rp_corpus *corpus, uint32_t number)
{
    const struct rp_source *source = rp_corpus_source(corpus, number);
    return config->verify_blocks == RP_SWITCH_OFF ? rp_source_whole(source)
                                                  : rp_source_unverified(source);
}

uint64_t rp_stream_token_limit(const struct rp_config *config)
{
    uint64_t limit = config->token_dtype == RP_DTYPE_U16   ? 1u << 16
                     : config->token_dtype == RP_DTYPE_I32 ? 1u << 31
                                                           : 1ull << 32; /* as vocab_size */
    return config->vocab_size ? rp_min_u64(limit, config->vocab_size) : limit;
}

/* Weights are shares of the tokens, so a source has bytes in proportion to its bytes a token. */
struct rp_unverified_share rp_stream_unverified_share(const struct rp_config *config,
                                                      const struct rp_corpus *corpus)
{
    double all_tokens = 0, all_bytes = 0;
    struct rp_unverified_share share = {0, 0};
    for (uint32_t i = 0; i < config->source_count; i++) {
        struct rp_source_part whole = rp_source_whole(rp_corpus_source(corpus, i));
        struct rp_source_part found = rp_stream_unverified(config, corpus, i);
        double weight = (double)config->sources[i].weight / (double)whole.tokens;
        all_tokens += weight * (double)whole.tokens;
        all_bytes += weight * (double)whole.bytes;
        share.tokens += weight * (double)found.tokens;
        share.bytes += weight * (double)found.bytes;
    }
    share.tokens /= all_tokens;
    share.bytes /= all_bytes;
    return share;
}
