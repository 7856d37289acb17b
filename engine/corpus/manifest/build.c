/* SPDX-License-Identifier: Apache-2.0 */
/* build — what is to be done: which shards are new, and whether the older manifest can be
 * appended to (build.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/lock_holder.h"
#include "base/mem.h"
#include "base/out_dir.h"
#include "base/text.h"
#include "corpus/borrowed.h"
#include "corpus/manifest/build_struct.h"
#include "object/url.h"

static int fail_memory(const struct rp_manifest_build *build, struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "%s: no memory to list its shards", build->options.path);
}

char *rp_build_work_path(const struct rp_manifest_build *build, const struct rp_build_shard *shard)
{
    const char *declared[RP_MANIFEST_PATTERNS];
    char hex[RP_HASH_HEX_BYTES], eos[24];
    struct rp_hasher hasher; /* a shard that is declared in another way has another sidecar */
    rp_manifest_declared(&build->options.sources[shard->source], eos, declared);
    rp_hasher_begin(&hasher);
    rp_hasher_add(&hasher, shard->stored, strlen(shard->stored) + 1);
    for (unsigned i = RP_MANIFEST_NAME + 1; i < RP_MANIFEST_FOUND_MASK; i++)
        rp_hasher_add(&hasher, declared[i], strlen(declared[i]) + 1);
    if (shard->remote) { /* so has one whose object, or what lies beside it, has changed */
        const struct rp_manifest_beside *beside = &shard->beside;
        const uint64_t identity[] = {shard->bytes, shard->mtime_ns, beside->index_ns,
                                     beside->mask_ns, beside->sidecar_ns};
        rp_hasher_add(&hasher, identity, sizeof identity);
    }
    rp_hash128_hex(rp_hasher_finish(&hasher), hex);
    return rp_format("%s/%s.rpx", build->work, hex);
}

static int lock_work(const struct rp_manifest_build *build, struct rp_error *error)
{
    char holder[RP_LOCK_HOLDER_BYTES];
    int code = rp_file_lock(build->work_fd);
    if (code == -EWOULDBLOCK)
        return rp_fail(error, code, "wait for it to end, or end it",
                       "%s: cannot be locked: another `ringpack index` makes this manifest: %s",
                       build->work, rp_lock_holder(build->work_fd, holder));
    return code == 0 ? 0
                     : rp_fail(error, code,
                               "put the manifest on a file system with locks: `-o FILE`, or "
                               "`manifest: FILE` in the configuration",
                               "%s: cannot be locked: %s", build->work, strerror(-code));
}

/* The build before this one removes the folder while it has the lock. A folder that was removed
 * between the open and the lock protects nothing: it is made again. */
static int open_work(struct rp_manifest_build *build, struct rp_error *error)
{
    build->work = rp_format("%s.work", build->options.path);
    if (!build->work)
        return fail_memory(build, error);
    for (;;) {
        struct stat info, now;
        int code = rp_dir_make(build->work, error);
        if (code < 0)
            return code;
        build->work_fd = rp_out_dir_open_read(build->work, error);
        if (build->work_fd == -ENOENT)
            continue;
        if (build->work_fd < 0)
            return build->work_fd;
        if (fstat(build->work_fd, &info) < 0)
            return rp_fail(error, -errno, NULL, "%s: cannot be opened: %s", build->work,
                           strerror(errno));
        code = lock_work(build, error);
        if (code < 0)
            return code;
        if (stat(build->work, &now) == 0 && now.st_dev == info.st_dev &&
            now.st_ino == info.st_ino) {
            rp_borrowed_sweep(build->work);
            return 0;
        }
        close(build->work_fd);
        build->work_fd = -1;
    }
}

/* ---- the shards ------------------------------------------------------------------------------ */

/* The token file of a shard as it is named in a list: a Megatron prefix stands for its .bin. */
static char *token_path(const char *path, struct stat *info)
{
    size_t bytes = strlen(path);
    if (rp_text_has_suffix(path, ".idx"))
        bytes -= 4;
    else if (stat(path, info) == 0 && !S_ISDIR(info->st_mode))
        return strdup(path);
    char *tokens = rp_format("%.*s.bin", (int)bytes, path);
    memset(info, 0, sizeof *info);
    if (tokens && stat(tokens, info) < 0)
        info->st_size = 0; /* opening it will say why */
    return tokens;
}

