/* SPDX-License-Identifier: Apache-2.0 */
/* build.c — the decisions of a build: the new shards, and whether the older index can be appended
 * to (build.h). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "corpus/index/build_struct.h"

char *rp_build_work_path(const struct rp_indexing *build, const struct rp_build_shard *shard)
{
    const char *declared[RP_INDEX_PATTERNS];
    char hex[RP_HASH_HEX_BYTES], eos[24];
    struct rp_hasher hasher; /* another declaration has another sidecar */
    rp_index_declared(&build->options.sources[shard->source], eos, declared);
    rp_hasher_begin(&hasher);
    rp_hasher_add(&hasher, shard->stored, strlen(shard->stored) + 1);
    for (unsigned i = RP_INDEX_NAME + 1; i < RP_INDEX_FOUND_MASK; i++)
        rp_hasher_add(&hasher, declared[i], strlen(declared[i]) + 1);
    if (shard->remote) { /* and so has another content of the object or a companion */
        const struct rp_index_companions *companions = &shard->companions;
        const uint64_t identity[] = {shard->bytes, shard->mtime_ns, companions->idx_ns,
                                     companions->mask_ns, companions->sidecar_ns};
        rp_hasher_add(&hasher, identity, sizeof identity);
    }
    rp_hash128_hex(rp_hasher_finish(&hasher), hex);
    return rp_asprintf("%s/%s" RP_INDEX_SUFFIX, build->work, hex);
}

/* ---- the older index ------------------------------------------------------------------------- */

/* Whether the source was declared as it is now, without its name and patterns. */
static bool has_same_declaration(const struct rp_index_source *older,
                                 const struct rp_source_spec *spec)
{
    const char *texts[RP_INDEX_PATTERNS];
    char eos[24];
    rp_index_declared(spec, eos, texts);
    for (unsigned i = RP_INDEX_NAME + 1; i < RP_INDEX_FOUND_MASK; i++)
        if (strcmp(older->texts[i], texts[i]) != 0)
            return false;
    return true;
}

/* An object has it in its store or in index_dir. take_older_shards compares the address. */
static const char another_sidecar[] = "has another sidecar now";

/* The change of a shard since the older index was made; NULL: none. A sidecar that is gone is no
 * change. */
static const char *find_change(const struct rp_index_record *older,
                               const struct rp_build_shard *shard)
{
    const struct rp_index_companions *was = &older->companions, *is = &shard->companions;
    if (older->bytes != shard->bytes || older->mtime_ns != shard->mtime_ns)
        return "has changed";
    bool is_object = shard->remote != NULL;
    if (is_object && !shard->has_identity)
        return "may have changed: the server gives no ETag of it or of its companion files";
    if (was->idx_ns != is->idx_ns)
        return is_object ? "has another .idx now, by its ETag"
                         : "has another .idx now, by its modification time";
    if (was->mask_ns != is->mask_ns)
        return is_object ? "has another mask now, by its ETag"
                         : "has another mask now, by its modification time";
    if (is->sidecar_ns == 0 || was->sidecar_ns == is->sidecar_ns)
        return NULL;
    return is_object ? another_sidecar : "has another sidecar now, by its modification time";
}

/* Whether a shard has the name of shard `number` in a segment of the older index; then *change is
 * as find_change has it. */
static bool has_name_of(const struct rp_build_shard *shard, const struct rp_index_segment *segment,
                        uint32_t number, const char **change)
{
    struct rp_index_record record;
    bool is_good = rp_index_get_record(segment, number, &record, NULL);
    const char *stored = is_good ? rp_index_stored_path(segment, &record) : NULL;
    *change = is_good ? find_change(&record, shard) : NULL;
    return stored && !strcmp(stored, shard->stored);
}

