/* SPDX-License-Identifier: Apache-2.0 */
/* learn — what each shard is, and its entries in the manifest (build.h). */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "corpus/borrowed.h"
#include "corpus/manifest/build_struct.h"

/* A sidecar that was written before its token file or its mask was may be of other tokens or of
 * another mask. Of equal times it is not known. The .idx is compared with its hash. */
static bool is_newer(const char *sidecar_path, const struct rp_build_shard *shard)
{
    struct rp_stamp found;
    return rp_stamp_at(sidecar_path, &found) == 0 && found.mtime_ns > shard->mtime_ns &&
           found.mtime_ns > shard->beside.mask_ns;
}

/* The one in PATH.work; the shard's own sidecar says how it is to be read. */
static bool is_work_newer(const char *work_path, const struct rp_build_shard *shard)
{
    struct rp_stamp found;
    if (shard->remote) /* its name says of which content it is */
        return shard->has_identity && rp_stamp_at(work_path, &found) == 0;
    return is_newer(work_path, shard) && rp_stamp_at(work_path, &found) == 0 &&
           found.mtime_ns > shard->beside.sidecar_ns;
}

/* ---- learn ----------------------------------------------------------------------------------- */

/* Open a shard with its sidecar: found as usual, or the one in PATH.work. */
static int open_shard(const struct rp_manifest_build *build, const struct rp_build_shard *shard,
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
    if (!opened->found.has_sidecar)
        code = rp_fail(error, -RP_E_CHANGED, "run the command again",
                       "%s: its sidecar has vanished", shard->path);
    else if (!shard->remote && (opened->shard.stamp.mtime_ns != shard->mtime_ns ||
                                opened->shard.bytes != shard->bytes))
        code = rp_fail(error, -RP_E_CHANGED, "run the command again when nobody writes to it",
                       "%s: changed while it was indexed", shard->path);
    if (code < 0)
        rp_shard_close(opened);
    else
        rp_shard_read_through(opened);
    return code;
}

/* All of the sidecar is to be copied, so all of it is compared with its hashes. */
static int check_sidecar(const struct rp_opened *opened, struct rp_error *error)
{
    const struct rp_sidecar *sidecar = &opened->found.sidecar;
    const struct rp_map *index = &opened->megatron.map;
    struct rp_hash128 content;
    int code = rp_sidecar_check_blocks(sidecar, opened->shard.path, error);
    if (code == 0)
        code = rp_sidecar_check_table(sidecar, opened->shard.path, error);
    if (code == 0)
        code = rp_map_hash(index, &content, error);
    if (code == 0 && index->bytes && !rp_hash128_equal(content, sidecar->info.index_content))
        code = rp_fail(error, -RP_E_CHANGED, "index it again",
                       "%s: differs from what its sidecar describes", opened->found.index_path);
    return code;
}

static int take(const struct rp_manifest_build *build, struct rp_build_shard *shard,
                const char *work_path, struct rp_error *error)
{
    struct rp_opened opened;
    int code = open_shard(build, shard, work_path, &opened, error);
    if (code < 0)
        return code;
    code = check_sidecar(&opened, error);
    shard->record = (struct rp_manifest_record){
        .bytes = shard->bytes,
        .mtime_ns = shard->mtime_ns,
        .documents = opened.shard.documents,
        .tokens = opened.shard.tokens,
        .format = opened.found.format,
        .type = opened.shard.type,
        .eos = opened.found.eos,
        .token_offset = opened.layout.token_offset,
        .token_max = opened.found.sidecar.info.token_max,
        .content = opened.found.sidecar.info.content,
        .fingerprint = opened.fingerprint,
        .beside = shard->beside,
    };
    memcpy(shard->record.column, opened.layout.column, sizeof shard->record.column);
    shard->tokenizer = opened.shard.tokenizer ? *opened.shard.tokenizer
                                              : (struct rp_tokenizer_id){0};
    shard->spans = 0;
    if (opened.uses_spans) {
        shard->record.mask = *opened.mask;
        shard->spans = opened.table->shape.span_count;
    }
    rp_shard_close(&opened);
    return code;
}

static int take_from_older(const struct rp_manifest_build *build, struct rp_build_shard *shard,
                           struct rp_error *error)
{
    const struct rp_table *table = &shard->older->table;
    shard->tokenizer = build->older->sources[shard->older->source].tokenizer;
    uint64_t first = rp_manifest_first(shard->older, shard->older_shard);
    uint64_t end = rp_manifest_first(shard->older, shard->older_shard + 1);
    if (!rp_manifest_record(build->older, shard->older, shard->older_shard, &shard->record, NULL) ||
        first > end || end > table->shape.documents || end - first != shard->record.documents)
        return rp_manifest_fail_damaged(build->older, "record of a shard", error);
    if (shard->record.mask.name[0] && !table->shape.has_spans)
        return rp_manifest_fail_damaged(build->older, "record of a shard", error);
    if (shard->record.mask.name[0])
        shard->spans = table->spans.ends[end] - table->spans.ends[first];
    return 0;
}

