/* SPDX-License-Identifier: Apache-2.0 */
/* listed.c — the shards of a corpus that is opened by an index of all of it (corpus_struct.h).
 *
 * A shard takes no memory until it is used: then its record is read in the mapping, and a
 * struct rp_shard with its path is kept until the corpus is closed. Any thread may be the first to
 * use it; the one that is first to store the pointer wins, and the other frees its own. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "corpus/corpus_struct.h"
#include "object/url.h"

struct listed {
    struct rp_shard shard;
    char *path;
    char *url; /* NULL: it is a file */
};

static void free_listed(struct listed *listed)
{
    if (listed) {
        free(listed->path);
        free(listed->url);
    }
    free(listed);
}

int rp_listed_keep_queries(struct rp_source *source, const struct rp_source_spec *spec,
                           struct rp_error *error)
{
    source->queried = rp_calloc(spec->shard_count, sizeof *source->queried);
    if (!source->queried)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the URLs of the corpus");
    for (uint32_t i = 0; i < spec->shard_count; i++) {
        char *name = rp_url_is(spec->shards[i]) ? rp_url_name(spec->shards[i]) : NULL;
        bool has_query = name && strcmp(name, spec->shards[i]) != 0;
        free(name);
        if (!has_query)
            continue;
        source->queried[source->queried_count] = strdup(spec->shards[i]);
        if (!source->queried[source->queried_count++])
            return rp_fail(error, -ENOMEM, NULL, "no memory for the URLs of the corpus");
    }
    return 0;
}

void rp_listed_close(struct rp_corpus *corpus)
{
    for (uint32_t i = 0; corpus->listed && i < corpus->shard_count; i++) {
        struct listed *listed = (void *)(uintptr_t)rp_a64_load_relaxed(&corpus->listed[i]);
        free_listed(listed);
    }
    for (uint32_t s = 0; s < corpus->source_count; s++) {
        for (uint32_t i = 0; i < corpus->sources[s].queried_count; i++)
            free(corpus->sources[s].queried[i]);
        free(corpus->sources[s].queried);
    }
    free(corpus->listed);
    rp_index_close(corpus->index);
}

/* Whether a URL, of `bytes` bytes without its query, names the object: as the token file, its .idx,
 * its sidecar or its prefix. */
static bool is_url_of(const char *url, size_t bytes, const char *name)
{
    static const struct {
        const char *url, *tokens; /* endings */
    } endings[] = {{"", ""}, {RP_INDEX_SUFFIX, ""}, {".idx", ".bin"}, {"", ".bin"}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(endings); i++) {
        size_t cut = strlen(endings[i].url), stem = bytes - cut;
        if (bytes >= cut && !memcmp(url + stem, endings[i].url, cut) && !strncmp(name, url, stem) &&
            !strcmp(name + stem, endings[i].tokens))
            return true;
    }
    return false;
}

/* The URL of an object, with the query that its own URL has in the configuration, or else the URL
 * of its folder or pattern. A query may be a signature, so it is sent only with the objects that it
 * was given for. The caller frees the URL; NULL when out of memory. */
static char *url_of(const struct rp_source *source, const char *name)
{
    const char *query = "";
    for (uint32_t i = 0; i < source->queried_count; i++) {
        const char *pattern = source->queried[i], *mark = pattern + strcspn(pattern, "?#");
        size_t bytes = (size_t)(mark - pattern), folder = strcspn(pattern, "*[?#");
        bool is_one = folder == bytes && pattern[bytes - 1] != '/';
        while (folder > 0 && pattern[folder - 1] != '/')
            folder--;
        if (is_one && is_url_of(pattern, bytes, name))
            return rp_asprintf("%s%s", name, mark);
        if (!is_one && !strncmp(name, pattern, folder))
            query = mark;
    }
    return rp_asprintf("%s%s", name, query);
}

static const struct rp_source *source_of(const struct rp_corpus *corpus, uint32_t shard)
{
    uint32_t s = 0;
    while (s + 1 < corpus->source_count && corpus->sources[s + 1].first_shard <= shard)
        s++;
    return &corpus->sources[s];
}

static bool get_record(const struct rp_corpus *corpus, uint32_t shard,
                       const struct rp_index_segment **segment, struct rp_index_record *record,
                       char **path)
{
    const struct rp_source *source = source_of(corpus, shard);
    uint32_t own = shard - source->first_shard, g = 0;
    while (g + 1 < source->segment_count && source->segments[g + 1]->first_shard <= own)
        g++;
    *segment = source->segments[g];
    return rp_index_get_record(*segment, own - (*segment)->first_shard, record, path);
}

static bool take_object(struct listed *listed, const struct rp_source *source,
                        const struct rp_index_record *record)
{
    listed->url = url_of(source, listed->path);
    listed->shard.url = listed->url;
    listed->shard.identity = rp_index_identity(listed->shard.segment, record);
    return listed->url && listed->shard.identity;
}

static struct listed *make(const struct rp_corpus *corpus, uint32_t shard)
{
    const struct rp_source *source = source_of(corpus, shard);
    const struct rp_index_segment *segment;
    struct rp_index_record record;
    struct listed *listed = rp_calloc(1, sizeof *listed);
    if (!listed || !get_record(corpus, shard, &segment, &record, &listed->path)) {
        free_listed(listed);
        return NULL;
    }
    bool is_object = rp_url_is(listed->path);
    bool has_idx_time = record.format == RP_FORMAT_MEGATRON && !is_object;
    listed->shard = (struct rp_shard){
        .kind = RP_SHARD_LISTED,
        .path = listed->path,
        .bytes = record.bytes,
        .source = (uint32_t)(source - corpus->sources),
        .type = record.type,
        .block_hashes = rp_index_blocks(segment, &record),
        .block_count = rp_div_up(record.bytes, RP_BLOCK_BYTES),
        .documents = record.documents,
        .tokens = record.tokens,
        .stamp = {.bytes = record.bytes, .mtime_ns = record.mtime_ns},
        .idx_mtime_ns = has_idx_time ? record.companions.idx_ns : 0,
        .segment = segment,
    };
    /* an index in a store names no files: they would be on another machine */
    bool is_allowed = is_object || !rp_url_is(corpus->index->path);
    if (!is_allowed || (is_object && !take_object(listed, source, &record))) {
        free_listed(listed);
        return NULL;
    }
    return listed;
}

const struct rp_shard *rp_listed_shard(const struct rp_corpus *corpus, uint32_t shard)
{
    struct rp_a64 *place = &corpus->listed[shard];
    struct listed *listed = (void *)(uintptr_t)rp_a64_load_acquire(place); /* PAIRS listed-shard */
    if (listed)
        return &listed->shard;
    listed = make(corpus, shard);
    if (!listed)
        return &corpus->damaged;
    uint64_t found = 0;
    if (rp_a64_replace(place, &found, (uintptr_t)listed)) /* PAIRS listed-shard */
        return &listed->shard;
    free_listed(listed);
    listed = (void *)(uintptr_t)found;
    return &listed->shard;
}

bool rp_listed_layout(const struct rp_corpus *corpus, uint32_t shard, enum rp_format *format,
                      uint64_t *token_offset)
{
    const struct rp_index_segment *segment;
    struct rp_index_record record;
    if (!get_record(corpus, shard, &segment, &record, NULL))
        return false;
    *format = record.format;
    *token_offset = record.token_offset;
    return true;
}