/* The objects beside it are checked later, those of all shards at once. */
static int list_object(const struct rp_manifest_build *build, struct rp_build_shard *shard,
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
        return fail_memory(build, error);
    memcpy(shard->stored, remote->name, name_bytes);
    memcpy(shard->stored + name_bytes, remote->identity, identity_bytes);
    return 0;
}

static int list_file(struct rp_manifest_build *build, struct rp_build_shard *shard,
                     const char *path, uint32_t source, struct rp_error *error)
{
    struct stat info = {0};
    char *tokens = token_path(path, &info);
    *shard = (struct rp_build_shard){
        .path = path,
        .stored = tokens ? rp_manifest_paths_store(&build->paths, tokens) : NULL,
        .source = source,
        .bytes = (uint64_t)info.st_size,
        .mtime_ns = (uint64_t)info.st_mtim.tv_sec * 1000000000u + (uint64_t)info.st_mtim.tv_nsec};
    bool is_good = shard->stored && rp_build_look_beside(&shard->beside, tokens,
                                                         &build->options.sources[source].mask,
                                                         build->options.index_dir);
    free(tokens);
    shard->stored_bytes = is_good ? strlen(shard->stored) + 1 : 0;
    return is_good ? 0 : fail_memory(build, error);
}

struct listed {
    const char *name, *url; /* without and with its query */
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

/* A manifest has no queries, and neither have the names of sidecars. So no two objects may differ
 * in the query alone. */
static int check_queries(const struct rp_manifest_build *build, struct rp_error *error)
{
    struct listed *sorted = rp_calloc(build->remote_count, sizeof *sorted);
    int code = sorted ? 0 : fail_memory(build, error);
    for (size_t i = 0; i < build->remote_count && code == 0; i++)
        sorted[i] = (struct listed){build->remotes[i].name, build->remotes[i].url};
    if (code == 0)
        qsort(sorted, build->remote_count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < build->remote_count && code == 0; i++)
        if (!strcmp(sorted[i - 1].name, sorted[i].name) &&
            strcmp(sorted[i - 1].url, sorted[i].url) != 0)
            code = rp_fail(error, -RP_E_CONFIG,
                           "name an object with one query; copy objects that only a query tells "
                           "apart to a disk, or to a store where their paths differ",
                           "%s: listed with two queries; a manifest keeps no query (it may be a "
                           "secret), so it cannot tell two such objects apart",
                           sorted[i].name);
    free(sorted);
    return code;
}

/* All at once, because each costs at least one answer of a server. */
static int open_remotes(struct rp_manifest_build *build, uint64_t count, struct rp_error *error)
{
    const struct rp_manifest_build_options *options = &build->options;
    const char **urls = rp_calloc((size_t)count, sizeof *urls);
    if (!urls)
        return fail_memory(build, error);
    for (uint32_t s = 0; s < options->source_count; s++)
        for (uint32_t i = 0; i < options->sources[s].shard_count; i++)
            if (rp_url_is(options->sources[s].shards[i]))
                urls[build->remote_count++] = options->sources[s].shards[i];
    int code = build->remote_count ? rp_remotes_open(&build->remotes, urls, build->remote_count,
                                                     options->cache_dir, error)
                                   : 0;
    free(urls);
    return code == 0 && build->remote_count ? check_queries(build, error) : code;
}

static int list_shards(struct rp_manifest_build *build, struct rp_error *error)
{
    const struct rp_manifest_build_options *options = &build->options;
    uint64_t count = 0;
    for (uint32_t s = 0; s < options->source_count; s++)
        count += options->sources[s].shard_count;
    build->shards = rp_calloc((size_t)count, sizeof *build->shards);
    build->sources = rp_calloc(options->source_count, sizeof *build->sources);
    if (!build->shards || !build->sources)
        return fail_memory(build, error);
    int code = open_remotes(build, count, error);
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
    return code == 0 && build->remote_count ? rp_build_look_beside_objects(build, error) : code;
}

/* ---- the older manifest ---------------------------------------------------------------------- */

/* Was the source declared as it is now, its patterns aside? */
static bool is_declared_so(const struct rp_manifest_source *older,
                           const struct rp_source_spec *spec)
{
    const char *texts[RP_MANIFEST_PATTERNS];
    char eos[24];
    rp_manifest_declared(spec, eos, texts);
    for (unsigned i = RP_MANIFEST_NAME + 1; i < RP_MANIFEST_FOUND_MASK; i++)
        if (strcmp(older->texts[i], texts[i]) != 0)
            return false;
    return true;
}

static const char another_sidecar[] = "has another sidecar now"; /* of the store, or index_dir */

/* What has changed of a shard since the older manifest was made; NULL: nothing has. A sidecar that
 * is gone tells nothing new. */
static const char *find_change(const struct rp_manifest_record *older,
                               const struct rp_build_shard *shard)
{
    const struct rp_manifest_beside *was = &older->beside, *is = &shard->beside;
    if (older->bytes != shard->bytes || older->mtime_ns != shard->mtime_ns)
        return "has changed";
    bool is_object = shard->remote != NULL;
    if (is_object && !shard->has_identity)
        return "may have changed: the server tells no ETag of it, or of what lies beside it";
    if (was->index_ns != is->index_ns)
        return is_object ? "has another .idx now, by its ETag"
                         : "has another .idx now, by its modification time";
    if (was->mask_ns != is->mask_ns)
        return is_object ? "has another mask now, by its ETag"
                         : "has another mask now, by its modification time";
    if (is->sidecar_ns == 0 || was->sidecar_ns == is->sidecar_ns)
        return NULL;
    return is_object ? another_sidecar : "has another sidecar now, by its modification time";
}

/* Is this the shard that the older manifest has there, by its name? And what has changed of it? */
static bool is_same(const struct rp_manifest_build *build, const struct rp_build_shard *shard,
                    const struct rp_manifest_segment *segment, uint32_t number, const char **change)
{
    struct rp_manifest_record record;
    bool is_good = rp_manifest_record(build->older, segment, number, &record, NULL);
    const char *stored = (const char *)segment->tree.data + segment->parts.paths + record.path_at;
    *change = is_good ? find_change(&record, shard) : NULL;
    return is_good && !strcmp(stored, shard->stored);
}

/* Do the shards of a source begin with those that the older manifest has, unchanged? */
static bool begins_with_older(struct rp_manifest_build *build, uint32_t s)
{
    const struct rp_manifest_source *older = &build->older->sources[s];
    const struct rp_build_source *source = &build->sources[s];
    const struct rp_build_shard *shard = build->shards + source->first;
    if (source->count < older->shards || !is_declared_so(older, &build->options.sources[s])) {
        snprintf(build->why, sizeof build->why,
                 "source `%s` has fewer shards, or is declared in another way",
                 build->options.sources[s].name);
        return false;
    }
    for (uint32_t g = 0; g < older->segment_count; g++)
        for (uint32_t i = 0; i < older->segments[g].shape.shards; i++, shard++) {
            const char *change;
            bool has_name = is_same(build, shard, &older->segments[g], i, &change);
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

static bool has_same_texts(struct rp_manifest_build *build)
{
    bool is_same_text = true;
    for (uint32_t s = 0; s < build->options.source_count && is_same_text; s++) {
        const struct rp_manifest_source *older = &build->older->sources[s];
        const struct rp_manifest_patterns *patterns = &build->options.patterns[s];
        is_same_text = older->text_count == RP_MANIFEST_PATTERNS + patterns->count &&
                       !strcmp(older->texts[RP_MANIFEST_NAME], build->options.sources[s].name);
        for (uint32_t i = 0; i < patterns->count && is_same_text; i++) {
            char *stored = rp_manifest_paths_store(&build->paths, patterns->patterns[i]);
            is_same_text = stored && !strcmp(stored, older->texts[RP_MANIFEST_PATTERNS + i]);
            free(stored);
        }
    }
    return is_same_text;
}

/* Shards of the older manifest need not be written again: only the rest is left in the list. */
static void keep_new_shards(struct rp_manifest_build *build)
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
    const struct rp_manifest_segment *segment;
    uint32_t number;
};

static int compare_older(const void *a, const void *b)
{
    return strcmp(((const struct older_shard *)a)->stored, ((const struct older_shard *)b)->stored);
}

/* The manifest is written anew, and what it says about a shard that has not changed is taken. */
static int take_older_shards(struct rp_manifest_build *build, struct rp_error *error)
{
    const struct rp_manifest *older = build->older;
    struct older_shard *list = rp_calloc(older->shard_count, sizeof *list);
    size_t count = 0;
    if (!list)
        return fail_memory(build, error);
    for (uint32_t g = 0; g < older->segment_count; g++)
        for (uint32_t i = 0; i < older->segments[g].shape.shards; i++) {
            const struct rp_manifest_segment *segment = &older->segments[g];
            struct rp_manifest_record record;
            if (rp_manifest_record(older, segment, i, &record, NULL))
                list[count++] = (struct older_shard){(const char *)segment->tree.data +
                                                         segment->parts.paths + record.path_at,
                                                     segment, i};
        }
    qsort(list, count, sizeof *list, compare_older);
    for (uint64_t i = 0; i < build->shard_count && count > 0; i++) {
        struct rp_build_shard *shard = &build->shards[i];
        const struct older_shard key = {.stored = shard->stored};
        const struct older_shard *found = bsearch(&key, list, count, sizeof *list, compare_older);
        const char *change = NULL;
        if (!found || !is_same(build, shard, found->segment, found->number, &change))
            continue;
        if (!change && !is_declared_so(&older->sources[found->segment->source],
                                       &build->options.sources[shard->source]))
            continue;
        shard->older = found->segment;
        shard->older_shard = found->number;
        if (!change)
            shard->origin = RP_FROM_OLDER;
        else
            shard->has_new_content = shard->remote && change != another_sidecar;
    }
    free(list);
    return 0;
}

/* A damaged one does not count; the reason is told. All of it is checked, because what is taken
 * over would otherwise be damage with a good hash. */
static void open_older(struct rp_manifest_build *build)
{
    static const struct rp_progress silent;
    struct rp_error why = {0};
    if (access(build->options.path, F_OK) != 0)
        return;
    int code = rp_manifest_open(&build->older, build->options.path, true, &why);
    if (code == 0)
        code = rp_manifest_check_all(build->older, &silent, &why);
    if (code == 0)
        return;
    snprintf(build->why, sizeof build->why, "the older one does not count: %.250s", why.message);
    rp_manifest_close(build->older);
    build->older = NULL;
}

/* A manifest with a damaged slot is written anew: the newest head may be lost, and a running engine
 * that has it mapped would see an append after the older one. */
static int compare_with_older(struct rp_manifest_build *build, struct rp_error *error)
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

int rp_manifest_build_open(struct rp_manifest_build **build_out,
                           const struct rp_manifest_build_options *options, struct rp_error *error)
{
    struct rp_manifest_build *build = rp_calloc(1, sizeof *build);
    *build_out = NULL;
    if (!build)
        return rp_fail(error, -ENOMEM, NULL, "no memory to make a manifest");
    build->options = *options;
    build->work_fd = build->fd = build->file.fd = -1;
    int code = rp_manifest_paths_open(&build->paths, options->path, error);
    if (code == 0)
        code = open_work(build, error);
    if (code == 0)
        code = list_shards(build, error);
    if (code == 0)
        code = compare_with_older(build, error);
    if (code < 0)
        rp_manifest_build_close(build);
    else
        *build_out = build;
    return code;
}

void rp_manifest_build_close(struct rp_manifest_build *build)
{
    if (!build)
        return;
    if (build->map)
        munmap(build->map, (size_t)build->map_bytes);
    if (build->appends && build->fd >= 0)
        close(build->fd);
    rp_new_file_discard(&build->file);
    for (uint64_t i = 0; i < build->shard_count; i++)
        free(build->shards[i].stored);
    rp_manifest_close(build->older);
    rp_manifest_paths_close(&build->paths);
    if (build->work_fd >= 0) {
        (void)rmdir(build->work); /* if it is empty: nothing was done */
        close(build->work_fd);
    }
    free(build->work);
    rp_remotes_close(build->remotes, build->remote_count);
    free(build->shards);
    free(build->sources);
    free(build);
}

uint64_t rp_manifest_build_shards(const struct rp_manifest_build *build)
{
    return build->shard_count;
}

uint64_t rp_manifest_build_bytes(const struct rp_manifest_build *build, uint64_t i)
{
    return build->shards[i].bytes;
}
