/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c — the facts of each shard (build.h). */
#include <errno.h>
#include <inttypes.h>

#include "base/bits.h"
#include "corpus/staged_shard.h"
#include "corpus/index/build_struct.h"

/* A sidecar that is older than its token file or its mask may describe others. Equal times prove
 * nothing. The .idx needs no time: it is compared with its hash. */
static bool is_newer(const char *sidecar_path, const struct rp_build_shard *shard)
{
    struct rp_stamp found;
    return rp_stamp_at(sidecar_path, &found) == 0 && found.mtime_ns > shard->mtime_ns &&
           found.mtime_ns > shard->companions.mask_ns;
}

/* The same for the sidecar in PATH.work, which must also be newer than the shard's own sidecar:
 * that one declares how the shard is read. */
static bool is_work_newer(const char *work_path, const struct rp_build_shard *shard)
{
    struct rp_stamp found;
    if (shard->remote) /* its name has a hash of the content's identity */
        return shard->has_identity && rp_stamp_at(work_path, &found) == 0;
    return is_newer(work_path, shard) && rp_stamp_at(work_path, &found) == 0 &&
           found.mtime_ns > shard->companions.sidecar_ns;
}

/* ---- the scan -------------------------------------------------------------------------------- */

int rp_build_open_shard(const struct rp_indexing *build, const struct rp_build_shard *shard,
                        const char *work_path, struct rp_opened *opened, struct rp_error *error)
{
    const struct rp_open_options options = {
        .find = {.hints = &build->options.sources[shard->source],
                 .remote = shard->remote,
                 .index_dir = build->options.index_dir,
                 .sidecar_path = work_path}};
    int code = rp_shard_open(opened, shard->path, 0, &options, error);
    if (code < 0)
        return code;
    if (!opened->found.sidecar)
        code = rp_fail(error, -RP_E_CHANGED, "run the command again",
                       "%s: its sidecar has vanished", shard->path);
    else if (!shard->remote && (opened->shard.stamp.mtime_ns != shard->mtime_ns ||
                                opened->shard.bytes != shard->bytes))
        code = rp_fail(error, -RP_E_CHANGED, "run the command again when no process writes to it",
                       "%s: changed while it was indexed", shard->path);
    if (code < 0)
        rp_shard_close(opened);
    else
        rp_megatron_read_through(&opened->megatron);
    return code;
}

/* Compare all of the sidecar with its hashes: all of it will be copied. */
static int check_sidecar(const struct rp_opened *opened, struct rp_error *error)
{
    const struct rp_map *idx = &opened->megatron.map;
    struct rp_hash128 content;
    int code = rp_index_check_all(opened->found.sidecar, NULL, error);
    if (code == 0)
        code = rp_map_hash(idx, &content, error);
    if (code == 0 && idx->bytes && !rp_hash128_equal(content, opened->found.record.idx_content))
        code = rp_fail(error, -RP_E_CHANGED, "index it again",
                       "%s: differs from the description in its sidecar", opened->found.index_path);
    return code;
}

/* Take the facts of a shard from a sidecar. */
static int take_sidecar(const struct rp_indexing *build, struct rp_build_shard *shard,
                        const char *work_path, struct rp_error *error)
{
    struct rp_opened opened;
    int code = rp_build_open_shard(build, shard, work_path, &opened, error);
    if (code < 0)
        return code;
    code = check_sidecar(&opened, error);
    shard->record = opened.found.record;
    shard->record.mtime_ns = shard->mtime_ns;
    shard->record.fingerprint = opened.fingerprint;
    shard->record.companions = shard->companions;
    shard->tokenizer = opened.shard.tokenizer ? *opened.shard.tokenizer
                                              : (struct rp_tokenizer_id){0};
    shard->spans = rp_opened_uses_spans(&opened) ? opened.segment->table.shape.span_count : 0;
    if (!rp_opened_uses_spans(&opened))
        shard->record.mask = (struct rp_mask_origin){.name = ""};
    rp_shard_close(&opened);
    return code;
}

