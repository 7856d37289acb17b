/* SPDX-License-Identifier: Apache-2.0 */
/* write_sidecar.c — the index of one shard, from the documents of a walk (write.h). */
#include "corpus/collector.h"
#include "corpus/index/write.h"

/* Write the parts of the segment, which has its layout. */
static int write_parts(struct rp_index_segment *segment, struct rp_index_record *record,
                       const struct rp_collector *collector, struct rp_error *error)
{
    uint64_t *blocks = (uint64_t *)(void *)(rp_index_data(segment) + segment->parts.blocks);
    struct rp_table table;
    rp_table_over(&table, &segment->shape.table, segment->tree.data, NULL);
    int code = rp_collector_put_table(collector, &table, error);
    if (code == 0)
        code = rp_collector_put_blocks(collector, blocks, error);
    if (code < 0)
        return code;
    if (table.shape.has_extents || table.shape.has_spans)
        record->table_root = rp_table_root(&table);
    record->content = rp_hash128(blocks, 8 * (size_t)segment->shape.blocks);
    rp_index_encode_record(record, rp_index_data(segment) + segment->parts.records);
    rp_index_put_documents_before(segment, 1, record->documents);
    rp_index_put_buckets(segment);
    return 0;
}

int rp_sidecar_write(struct rp_new_file *file, struct rp_index_record *record,
                     const struct rp_tokenizer_id *tokenizer, const struct rp_collector *collector,
                     struct rp_error *error)
{
    uint32_t width = rp_token_width(record->type);
    const char *texts[RP_INDEX_PATTERNS];
    for (size_t i = 0; i < RP_ARRAY_COUNT(texts); i++)
        texts[i] = "";
    texts[RP_INDEX_TOKENIZER] = tokenizer->name;
    record->documents = collector->shape.documents;
    struct rp_index_segment segment = {.tokens = record->tokens,
                                       .shape = {.table = collector->shape,
                                                 .blocks = rp_div_up(record->bytes, RP_BLOCK_BYTES),
                                                 .path_bytes = 1, /* its path is empty */
                                                 .shards = 1}};
    struct rp_index_source source = {.texts = texts,
                                     .text_count = RP_INDEX_PATTERNS,
                                     .shards = 1,
                                     .widest = width,
                                     .segment_count = 1,
                                     .segments = &segment,
                                     .documents = record->documents,
                                     .tokens = record->tokens,
                                     .token_bytes = record->tokens * width,
                                     .bytes = record->bytes,
                                     .tokenizer = *tokenizer};
    struct rp_index draft = {.generation = 1,
                             .source_count = 1,
                             .segment_count = 1,
                             .shard_count = 1,
                             .sources = &source,
                             .segments = &segment};
    struct rp_index_writer writer = {.path = file->path, .fd = file->fd};
    int code = rp_index_lay_out(&writer, &draft, error);
    if (code == 0)
        code = write_parts(&segment, record, collector, error);
    for (uint64_t part = 0; code == 0 && part < rp_index_hash_part_count(&draft); part++)
        rp_index_hash_part(&draft, part);
    if (code == 0)
        code = rp_index_write_head(&writer, &draft, error);
    rp_index_writer_close(&writer);
    return code;
}