/* Whether the shards of a source begin with the shards of the older index, unchanged. */
static bool begins_with_older(struct rp_indexing *build, uint32_t s)
{
    const struct rp_index_source *older = &build->older->sources[s];
    const struct rp_build_source *source = &build->sources[s];
    const struct rp_build_shard *shard = build->shards + source->first;
    if (source->count < older->shards || !has_same_declaration(older, &build->options.sources[s])) {
        snprintf(build->why, sizeof build->why,
                 "source `%s` has fewer shards, or is declared in another way",
                 build->options.sources[s].name);
        return false;
    }
    for (uint32_t g = 0; g < older->segment_count; g++)
        for (uint32_t i = 0; i < older->segments[g].shape.shards; i++, shard++) {
            const char *change;
            bool has_name = has_name_of(shard, &older->segments[g], i, &change);
            if (has_name && !change)
                continue;
            snprintf(build->why, sizeof build->why, "%.200s %s", shard->path,
                     has_name ? change
                              : "comes before shards that were there, so the order of documents "
                                "is another one");
            return false;
        }
    return true;
}

static bool has_same_texts(struct rp_indexing *build)
{
    bool is_same_text = true;
    for (uint32_t s = 0; s < build->options.source_count && is_same_text; s++) {
        const struct rp_index_source *older = &build->older->sources[s];
        const struct rp_index_patterns *patterns = &build->options.patterns[s];
        is_same_text = older->text_count == RP_INDEX_PATTERNS + patterns->count &&
                       !strcmp(older->texts[RP_INDEX_NAME], build->options.sources[s].name);
        for (uint32_t i = 0; i < patterns->count && is_same_text; i++) {
            char *stored = rp_index_paths_store(&build->paths, patterns->patterns[i]);
            is_same_text = stored && !strcmp(stored, older->texts[RP_INDEX_PATTERNS + i]);
            free(stored);
        }
    }
    return is_same_text;
}

/* Leave only new shards in the list: the index is appended to. */
static void keep_new_shards(struct rp_indexing *build)
{
    uint64_t kept = 0;
    for (uint32_t s = 0; s < build->options.source_count; s++) {
        struct rp_build_source *source = &build->sources[s];
        uint64_t first = kept;
        for (uint64_t i = 0; i < source->count; i++) {
            if (i < build->older->sources[s].shards)
                free(build->shards[source->first + i].stored);
            else
                build->shards[kept++] = build->shards[source->first + i];
        }
        source->first = first;
        source->count = kept - first;
    }
    build->shard_count = kept;
}

struct older_shard {
    const char *stored;
    const struct rp_index_segment *segment;
    uint32_t source, number;
};

static int compare_older(const void *a, const void *b)
{
    return strcmp(((const struct older_shard *)a)->stored, ((const struct older_shard *)b)->stored);
}

/* Add the shards of a segment to the list. */
static size_t list_segment(const struct rp_index_segment *segment, uint32_t source,
                           struct older_shard *list, size_t count)
{
    for (uint32_t i = 0; i < segment->shape.shards; i++) {
        struct rp_index_record record;
        if (rp_index_get_record(segment, i, &record, NULL))
            list[count++] = (struct older_shard){rp_index_stored_path(segment, &record), segment,
                                                 source, i};
    }
    return count;
}

/* Find the records of unchanged shards in the older index: the index is rewritten. */
static int take_older_shards(struct rp_indexing *build, struct rp_error *error)
{
    const struct rp_index *older = build->older;
    struct older_shard *list = rp_calloc(older->shard_count, sizeof *list);
    size_t count = 0;
    if (!list)
        return rp_build_fail_memory(build, error);
    for (uint32_t s = 0; s < older->source_count; s++)
        for (uint32_t g = 0; g < older->sources[s].segment_count; g++)
            count = list_segment(&older->sources[s].segments[g], s, list, count);
    qsort(list, count, sizeof *list, compare_older);
    for (uint64_t i = 0; i < build->shard_count && count > 0; i++) {
        struct rp_build_shard *shard = &build->shards[i];
        const struct older_shard key = {.stored = shard->stored};
        const struct older_shard *found = bsearch(&key, list, count, sizeof *list, compare_older);
        const char *change = NULL;
        if (!found || !has_name_of(shard, found->segment, found->number, &change))
            continue;
        if (!change && !has_same_declaration(&older->sources[found->source],
                                             &build->options.sources[shard->source]))
            continue;
        shard->older = found->segment;
        shard->older_source = found->source;
        shard->older_shard = found->number;
        if (!change)
            shard->origin = RP_FROM_OLDER;
        else
            shard->has_new_content = shard->remote && change != another_sidecar;
    }
    free(list);
    return 0;
}