static int take_from_older(const struct rp_indexing *build, struct rp_build_shard *shard,
                           struct rp_error *error)
{
    const struct rp_table *table = &shard->older->table;
    shard->tokenizer = build->older->sources[shard->older_source].tokenizer;
    uint64_t first = rp_index_documents_before(shard->older, shard->older_shard);
    uint64_t end = rp_index_documents_before(shard->older, shard->older_shard + 1);
    if (!rp_index_get_record(shard->older, shard->older_shard, &shard->record, NULL) ||
        first > end || end > table->shape.documents || end - first != shard->record.documents)
        return rp_index_fail_damaged(build->older, "record of a shard", error);
    if (shard->record.mask.name[0] && !table->shape.has_spans)
        return rp_index_fail_damaged(build->older, "record of a shard", error);
    if (!shard->record.mask.name[0])
        return 0;
    uint64_t begin = table->spans.ends[first], stop = table->spans.ends[end];
    if (begin > stop || stop > table->shape.span_count)
        return rp_index_fail_damaged(build->older, "spans of a shard", error);
    shard->spans = stop - begin;
    return 0;
}

/* Whether a sidecar, the only change of an object since the older index, differs from that index:
 * it may then describe older tokens or labels. */
static bool differs_from_older(const struct rp_build_shard *shard)
{
    struct rp_index_record older;
    if (!shard->remote || !shard->older)
        return false;
    return !rp_index_get_record(shard->older, shard->older_shard, &older, NULL) ||
           !rp_hash128_equal(older.content, shard->record.content) ||
           !rp_hash128_equal(older.fingerprint.full, shard->record.fingerprint.full);
}

/* Take the facts from the shard's own sidecar, if it has one that counts. */
static bool take_own_sidecar(const struct rp_indexing *build, struct rp_build_shard *shard)
{
    if (shard->has_new_content) /* no time shows whether the sidecar describes the present tokens */
        return false;
    const struct rp_find_options options = {.hints = &build->options.sources[shard->source],
                                            .remote = shard->remote,
                                            .index_dir = build->options.index_dir,
                                            .replacing_sidecar = true};
    struct rp_found found;
    struct rp_error ignored;
    if (rp_find_shard(&found, shard->path, &options, &ignored) < 0)
        return false;
    bool counts = found.sidecar &&
                  (shard->remote || is_newer(found.sidecar->path, shard)); /* as at a start */
    rp_found_release(&found);
    return counts && take_sidecar(build, shard, NULL, &ignored) == 0 && !differs_from_older(shard);
}

/* Read all tokens, of an object from a staged copy. The copy has the identity that the index will
 * have, so its hashes belong to that identity. */
static int index_tokens(const struct rp_indexing *build, const struct rp_build_shard *shard,
                        const char *work_path, const struct rp_progress *progress,
                        struct rp_error *error)
{
    struct rp_staged_shard staged;
    const struct rp_remote *remote = shard->remote;
    const struct rp_sidecar_build_options options = {
        .hints = &build->options.sources[shard->source],
        .index_dir = remote ? NULL : build->options.index_dir,
        .scratch_path = work_path,
        .progress = progress};
    if (!remote)
        return rp_sidecar_build(shard->path, &options, error);
    int code = rp_staged_shard_open(&staged, remote->url, remote->identity, build->work, progress,
                                    error);
    if (code < 0)
        return code;
    code = rp_sidecar_build(staged.path, &options, error);
    rp_staged_shard_close(&staged);
    return code < 0 ? rp_fail_context(error, code, "%s", shard->path) : 0;
}

int rp_indexing_scan(struct rp_indexing *build, uint64_t i, const struct rp_progress *progress,
                     struct rp_error *error)
{
    struct rp_build_shard *shard = &build->shards[i];
    struct rp_error ignored;
    if (shard->origin == RP_FROM_OLDER)
        return take_from_older(build, shard, error);
    char *work_path = rp_build_work_path(build, shard);
    if (!work_path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", shard->path);
    int code = 0;
    if (is_work_newer(work_path, shard) && take_sidecar(build, shard, work_path, &ignored) == 0) {
        shard->origin = RP_FROM_WORK;
    } else if (take_own_sidecar(build, shard)) {
        shard->origin = RP_FROM_SIDECAR;
    } else {
        code = index_tokens(build, shard, work_path, progress, error);
        if (code == 0)
            code = take_sidecar(build, shard, work_path, error);
        shard->origin = RP_FROM_WORK;
        shard->was_read = true;
    }
    free(work_path);
    return code;
}
