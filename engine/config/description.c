/* SPDX-License-Identifier: Apache-2.0 */
#include "config/description.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/contract.h"
#include "base/mem.h"
#include "config/key.h"
#include "object/url.h"

#define TEXT_BYTES_MAX (1u << 20) /* as a file of a config has */

/* Both hashes of a corpus, and the folder that was resolved last: shards mostly share one. */
struct walk {
    struct rp_hasher files, paths;
    char folder[PATH_MAX], resolved[PATH_MAX];
};

static void add_number(struct rp_hasher *hasher, uint64_t number)
{
    uint8_t bytes[sizeof number];
    rp_store_u64(bytes, number);
    rp_hasher_add(hasher, bytes, sizeof bytes);
}

/* With its NUL, so that two texts are not one. No text differs from an empty one. */
static void add_text(struct rp_hasher *hasher, const char *text)
{
    add_number(hasher, text != NULL);
    if (text)
        rp_hasher_add(hasher, text, strlen(text) + 1);
}

/* The folder without links, then the name. A folder that is gone is taken as it is written. */
static void add_path(struct walk *walk, const char *path)
{
    const char *name = strrchr(path, '/');
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", name ? (int)(name - path) + 1 : 1, name ? path : ".");
    if (strcmp(folder, walk->folder) != 0) {
        memcpy(walk->folder, folder, sizeof folder);
        if (!realpath(folder, walk->resolved))
            memcpy(walk->resolved, folder, sizeof folder);
    }
    struct rp_hasher *const both[] = {&walk->files, &walk->paths};
    for (size_t i = 0; i < RP_ARRAY_COUNT(both); i++) {
        add_text(both[i], walk->resolved);
        add_text(both[i], name ? name + 1 : path);
    }
}

/* A path names the token file, or is the prefix of a Megatron dataset. A link to a file counts as
 * the file. */
static int add_file(struct walk *walk, const char *path)
{
    struct stat info, link;
    char resolved[PATH_MAX], *data = rp_asprintf("%s.bin", path);
    if (!data)
        return -ENOMEM;
    const char *file = lstat(path, &link) != 0 && lstat(data, &link) == 0 ? data : path;
    bool found = stat(file, &info) == 0;
    bool is_link = found && S_ISLNK(link.st_mode) && realpath(file, resolved);
    add_path(walk, is_link ? resolved : file);
    add_number(&walk->files, found ? (uint64_t)info.st_size : UINT64_MAX);
    add_number(&walk->files, found ? (uint64_t)info.st_mtim.tv_sec : 0);
    add_number(&walk->files, found ? (uint64_t)info.st_mtim.tv_nsec : 0);
    free(data);
    return 0;
}

static int add_shard(struct walk *walk, const char *shard)
{
    if (!rp_url_is(shard))
        return add_file(walk, shard);
    char *id = rp_url_id(shard);
    add_text(&walk->files, id);
    add_text(&walk->paths, id);
    free(id);
    return id ? 0 : -ENOMEM;
}

/* The keys that decide which tokens and labels the files hold. */
static void add_keys(struct walk *walk, const struct rp_config_source *source)
{
    add_number(&walk->files, source->shard_count);
    const char *const texts[] = {source->format, source->dtype,      source->column,
                                 source->mask,   source->mask_value, source->mask_of};
    for (size_t i = 0; i < RP_ARRAY_COUNT(texts); i++)
        add_text(&walk->files, texts[i]);
    add_number(&walk->files, (uint64_t)source->eos);
    add_number(&walk->files, source->drop_untrained);
}

/* The keys that become rows, and that the contract of version 2 has by stage: the trainer's corpus
 * is opened to compare those. In each version, because a trainer's config may fit both. */
