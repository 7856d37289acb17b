/* SPDX-License-Identifier: Apache-2.0 */
/* finish — fingerprints of the new file, its head, and the end of a build (build.h). */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "corpus/index/build_struct.h"

uint64_t rp_indexing_parts(const struct rp_indexing *build)
{
    return rp_index_hash_parts(&build->draft);
}

void rp_indexing_hash(struct rp_indexing *build, uint64_t part)
{
    rp_index_hash_part(&build->draft, part);
}

/* The fingerprint of all shards of a source, from those of each, which are also in the records. */
static void combine_source(const struct rp_indexing *build, uint32_t s,
                           struct rp_fingerprint *members)
{
    const struct rp_build_source *source = &build->sources[s];
    struct rp_index_source *draft = &build->draft.sources[s];
    uint32_t count = 0;
    for (uint32_t g = 0; build->appends && g < build->older->sources[s].segment_count; g++) {
        const struct rp_index_segment *segment = &build->older->sources[s].segments[g];
        for (uint32_t i = 0; i < segment->shape.shards; i++) {
            struct rp_index_record record;
            bool is_good = rp_index_get_record(segment, i, &record, NULL);
            RP_ASSERT(is_good); /* all its pages were verified at open */
            members[count++] = record.fingerprint;
        }
    }
    for (uint64_t i = 0; i < source->count; i++)
        members[count++] = build->shards[source->first + i].record.fingerprint;
    RP_ASSERT(count == draft->shards);
    draft->fingerprint = rp_fingerprint_combine(members, count);
    if (source->segment)
        source->segment->prefix = draft->fingerprint;
}

static bool combine(struct rp_indexing *build)
{
    uint32_t sources = build->options.source_count;
    struct rp_fingerprint *all = rp_calloc(sources, sizeof *all);
    bool is_good = all != NULL;
    for (uint32_t s = 0; s < sources && is_good; s++) {
        struct rp_fingerprint *members = rp_calloc(build->draft.sources[s].shards, sizeof *members);
        is_good = members != NULL;
        if (is_good)
            combine_source(build, s, members);
        free(members);
        all[s] = build->draft.sources[s].fingerprint;
    }
    if (is_good)
        build->draft.fingerprint = rp_fingerprint_combine(all, sources);
    free(all);
    return is_good;
}

/* The index has all that was in it. A file that cannot be removed does no harm; it only takes
 * room. */
static void remove_work(const struct rp_indexing *build)
{
    DIR *folder = opendir(build->work);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (strstr(entry->d_name, RP_INDEX_SUFFIX) || strstr(entry->d_name, RP_INDEX_SUFFIX_OLD))
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    (void)rmdir(build->work);
}

static void tell(const struct rp_indexing *build, struct rp_indexed *built)
{
    memcpy(built->why, build->why, sizeof built->why);
    built->outcome = build->appends ? RP_INDEXED_APPENDED
                     : build->older ? RP_INDEXED_REWRITTEN
                                    : RP_INDEXED_NEW;
    built->shards_added = (uint32_t)build->shard_count;
    for (uint64_t i = 0; i < build->shard_count; i++)
        built->shards_read += build->shards[i].was_read;
    for (uint32_t s = 0; s < build->options.source_count; s++) {
        built->shards += build->draft.sources[s].shards;
        built->documents += build->draft.sources[s].documents;
        built->tokens += build->draft.sources[s].tokens;
        built->bytes += build->draft.sources[s].bytes;
    }
}

int rp_indexing_finish(struct rp_indexing *build, struct rp_indexed *built, struct rp_error *error)
{
    *built = (struct rp_indexed){.outcome = RP_INDEXED_NEW};
    tell(build, built);
    if (build->writer.fd < 0) {
        built->outcome = RP_INDEXED_UNCHANGED;
        built->root = build->older->root;
        built->fingerprint = build->older->fingerprint;
        remove_work(build); /* a build that was killed may have left sidecars there */
        return 0;
    }
    int code = combine(build) ? 0
                              : rp_fail(error, -ENOMEM, NULL, "%s: no memory to write it",
                                        build->options.path);
    if (code == 0)
        code = rp_index_write_head(&build->writer, &build->draft, error);
    if (code == 0 && !build->appends)
        code = rp_new_file_publish(&build->file, error);
    if (code < 0)
        return code;
    built->root = build->draft.root;
    built->fingerprint = build->draft.fingerprint;
    remove_work(build);
    return 0;
}