/* A damaged older index does not count, and build->why says so. All of it is checked, because
 * damage that is copied would get a good hash. */
static void open_older(struct rp_indexing *build)
{
    struct rp_error why = {0};
    if (access(build->options.path, F_OK) != 0)
        return;
    const struct rp_index_open_options options = {.path = build->options.path, .to_repair = true};
    int code = rp_index_open(&build->older, &options, &why);
    if (code == 0)
        code = rp_index_check_all(build->older, NULL, &why);
    if (code == 0)
        return;
    snprintf(build->why, sizeof build->why, "the older one does not count: %.250s", why.message);
    rp_index_close(build->older);
    build->older = NULL;
}

/* An index with a damaged slot is rewritten: the newest head may be lost, and a running engine that
 * has it mapped would see an append after the older one. */
static int compare_with_older(struct rp_indexing *build, struct rp_error *error)
{
    open_older(build);
    if (!build->older)
        return 0;
    build->appends = build->older->source_count == build->options.source_count &&
                     !build->older->is_torn;
    if (!build->appends)
        snprintf(build->why, sizeof build->why, "%s",
                 build->older->is_torn ? "one of its two slots is damaged"
                                       : "the number of sources has changed");
    for (uint32_t s = 0; s < build->options.source_count && build->appends; s++)
        build->appends = begins_with_older(build, s);
    if (!build->appends)
        return take_older_shards(build, error);
    build->keeps_texts = has_same_texts(build);
    keep_new_shards(build);
    return 0;
}

/* ---- open and close -------------------------------------------------------------------------- */

int rp_indexing_open(struct rp_indexing **build_out, const struct rp_indexing_options *options,
                     struct rp_error *error)
{
    struct rp_indexing *build = rp_calloc(1, sizeof *build);
    *build_out = NULL;
    if (!build)
        return rp_fail(error, -ENOMEM, NULL, "no memory to make an index");
    build->options = *options;
    build->work_fd = build->writer.fd = build->file.fd = -1;
    int code = rp_index_paths_open(&build->paths, options->path, error);
    if (code == 0)
        code = rp_index_work_open(options->path, &build->work, &build->work_fd, error);
    if (code == 0)
        code = rp_build_list_shards(build, error);
    if (code == 0)
        code = compare_with_older(build, error);
    if (code < 0)
        rp_indexing_close(build);
    else
        *build_out = build;
    return code;
}

static void free_texts(struct rp_build_source *source, const struct rp_index_patterns *patterns)
{
    for (uint32_t i = 0; source->texts && i < patterns->count; i++)
        free((void *)(uintptr_t)source->texts[RP_INDEX_PATTERNS + i]);
    free(source->texts);
}

void rp_indexing_close(struct rp_indexing *build)
{
    if (!build)
        return;
    rp_index_writer_close(&build->writer);
    if (build->appends && build->writer.fd >= 0)
        close(build->writer.fd);
    rp_new_file_discard(&build->file);
    for (uint64_t i = 0; i < build->shard_count; i++)
        free(build->shards[i].stored);
    for (uint32_t s = 0; build->sources && s < build->options.source_count; s++)
        free_texts(&build->sources[s], &build->options.patterns[s]);
    free(build->draft.sources);
    free(build->draft.segments);
    rp_index_close(build->older);
    rp_index_paths_close(&build->paths);
    rp_index_work_close(build->work, build->work_fd);
    rp_remotes_close(build->remotes, build->remote_count);
    free(build->shards);
    free(build->sources);
    free(build);
}

uint64_t rp_indexing_shards(const struct rp_indexing *build)
{
    return build->shard_count;
}

uint64_t rp_indexing_bytes(const struct rp_indexing *build, uint64_t i)
{
    return build->shards[i].bytes;
}
