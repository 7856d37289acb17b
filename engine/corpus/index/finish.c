/* SPDX-License-Identifier: Apache-2.0 */
/* finish.c — fingerprints of the new file, its head, and the end of a build (build.h). */
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "corpus/index/build_struct.h"

uint64_t rp_indexing_parts(const struct rp_indexing *build)
{
    return rp_index_hash_part_count(&build->draft);
}

void rp_indexing_hash(struct rp_indexing *build, uint64_t part)
{
    rp_index_hash_part(&build->draft, part);
}

/* Make the fingerprints of all sources from those in the records. */
static void make_fingerprints(struct rp_indexing *build)
{
    struct rp_fingerprint_list list, all;
    rp_fingerprint_begin(&all);
    for (uint32_t s = 0; s < build->options.source_count; s++) {
        const struct rp_build_source *source = &build->sources[s];
        struct rp_index_source *draft = &build->draft.sources[s];
        rp_fingerprint_begin(&list);
        for (uint32_t g = 0; build->appends && g < build->older->sources[s].segment_count; g++) {
            bool is_good = rp_index_add_fingerprints(&build->older->sources[s].segments[g], &list);
            RP_ASSERT(is_good); /* all its pages were verified at open */
        }
        for (uint64_t i = 0; i < source->count; i++)
            rp_fingerprint_add(&list, &build->shards[source->first + i].record.fingerprint);
        RP_ASSERT(list.count == draft->shards);
        draft->fingerprint = rp_fingerprint_of(&list);
        if (source->segment)
            source->segment->prefix = draft->fingerprint;
        rp_fingerprint_add(&all, &draft->fingerprint);
    }
    build->draft.fingerprint = rp_fingerprint_of(&all);
}

/* The index has all that was in the folder. A file that cannot be removed only takes room. */
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

static void report(const struct rp_indexing *build, struct rp_indexed *built)
{
    memcpy(built->why, build->why, sizeof built->why);
    built->outcome = build->appends ? RP_INDEXED_APPENDED
                     : build->older ? RP_INDEXED_REWRITTEN
                                    : RP_INDEXED_NEW;
    built->columns_lost = build->older && !build->appends ? build->older->column_count : 0;
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
    report(build, built);
    if (build->writer.fd < 0) {
        built->outcome = RP_INDEXED_UNCHANGED;
        built->root = build->older->root;
        built->fingerprint = build->older->fingerprint;
        remove_work(build); /* a build that was killed may have left sidecars there */
        return 0;
    }
    make_fingerprints(build);
    int code = rp_index_write_head(&build->writer, &build->draft, error);
    if (code == 0 && !build->appends)
        code = rp_new_file_publish(&build->file, error);
    if (code < 0)
        return code;
    built->root = build->draft.root;
    built->fingerprint = build->draft.fingerprint;
    remove_work(build);
    return 0;
}