/* Of an object that has another sidecar since the older manifest was made, and nothing else: does
 * the sidecar differ from that manifest? Then the sidecar may be of older tokens or labels. */
static bool differs_from_older(const struct rp_manifest_build *build,
                               const struct rp_build_shard *shard)
{
    struct rp_manifest_record older;
    if (!shard->remote || !shard->older)
        return false;
    return !rp_manifest_record(build->older, shard->older, shard->older_shard, &older, NULL) ||
           !rp_hash128_equal(older.content, shard->record.content) ||
           !rp_hash128_equal(older.fingerprint.full, shard->record.fingerprint.full);
}

/* Its own sidecar, if it has one that counts: 1, or 0. */
static int take_own_sidecar(const struct rp_manifest_build *build, struct rp_build_shard *shard)
{
    if (shard->has_new_content) /* no time tells whether the sidecar is of what is there now */
        return 0;
    const struct rp_find_options options = {.hints = &build->options.sources[shard->source],
                                            .remote = shard->remote,
                                            .index_dir = build->options.index_dir,
                                            .replacing_sidecar = true};
    struct rp_found found;
    struct rp_error ignored;
    if (rp_find(&found, shard->path, &options, &ignored) < 0)
        return 0;
    bool counts = found.has_sidecar &&
                  (shard->remote || is_newer(found.sidecar.path, shard)); /* as at a start */
    rp_found_release(&found);
    return counts && take(build, shard, NULL, &ignored) == 0 && !differs_from_older(build, shard);
}

/* The object is fetched for it. The content that arrives is the one that was examined, by its
 * identity, so that the hashes in the manifest belong to the identity in it. */
static int index_object(const struct rp_manifest_build *build, const struct rp_build_shard *shard,
                        const char *work_path, const struct rp_progress *progress,
                        struct rp_error *error)
{
    struct rp_borrowed borrowed;
    int code = rp_borrowed_open(&borrowed, shard->remote->url, shard->remote->identity, build->work,
                                progress, error);
    if (code < 0)
        return code;
    code = rp_index_build_scratch(borrowed.path, &build->options.sources[shard->source], NULL,
                                  work_path, progress, error);
    rp_borrowed_close(&borrowed);
    return code < 0 ? rp_fail_context(error, code, "%s", shard->path) : 0;
}

static int index_tokens(const struct rp_manifest_build *build, const struct rp_build_shard *shard,
                        const char *work_path, const struct rp_progress *progress,
                        struct rp_error *error)
{
    return shard->remote
               ? index_object(build, shard, work_path, progress, error)
               : rp_index_build_scratch(shard->path, &build->options.sources[shard->source],
                                        build->options.index_dir, work_path, progress, error);
}

int rp_manifest_build_learn(struct rp_manifest_build *build, uint64_t i,
                            const struct rp_progress *progress, struct rp_error *error)
{
    struct rp_build_shard *shard = &build->shards[i];
    struct rp_error ignored;
    if (shard->origin == RP_FROM_OLDER)
        return take_from_older(build, shard, error);
    char *work_path = rp_build_work_path(build, shard);
    if (!work_path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", shard->path);
    int code = 0;
    if (is_work_newer(work_path, shard) && take(build, shard, work_path, &ignored) == 0) {
        shard->origin = RP_FROM_WORK;
    } else if (take_own_sidecar(build, shard)) {
        shard->origin = RP_FROM_SIDECAR;
    } else {
        code = index_tokens(build, shard, work_path, progress, error);
        if (code == 0)
            code = take(build, shard, work_path, error);
        shard->origin = RP_FROM_WORK;
        shard->was_read = true;
    }
    free(work_path);
    return code;
}

/* ---- fill ------------------------------------------------------------------------------------ */

/* Where the entries of a shard go. */
struct columns {
    uint64_t *bytes, *blocks, *ends; /* ends[d + 1] is of document d */
    uint32_t *lengths;
    struct rp_span *spans;
    uint64_t span; /* so far, of the segment */
};

static struct columns columns_of(const struct rp_build_source *source,
                                 const struct rp_build_shard *shard)
{
    const struct rp_table_shape shape = {.documents = source->shape.documents,
                                         .span_count = source->shape.spans,
                                         .has_extents = true,
                                         .has_spans = source->shape.has_spans};
    struct rp_table table;
    int code = rp_table_over(&table, &shape, source->data, NULL, NULL);
    RP_ASSERT(code == 0);
    uint64_t first = shard->first_document;
    return (struct columns){
        .bytes = (uint64_t *)(uintptr_t)table.bytes + first,
        .lengths = (uint32_t *)(uintptr_t)table.lengths + first,
        .ends = table.spans.ends ? (uint64_t *)(uintptr_t)table.spans.ends + first : NULL,
        .spans = (struct rp_span *)(uintptr_t)table.spans.table,
        .blocks = (uint64_t *)(void *)(source->data + source->parts.blocks) +
                  shard->record.first_block,
        .span = shard->first_span,
    };
}

static int fail_document(const struct rp_build_shard *shard, uint64_t document, const char *problem,
                         struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT, "restore the shard, write it again, or leave it out",
                   "%s: document %" PRIu64 ": %s", shard->path, document, problem);
}