static int add_stages(struct rp_hasher *hasher, const struct rp_config *config)
{
    static const char *const keys[] = {"num_epochs", "seq_len", "align", "packing",        "window",
                                       "row_gap",    "spread",  "deal",  "plan_partitions"};
    static const char *const of_source[] = {"name",     "weight",     "documents",  "atomic",
                                            "too_long", "max_epochs", "max_tokens", "on_exhausted"};
    char value[RP_RECORD_VALUE_MAX + 1];
    for (size_t i = 0; i < RP_ARRAY_COUNT(keys); i++) {
        if (strcmp(keys[i], "window") != 0)
            rp_config_value_text(config, keys[i], value, sizeof value);
        else
            snprintf(value, sizeof value, "%" PRIu32, rp_config_window(config));
        add_text(hasher, value);
    }
    for (uint32_t s = 0; s < config->source_count; s++) {
        const struct rp_config_source *source = &config->sources[s];
        for (size_t i = 0; i < RP_ARRAY_COUNT(of_source); i++) {
            rp_config_source_value_text(source, of_source[i], value, sizeof value);
            add_text(hasher, value);
        }
        add_text(hasher, source->select);
        add_text(hasher, source->unseen_source);
        for (uint32_t i = 0; i < source->repeat.count; i++) {
            add_number(hasher, source->repeat.entries[i].count);
            add_text(hasher, source->repeat.entries[i].expression);
        }
    }
    size_t bytes = TEXT_BYTES_MAX;
    char *text = rp_calloc(1, bytes);
    for (uint32_t i = 0; i < config->stages.count && text; i++) {
        const struct rp_config_stage *stage = &config->stages.stages[i];
        bool gives_size = stage->places[RP_STAGE_KEY_packing_buffer].line ||
                          stage->places[RP_STAGE_KEY_open_bins].line;
        rp_config_stage_text(config, i, text, bytes);
        add_number(hasher, stage->from);
        add_text(hasher, text);
        if (stage->window && !gives_size)
            add_number(hasher, stage->window);
    }
    free(text);
    for (uint32_t i = 0; i < config->skip.all.count; i++) {
        add_number(hasher, config->skip.all.ranges[i].first);
        add_number(hasher, config->skip.all.ranges[i].end);
    }
    return text ? 0 : -ENOMEM;
}

static int hash_corpus(struct walk *walk, const struct rp_config *config, struct rp_error *error)
{
    int code = 0;
    struct rp_hasher keys;
    *walk = (struct walk){.folder = ""};
    rp_hasher_begin(&walk->files);
    rp_hasher_begin(&walk->paths);
    rp_hasher_begin(&keys);
    add_number(&walk->files, config->max_docs_per_row); /* 0: it follows from the lengths */
    const char *index_dir = rp_config_index_dir(config), *index = rp_config_index_file(config);
    if (index_dir)
        add_path(walk, index_dir); /* its time changes as sidecars are written */
    if (index)
        code = add_shard(walk, index);
    for (uint32_t s = 0; s < config->source_count; s++) {
        const struct rp_config_source *source = &config->sources[s];
        add_keys(walk, source);
        for (uint32_t i = 0; i < source->shard_count && code == 0; i++)
            code = add_shard(walk, source->shards[i]);
        if (source->unseen_of && code == 0)
            code = add_file(walk, source->unseen_of);
    }
    if (code == 0)
        code = add_stages(&keys, config);
    const struct rp_hash128 found = rp_hasher_finish(&keys);
    struct rp_hasher *const both[] = {&walk->files, &walk->paths};
    for (size_t i = 0; i < RP_ARRAY_COUNT(both); i++)
        rp_hasher_add(both[i], &found, sizeof found);
    return code < 0 ? rp_fail(error, code, NULL, "out of memory for the paths of the corpus") : 0;
}

static void add_value(struct rp_record_writer *writer, const struct rp_config *config,
                      const char *field, const char *key)
{
    char value[RP_RECORD_VALUE_MAX + 1];
    rp_config_value_text(config, key, value, sizeof value);
    rp_contract_add(writer, field, "%s", value);
}

/* The field has the name of its key. */
static void add_key(struct rp_record_writer *writer, const struct rp_config *config,
                    const char *name)
{
    add_value(writer, config, name, name);
}

static void add_corpus(struct rp_record_writer *writer, const struct walk *walk)
{
    char hex[RP_HASH_HEX_BYTES];
    rp_hash128_hex(rp_hasher_finish(&walk->files), hex);
    rp_contract_add(writer, "corpus_files", "%s", hex);
    rp_hash128_hex(rp_hasher_finish(&walk->paths), hex);
    rp_contract_add(writer, "corpus_paths", "%s", hex);
}

/* In the order of their names. A key that a packing or a shuffle does not use is in no contract. */
static void add_stream(struct rp_record_writer *writer, const struct rp_config *config,
                       const struct walk *walk)
{
    bool is_block = RP_KEY_IS(config, shuffle, "block");
    bool has_window = !RP_KEY_IS(config, packing, "concat");
    if (is_block)
        rp_contract_add(writer, "block_documents", "%" PRIu32, config->block_documents);
    add_corpus(writer, walk);
    if (has_window)
        add_value(writer, config, "fill", "row_gap");
    add_value(writer, config, "lanes", "plan_partitions");
    add_key(writer, config, "long_doc");
    if (config->max_docs_per_row)
        rp_contract_add(writer, "max_docs_per_row", "%" PRIu32, config->max_docs_per_row);
    rp_contract_add(writer, "num_epochs", "%" PRIu64, config->num_epochs);
    add_key(writer, config, "packing");
    add_key(writer, config, "seed");
    add_key(writer, config, "seq_len");
    add_key(writer, config, "shuffle");
    for (uint32_t s = 0; s < config->source_count; s++) {
        rp_contract_add_of(writer, "source", s, "name", "%s", config->sources[s].name);
        rp_contract_add_of(writer, "source", s, "weight", "%" PRIu64, config->sources[s].weight);
    }
    rp_contract_add(writer, "sources", "%" PRIu32, config->source_count);
    rp_contract_add(writer, "stream_version", "%" PRIu32, config->stream_version);
    if (has_window)
        rp_contract_add(writer, "window", "%" PRIu32, rp_config_window(config));
    if (is_block)
        rp_contract_add(writer, "window_blocks", "%" PRIu32, config->window_blocks);
}

