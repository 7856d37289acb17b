/* SPDX-License-Identifier: Apache-2.0 */
/* companions.c — the companion files and objects of a token file, which decide the result of a scan
 * (build_struct.h). They are found by their names, because an unchanged shard is not opened. */
#include <errno.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "corpus/staged_shard.h"
#include "corpus/byte_mask.h"
#include "corpus/index/build_struct.h"
#include "corpus/mask_megatron.h"
#include "corpus/spanfile.h"
#include "object/fetch.h"
#include "object/url.h"

/* Take the modification time of a file, if it exists and is the newest. Frees the path; NULL: out
 * of memory, and the result is false. */
static bool take_time(uint64_t *mtime_ns, char *path)
{
    struct rp_stamp found;
    bool has_path = path != NULL;
    if (has_path && rp_stamp_at(path, &found) == 0)
        *mtime_ns = rp_max_u64(*mtime_ns, found.mtime_ns);
    free(path);
    return has_path;
}

static bool take_olmo(uint64_t *mtime_ns, const char *token_path,
                      const struct rp_mask_choice *choice)
{
    const struct rp_probe probe = {.path = token_path};
    struct rp_byte_mask mask = RP_BYTE_MASK_NONE;
    struct rp_layout layout = {0};
    struct rp_error ignored;
    int code = rp_byte_mask_find_olmo(&mask, &probe, choice, &layout, &ignored);
    char *path = mask.path;
    mask.path = NULL;
    rp_byte_mask_close(&mask);
    return path ? take_time(mtime_ns, path) : code != -ENOMEM;
}

static bool take_megatron(uint64_t *mtime_ns, const char *token_path,
                          const struct rp_mask_choice *choice)
{
    char *prefix = rp_megatron_mask_prefix(token_path,
                                           rp_mask_is_auto(choice) ? "label" : choice->name);
    bool is_good = prefix && take_time(mtime_ns, rp_spanfile_path(token_path)) &&
                   take_time(mtime_ns, rp_asprintf("%s.bin", prefix)) &&
                   take_time(mtime_ns, rp_asprintf("%s.idx", prefix));
    free(prefix);
    return is_good;
}

bool rp_build_stat_companions(struct rp_index_companions *companions, const char *token_path,
                              const struct rp_mask_choice *mask, const char *index_dir)
{
    size_t stem = rp_text_stem(token_path, ".bin");
    *companions = (struct rp_index_companions){0};
    bool is_good = true;
    if (index_dir)
        is_good = take_time(&companions->sidecar_ns, rp_sidecar_path(token_path, index_dir));
    if (is_good && companions->sidecar_ns == 0)
        is_good = take_time(&companions->sidecar_ns, rp_sidecar_path(token_path, NULL));
    if (is_good && token_path[stem])
        is_good = take_time(&companions->idx_ns, rp_asprintf("%.*s.idx", (int)stem, token_path));
    if (!is_good || rp_mask_is_none(mask))
        return is_good;
    if (companions->idx_ns)
        return take_megatron(&companions->mask_ns, token_path, mask);
    return take_olmo(&companions->mask_ns, token_path, mask) &&
           take_time(&companions->mask_ns, rp_asprintf("%s.loss", token_path));
}

/* ---- objects --------------------------------------------------------------------------------- */

/* Companions that list_object has the identity of, or that do not affect documents and masks. */
static bool needs_no_check(const char *url)
{
    static const char *const known[] = {".idx", ".spans", ".tokens.json", "/index.json"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(known); i++)
        if (rp_url_has_suffix(url, known[i]))
            return true;
    return false;
}

/* The companion objects of the shards that are to be checked, in the order of the shards. */
struct companions {
    struct rp_paths urls;
    uint64_t *ends; /* one for each shard */
    struct rp_remote_stat *stats;
};

static int list_companions(const struct rp_indexing *build, struct companions *companions,
                           struct rp_error *error)
{
    int code = 0;
    for (uint64_t i = 0; i < build->shard_count && code == 0; i++) {
        const struct rp_build_shard *shard = &build->shards[i];
        const struct rp_mask_choice *mask = &build->options.sources[shard->source].mask;
        struct rp_paths urls = {0};
        if (shard->remote && !rp_mask_is_none(mask))
            code = rp_staged_shard_companions(shard->remote->url, &urls, error);
        for (size_t u = 0; u < urls.count && code == 0; u++)
            if (!needs_no_check(urls.paths[u]))
                code = rp_paths_add(&companions->urls, urls.paths[u], error);
        rp_paths_release(&urls);
        companions->ends[i] = companions->urls.count;
    }
    return code;
}

static int take_companions(struct rp_indexing *build, const struct companions *companions)
{
    const char *index_dir = build->options.index_dir;
    uint64_t next = 0;
    bool is_good = true;
    for (uint64_t i = 0; i < build->shard_count && is_good; i++) {
        struct rp_build_shard *shard = &build->shards[i];
        const struct rp_remote *remote = shard->remote;
        if (!remote)
            continue;
        bool has_mask = !rp_mask_is_none(&build->options.sources[shard->source].mask);
        shard->companions = (struct rp_index_companions){
            .idx_ns = remote->index_hash, .mask_ns = has_mask ? remote->spans_hash : 0};
        for (; next < companions->ends[i]; next++)
            if (companions->stats[next].bytes) {
                shard->has_identity &= companions->stats[next].identity != 0;
                const uint64_t mixed[] = {shard->companions.mask_ns, companions->stats[next].bytes,
                                          companions->stats[next].identity};
                shard->companions.mask_ns = rp_hash64(mixed, sizeof mixed);
            }
        if (index_dir)
            is_good = take_time(&shard->companions.sidecar_ns,
                                rp_sidecar_path(remote->id, index_dir));
        if (shard->companions.sidecar_ns == 0)
            shard->companions.sidecar_ns = remote->sidecar_hash;
    }
    return is_good ? 0 : -ENOMEM;
}

int rp_build_stat_object_companions(struct rp_indexing *build, struct rp_error *error)
{
    struct companions companions = {
        .ends = rp_calloc((size_t)build->shard_count, sizeof(uint64_t))};
    int code = companions.ends ? list_companions(build, &companions, error) : -ENOMEM;
    if (code == 0)
        companions.stats = rp_calloc(companions.urls.count, sizeof *companions.stats);
    if (code == 0 && companions.urls.count)
        code = companions.stats
                   ? rp_fetch_stats((const char *const *)companions.urls.paths,
                                    companions.urls.count, true, companions.stats, error)
                   : -ENOMEM;
    if (code == 0)
        code = take_companions(build, &companions);
    if (code == -ENOMEM)
        code = rp_build_fail_memory(build, error);
    rp_paths_release(&companions.urls);
    free(companions.ends);
    free(companions.stats);
    return code;
}
