/* SPDX-License-Identifier: Apache-2.0 */
/* write_shard.c — the entries of each new shard in the index that is written (build.h). */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "corpus/index/build_struct.h"
#include "corpus/index/documents.h"

/* The destination of a shard's entries. */
struct destination {
    uint64_t *bytes, *blocks, *ends; /* ends[d + 1] is of document d; NULL: there is no mask */
    uint32_t *lengths;
    struct rp_span *spans;
    uint64_t span; /* number of the next span in the segment */
};

static struct destination destination_of(const struct rp_index_segment *segment,
                                         const struct rp_build_shard *shard)
{
    struct rp_table table;
    rp_table_over(&table, &segment->shape.table, segment->tree.data, NULL);
    uint64_t first = shard->first_document;
    return (struct destination){
        .bytes = (uint64_t *)(uintptr_t)table.bytes + first,
        .lengths = (uint32_t *)(uintptr_t)table.lengths + first,
        .ends = table.spans.ends ? (uint64_t *)(uintptr_t)table.spans.ends + first : NULL,
        .spans = (struct rp_span *)(uintptr_t)table.spans.table,
        .blocks = (uint64_t *)(void *)(rp_index_data(segment) + segment->parts.blocks) +
                  shard->record.first_block,
        .span = shard->first_span,
    };
}

/* Copy the spans of a document. */
static const char *put_spans(struct destination *to, uint64_t to_document, uint64_t span_max,
                             const struct rp_table *from, uint64_t document)
{
    if (!rp_table_verify_spans(from, document))
        return "the page that has its spans differs from its hash";
    uint64_t first = from->spans.ends[document], end = from->spans.ends[document + 1];
    if (first > end || end > from->spans.count || end - first > span_max - to->span)
        return "its spans are outside of the table";
    memcpy(to->spans + to->span, from->spans.table + first, (end - first) * sizeof *to->spans);
    to->span += end - first;
    to->ends[to_document + 1] = to->span;
    return NULL;
}

/* Copy the documents of the shard from a segment, where `first` is the first of them. */
static int put_documents(const struct rp_build_shard *shard, struct destination *to,
                         const struct rp_index_segment *from, uint64_t first,
                         struct rp_error *error)
{
    uint32_t width = rp_token_width(shard->record.type);
    uint64_t span_max = shard->first_span + shard->spans;
    for (uint64_t d = 0; d < shard->record.documents; d++) {
        uint64_t tokens, byte;
        const char *problem = rp_documents_locate(from, width, shard->record.bytes, first + d,
                                                  &tokens, &byte);
        if (!problem && tokens > UINT32_MAX)
            problem = "it has more tokens than an index can say";
        if (!problem && to->ends)
            problem = put_spans(to, d, span_max, &from->table, first + d);
        if (problem)
            return rp_fail(error, -RP_E_CORRUPT,
                           "restore the shard, write it again, or leave it out",
                           "%s: document %" PRIu64 ": %s", shard->path, d, problem);
        to->bytes[d] = byte;
        to->lengths[d] = (uint32_t)tokens;
    }
    return 0;
}

static void put_blocks(const struct rp_build_shard *shard, struct destination *to,
                       const uint64_t *from)
{
    memcpy(to->blocks, from, 8 * (size_t)rp_div_up(shard->record.bytes, RP_BLOCK_BYTES));
}

static int write_from_sidecar(const struct rp_indexing *build, const struct rp_build_shard *shard,
                              struct destination *to, struct rp_error *error)
{
    char *work_path = shard->origin == RP_FROM_WORK ? rp_build_work_path(build, shard) : NULL;
    struct rp_opened opened;
    if (shard->origin == RP_FROM_WORK && !work_path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", shard->path);
    int code = rp_build_open_shard(build, shard, work_path, &opened, error);
    free(work_path);
    if (code < 0)
        return code;
    if (opened.shard.documents != shard->record.documents ||
        !rp_hash128_equal(opened.fingerprint.full, shard->record.fingerprint.full))
        code = rp_fail(error, -RP_E_CHANGED, "run the command again when no process writes to it",
                       "%s: its sidecar changed while it was indexed", shard->path);
    if (code == 0)
        code = put_documents(shard, to, opened.segment, 0, error);
    if (code == 0)
        code = rp_shard_check_sidecar(&opened.shard, error);
    if (code == 0)
        put_blocks(shard, to, opened.shard.block_hashes);
    rp_shard_close(&opened);
    return code;
}

static int write_from_older(const struct rp_build_shard *shard, struct destination *to,
                            struct rp_error *error)
{
    struct rp_index_record older; /* with its place in the older segment */
    bool is_good = rp_index_get_record(shard->older, shard->older_shard, &older, NULL);
    RP_ASSERT(is_good); /* it was read before, and its page is verified */
    put_blocks(shard, to, rp_index_blocks(shard->older, &older));
    return put_documents(shard, to, shard->older,
                         rp_index_documents_before(shard->older, shard->older_shard), error);
}

int rp_indexing_write(struct rp_indexing *build, uint64_t i, struct rp_error *error)
{
    const struct rp_build_shard *shard = &build->shards[i];
    const struct rp_build_source *source = &build->sources[shard->source];
    struct destination to = destination_of(source->segment, shard);
    uint8_t *data = rp_index_data(source->segment);
    const struct rp_index_parts *parts = &source->segment->parts;
    rp_index_encode_record(&shard->record,
                           data + parts->records + (i - source->first) * RP_INDEX_RECORD_BYTES);
    memcpy(data + parts->paths + shard->record.path_at, shard->stored, shard->stored_bytes);
    return shard->origin == RP_FROM_OLDER ? write_from_older(shard, &to, error)
                                          : write_from_sidecar(build, shard, &to, error);
}
