/* SPDX-License-Identifier: Apache-2.0 */
/* list.c — the shards of a build, by their names and the stamps of their files and objects
 * (build_struct.h). */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/text.h"
#include "corpus/index/build_struct.h"
#include "object/url.h"

/* The token file of a shard that is named in a list: a Megatron prefix or .idx stands for its .bin.
 */
static char *token_path(const char *path, struct stat *info)
{
    size_t bytes = strlen(path);
    if (rp_text_has_suffix(path, ".idx"))
        bytes -= 4;
    else if (stat(path, info) == 0 && !S_ISDIR(info->st_mode))
        return strdup(path);
    char *tokens = rp_asprintf("%.*s.bin", (int)bytes, path);
    memset(info, 0, sizeof *info);
    if (tokens && stat(tokens, info) < 0)
        info->st_size = 0; /* opening it will say why */
    return tokens;
}

/* Companion objects are checked later, for all shards at once. */
static int list_object(const struct rp_indexing *build, struct rp_build_shard *shard,
                       const struct rp_remote *remote, uint32_t source, struct rp_error *error)
{
    size_t name_bytes = strlen(remote->name) + 1, identity_bytes = strlen(remote->identity) + 1;
    *shard = (struct rp_build_shard){.path = remote->name,
                                     .stored = malloc(name_bytes + identity_bytes),
                                     .stored_bytes = name_bytes + identity_bytes,
                                     .remote = remote,
                                     .has_identity = remote->is_identified,
                                     .source = source,
                                     .bytes = remote->bytes,
                                     .mtime_ns = rp_hash64(remote->identity, identity_bytes - 1)};
    if (!shard->stored)
        return rp_build_fail_memory(build, error);
    memcpy(shard->stored, remote->name, name_bytes);
    memcpy(shard->stored + name_bytes, remote->identity, identity_bytes);
    return 0;
}

static int list_file(struct rp_indexing *build, struct rp_build_shard *shard, const char *path,
                     uint32_t source, struct rp_error *error)
{
    struct stat info = {0};
    char *tokens = token_path(path, &info);
    *shard = (struct rp_build_shard){
        .path = path,
        .stored = tokens ? rp_index_paths_store(&build->paths, tokens) : NULL,
        .source = source,
        .bytes = (uint64_t)info.st_size,
        .mtime_ns = (uint64_t)info.st_mtim.tv_sec * 1000000000u + (uint64_t)info.st_mtim.tv_nsec};
    bool is_good = shard->stored && rp_build_stat_companions(&shard->companions, tokens,
                                                             &build->options.sources[source].mask,
                                                             build->options.index_dir);
    free(tokens);
    shard->stored_bytes = is_good ? strlen(shard->stored) + 1 : 0;
    return is_good ? 0 : rp_build_fail_memory(build, error);
}

struct listed {
    const char *name, *url; /* without and with its query */
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

/* Neither an index nor the name of a sidecar has the query of a URL, so objects must differ in more
 * than their queries. */
static int check_queries(const struct rp_indexing *build, struct rp_error *error)
{
    struct listed *sorted = rp_calloc(build->remote_count, sizeof *sorted);
    int code = sorted ? 0 : rp_build_fail_memory(build, error);
    for (size_t i = 0; i < build->remote_count && code == 0; i++)
        sorted[i] = (struct listed){build->remotes[i].name, build->remotes[i].url};
    if (code == 0)
        qsort(sorted, build->remote_count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < build->remote_count && code == 0; i++)
        if (!strcmp(sorted[i - 1].name, sorted[i].name) &&
            strcmp(sorted[i - 1].url, sorted[i].url) != 0)
            code = rp_fail(error, -RP_E_CONFIG,
                           "name an object with one query; copy objects that differ only in the "
                           "query to a disk, or to a store where their paths differ",
                           "%s: listed with two queries; an index keeps no query (it may be a "
                           "secret), so it cannot tell two such objects apart",
                           sorted[i].name);
    free(sorted);
    return code;
}

int rp_build_list_shards(struct rp_indexing *build, struct rp_error *error)
{
    const struct rp_indexing_options *options = &build->options;
    uint64_t count = 0;
    for (uint32_t s = 0; s < options->source_count; s++)
        count += options->sources[s].shard_count;
    build->shards = rp_calloc((size_t)count, sizeof *build->shards);
    build->sources = rp_calloc(options->source_count, sizeof *build->sources);
    if (!build->shards || !build->sources)
        return rp_build_fail_memory(build, error);
    int64_t remotes = rp_corpus_open_remotes(
        &build->remotes, options->sources, options->source_count, options->cache_dir, NULL, error);
    if (remotes < 0)
        return (int)remotes;
    build->remote_count = (size_t)remotes;
    int code = remotes ? check_queries(build, error) : 0;
    const struct rp_remote *next = build->remotes;
    for (uint32_t s = 0; s < options->source_count && code == 0; s++) {
        build->sources[s].first = build->shard_count;
        for (uint32_t i = 0; i < options->sources[s].shard_count && code == 0; i++) {
            struct rp_build_shard *shard = &build->shards[build->shard_count++];
            const char *path = options->sources[s].shards[i];
            code = rp_url_is(path) ? list_object(build, shard, next++, s, error)
                                   : list_file(build, shard, path, s, error);
        }
        build->sources[s].count = build->shard_count - build->sources[s].first;
    }
    return code == 0 && build->remote_count ? rp_build_stat_object_companions(build, error) : code;
}