/* The spans of a document, and where they end. */
static const char *put_spans(struct columns *to, uint64_t to_document, uint64_t span_max,
                             const struct rp_table *from, uint64_t document)
{
    if (!rp_table_verify_spans(from, document))
        return "the page that has its spans differs from its hash";
    uint64_t first = from->spans.ends[document], end = from->spans.ends[document + 1];
    if (first > end || end > from->spans.count || end - first > span_max - to->span)
        return "its spans lie outside the table";
    memcpy(to->spans + to->span, from->spans.table + first, (end - first) * sizeof *to->spans);
    to->span += end - first;
    to->ends[to_document + 1] = to->span;
    return NULL;
}

static int put_documents(const struct rp_build_shard *shard, struct columns *to,
                         const struct rp_opened *opened, struct rp_error *error)
{
    uint64_t span_max = shard->first_span + shard->spans;
    for (uint64_t d = 0; d < shard->record.documents; d++) {
        uint64_t tokens, byte;
        const char *problem = rp_shard_locate(opened, d, &tokens, &byte);
        if (!problem && tokens > UINT32_MAX)
            problem = "it has more tokens than a manifest can say";
        if (!problem && to->ends && opened->uses_spans)
            problem = put_spans(to, d, span_max, opened->table, d);
        if (problem)
            return fail_document(shard, d, problem, error);
        to->bytes[d] = byte;
        to->lengths[d] = (uint32_t)tokens;
    }
    return 0;
}

static int put_older_documents(const struct rp_build_shard *shard, struct columns *to,
                               struct rp_error *error)
{
    const struct rp_table *table = &shard->older->table;
    uint64_t first = rp_manifest_first(shard->older, shard->older_shard);
    uint64_t span_max = shard->first_span + shard->spans;
    for (uint64_t d = 0; d < shard->record.documents; d++) {
        uint64_t tokens, byte;
        const char *problem = rp_table_locate(table, first + d, rp_token_width(shard->record.type),
                                              shard->record.bytes, &tokens, &byte);
        if (!problem && to->ends)
            problem = put_spans(to, d, span_max, table, first + d);
        if (problem)
            return fail_document(shard, d, problem, error);
        to->bytes[d] = byte;
        to->lengths[d] = (uint32_t)tokens;
    }
    return 0;
}

static int fill_from_sidecar(const struct rp_manifest_build *build, struct rp_build_shard *shard,
                             struct columns *to, struct rp_error *error)
{
    char *work_path = shard->origin == RP_FROM_WORK ? rp_build_work_path(build, shard) : NULL;
    struct rp_opened opened;
    if (shard->origin == RP_FROM_WORK && !work_path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", shard->path);
    int code = open_shard(build, shard, work_path, &opened, error);
    free(work_path);
    if (code < 0)
        return code;
    const struct rp_fingerprint *found = &opened.fingerprint;
    if (opened.shard.documents != shard->record.documents ||
        !rp_hash128_equal(found->full, shard->record.fingerprint.full))
        code = rp_fail(error, -RP_E_CHANGED, "run the command again when nobody writes to it",
                       "%s: its sidecar changed while it was indexed", shard->path);
    if (code == 0)
        code = put_documents(shard, to, &opened, error);
    if (code == 0)
        code = rp_sidecar_check_blocks(&opened.found.sidecar, shard->path, error);
    if (code == 0)
        memcpy(to->blocks, opened.shard.block_hashes, 8 * (size_t)opened.shard.block_count);
    rp_shard_close(&opened);
    return code;
}

int rp_manifest_build_fill(struct rp_manifest_build *build, uint64_t i, struct rp_error *error)
{
    struct rp_build_shard *shard = &build->shards[i];
    const struct rp_build_source *source = &build->sources[shard->source];
    struct columns to = columns_of(source, shard);
    uint64_t number = i - source->first;
    rp_manifest_encode_record(&shard->record, source->data + source->parts.records +
                                                  number * RP_MANIFEST_RECORD_BYTES);
    rp_store_u64(source->data + source->parts.first + 8 * number, shard->first_document);
    memcpy(source->data + source->parts.paths + shard->record.path_at, shard->stored,
           shard->stored_bytes);
    if (shard->origin != RP_FROM_OLDER)
        return fill_from_sidecar(build, shard, &to, error);
    int code = put_older_documents(shard, &to, error);
    struct rp_manifest_record older; /* with its place in the older segment */
    bool is_good = rp_manifest_record(build->older, shard->older, shard->older_shard, &older, NULL);
    RP_ASSERT(is_good); /* it was read before, and its page is verified */
    memcpy(to.blocks, rp_manifest_blocks(shard->older) + older.first_block,
           8 * (size_t)rp_div_up(older.bytes, RP_BLOCK_BYTES));
    return code;
}