/* The same of version 2. What a stage may set is in the hash of the files only. */
static void add_stream_2(struct rp_record_writer *writer, const struct rp_config *config,
                         const struct walk *walk)
{
    bool is_block = RP_KEY_IS(config, shuffle, "block");
    rp_contract_add(writer, "block_documents", "%" PRIu32, is_block ? config->block_documents : 0);
    add_key(writer, config, "bos_id");
    add_corpus(writer, walk);
    add_key(writer, config, "eos_id");
    add_key(writer, config, "group");
    rp_contract_add(writer, "label_across_cuts", "%d", config->label_across_cuts);
    if (config->group == 1)
        add_key(writer, config, "long_doc");
    else
        rp_contract_add(writer, "long_doc", "split");
    add_key(writer, config, "seed");
    add_key(writer, config, "shuffle");
    rp_contract_add(writer, "stream_version", "%" PRIu32, config->stream_version);
    rp_contract_add(writer, "window_blocks", "%" PRIu32, is_block ? config->window_blocks : 0);
}

void rp_config_add_batches(struct rp_record_writer *writer, const struct rp_config *config)
{
    for (uint32_t i = 0; i < config->stages.count; i++) {
        const struct rp_config_stage *stage = &config->stages.stages[i];
        if (stage->places[RP_STAGE_KEY_batch_size].line)
            rp_contract_add_of(writer, "stage", i, "batch_size", "%" PRIu32, stage->batch_size);
        if (stage->places[RP_STAGE_KEY_global_batch_size].line)
            rp_contract_add_of(writer, "stage", i, "global_batch_size", "%" PRIu64,
                               stage->global_batch_size);
    }
}

/* The fields that both versions have: the run may have begun as version 1, or begin now as version
 * 2, and the engine knows. */
static void add_stream_of_both(struct rp_record_writer *writer, const struct rp_config *config,
                               const struct walk *walk)
{
    bool is_block = RP_KEY_IS(config, shuffle, "block");
    if (is_block)
        rp_contract_add(writer, "block_documents", "%" PRIu32, config->block_documents);
    add_corpus(writer, walk);
    add_key(writer, config, "long_doc");
    add_key(writer, config, "seed");
    add_key(writer, config, "shuffle");
    if (is_block)
        rp_contract_add(writer, "window_blocks", "%" PRIu32, config->window_blocks);
}

int rp_config_describe(char **text_out, const struct rp_config *config, struct rp_error *error)
{
    /* all of the delivery but its sections: a trainer takes those that it needs */
    static const char *const delivery[] = {"batch_size",        "dp_world_size", "drop_last",
                                           "global_batch_size", "label_mode",    "pad_id",
                                           "token_dtype"};
    struct rp_record_writer writer = {0};
    struct walk walk;
    int code = hash_corpus(&walk, config, error);
    if (code < 0)
        return code;
    if (rp_config_fits_each_version(config))
        add_stream_of_both(&writer, config, &walk);
    else if (config->stream_version == 1)
        add_stream(&writer, config, &walk);
    else
        add_stream_2(&writer, config, &walk);
    rp_record_end(&writer);
    for (size_t i = 0; i < RP_ARRAY_COUNT(delivery); i++) {
        if (!strcmp(delivery[i], "token_dtype"))
            rp_config_add_batches(&writer, config);
        add_key(&writer, config, delivery[i]);
    }
    *text_out = writer.text;
    return writer.out_of_memory ? rp_fail(error, -ENOMEM, NULL, "out of memory for a description")
                                : 0;
}

int rp_config_describe_files(char text[RP_HASH_HEX_BYTES], const struct rp_config *config,
                             struct rp_error *error)
{
    struct walk walk;
    int code = hash_corpus(&walk, config, error);
    if (code == 0)
        rp_hash128_hex(rp_hasher_finish(&walk.files), text);
    return code;
}
