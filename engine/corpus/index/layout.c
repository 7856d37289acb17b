/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c — the offsets of the parts of a segment, and the stored form of heads and records
 * (INDEX.md). */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "corpus/index/index.h"

/* No part of a file has more entries than a file has bytes, so the sums below cannot overflow. */
#define COUNT_MAX (UINT64_C(1) << 48)
#define BUCKETS_PER_SHARD 4u
#define FLAG_EXTENTS 1u
#define FLAG_SPANS 2u

bool rp_index_find_parts(const struct rp_index_shape *shape, struct rp_index_parts *parts)
{
    uint64_t image, documents = shape->table.documents, shards = shape->shards;
    if (documents > COUNT_MAX || shape->table.span_count > COUNT_MAX || shape->blocks > COUNT_MAX ||
        shape->path_bytes > COUNT_MAX || !rp_table_image_bytes(&shape->table, &image))
        return false;
    *parts = (struct rp_index_parts){.records = image};
    while (documents >> parts->bucket_shift > BUCKETS_PER_SHARD * shards)
        parts->bucket_shift++;
    parts->bucket_count = (documents >> parts->bucket_shift) + 2;
    parts->first = parts->records + shards * RP_INDEX_RECORD_BYTES;
    parts->buckets = parts->first + 8 * (shards + 1);
    parts->blocks = rp_align_up(parts->buckets + 4 * parts->bucket_count, 8);
    parts->paths = parts->blocks + 8 * shape->blocks;
    parts->bytes = rp_align_up(parts->paths + shape->path_bytes, 8);
    return true;
}

uint64_t rp_index_parts_bytes(const struct rp_index_parts *parts)
{
    return parts->bytes + 8 * rp_tree_hash_count(rp_div_up(parts->bytes, RP_BLOCK_BYTES));
}

/* ---- entries of the head, and records -------------------------------------------------------- */

/* The place of a struct's member in a file and in the struct. Both are little-endian. */
struct field {
    uint16_t at, member, bytes;
};
#define FIELD(type, at, member)                                                                    \
    {                                                                                              \
        at, offsetof(struct type, member), sizeof(((struct type *)NULL)->member)                   \
    }

RP_STATIC_ASSERT(sizeof(enum rp_format) == 4 && sizeof(enum rp_token_type) == 4 &&
                     sizeof(enum rp_index_column_type) == 4 && sizeof(struct rp_fingerprint) == 32,
                 "members have the sizes of INDEX.md");

static const struct field source_fields[] = {
    FIELD(rp_index_source, 0, documents),      FIELD(rp_index_source, 8, tokens),
    FIELD(rp_index_source, 16, token_bytes),   FIELD(rp_index_source, 24, bytes),
    FIELD(rp_index_source, 32, shards),        FIELD(rp_index_source, 36, widest),
    FIELD(rp_index_source, 40, segment_count), FIELD(rp_index_source, 44, text_count),
    FIELD(rp_index_source, 64, fingerprint),   FIELD(rp_index_source, 96, tokenizer.hash),
};
static const struct field segment_fields[] = {
    FIELD(rp_index_segment, 0, offset),        FIELD(rp_index_segment, 8, shape.table.documents),
    FIELD(rp_index_segment, 16, tokens),       FIELD(rp_index_segment, 24, shape.table.span_count),
    FIELD(rp_index_segment, 32, shape.blocks), FIELD(rp_index_segment, 40, shape.path_bytes),
    FIELD(rp_index_segment, 48, shape.shards), FIELD(rp_index_segment, 56, shape.objects),
    FIELD(rp_index_segment, 64, tree.root),    FIELD(rp_index_segment, 80, prefix),
};
static const struct field column_fields[] = {
    FIELD(rp_index_column, 0, type),    FIELD(rp_index_column, 8, offset),
    FIELD(rp_index_column, 16, values), FIELD(rp_index_column, 24, segment_at),
    FIELD(rp_index_column, 32, name),   FIELD(rp_index_column, 80, tree.root),
};
static const struct field record_fields[] = {
    FIELD(rp_index_record, 0, bytes),
    FIELD(rp_index_record, 8, mtime_ns),
    FIELD(rp_index_record, 16, documents),
    FIELD(rp_index_record, 24, tokens),
    FIELD(rp_index_record, 32, first_block),
    FIELD(rp_index_record, 40, path_at),
    FIELD(rp_index_record, 48, format),
    FIELD(rp_index_record, 52, type),
    FIELD(rp_index_record, 56, eos),
    FIELD(rp_index_record, 64, token_offset),
    FIELD(rp_index_record, 72, token_max),
    FIELD(rp_index_record, 80, content),
    FIELD(rp_index_record, 96, fingerprint),
    FIELD(rp_index_record, 128, column),
    FIELD(rp_index_record, 160, mask.name),
    FIELD(rp_index_record, 200, companions.idx_ns),
    FIELD(rp_index_record, 208, companions.mask_ns),
    FIELD(rp_index_record, 216, companions.sidecar_ns),
    FIELD(rp_index_record, 224, table_root),
    FIELD(rp_index_record, 240, idx_bytes),
    FIELD(rp_index_record, 248, idx_sample),
    FIELD(rp_index_record, 264, idx_content),
};
#define MASK_RULE_AT 192
#define FLAGS_AT 52

static void encode(const struct field *fields, size_t count, const void *from, uint8_t *bytes)
{
    for (size_t i = 0; i < count; i++)
        memcpy(bytes + fields[i].at, (const uint8_t *)from + fields[i].member, fields[i].bytes);
}

static void decode(const struct field *fields, size_t count, const uint8_t *bytes, void *to)
{
    for (size_t i = 0; i < count; i++)
        memcpy((uint8_t *)to + fields[i].member, bytes + fields[i].at, fields[i].bytes);
}

void rp_index_encode_source(const struct rp_index_source *source, uint64_t texts_at, uint8_t *bytes)
{
    encode(source_fields, RP_ARRAY_COUNT(source_fields), source, bytes);
    rp_store_u64(bytes + 48, texts_at);
}

void rp_index_decode_source(const uint8_t *bytes, struct rp_index_source *source)
{
    decode(source_fields, RP_ARRAY_COUNT(source_fields), bytes, source);
}

void rp_index_encode_segment(const struct rp_index_segment *segment, uint8_t *bytes)
{
    const struct rp_table_shape *table = &segment->shape.table;
    encode(segment_fields, RP_ARRAY_COUNT(segment_fields), segment, bytes);
    rp_store_u32(bytes + FLAGS_AT,
                 (table->has_extents ? FLAG_EXTENTS : 0) | (table->has_spans ? FLAG_SPANS : 0));
}

void rp_index_decode_segment(const uint8_t *bytes, struct rp_index_segment *segment)
{
    uint32_t flags = rp_load_u32(bytes + FLAGS_AT);
    decode(segment_fields, RP_ARRAY_COUNT(segment_fields), bytes, segment);
    segment->shape.table.has_extents = flags & FLAG_EXTENTS;
    segment->shape.table.has_spans = flags & FLAG_SPANS;
}

void rp_index_encode_column(const struct rp_index_column *column, uint8_t *bytes)
{
    encode(column_fields, RP_ARRAY_COUNT(column_fields), column, bytes);
}

void rp_index_decode_column(const uint8_t *bytes, struct rp_index_column *column)
{
    decode(column_fields, RP_ARRAY_COUNT(column_fields), bytes, column);
}

void rp_index_encode_record(const struct rp_index_record *record, uint8_t *bytes)
{
    memset(bytes, 0, RP_INDEX_RECORD_BYTES);
    encode(record_fields, RP_ARRAY_COUNT(record_fields), record, bytes);
    rp_store_u32(bytes + MASK_RULE_AT, rp_mask_rule_bits(&record->mask.rule));
}

void rp_index_decode_record(const uint8_t *bytes, struct rp_index_record *record)
{
    *record = (struct rp_index_record){
        .mask.rule = rp_mask_rule_of(rp_load_u32(bytes + MASK_RULE_AT))};
    decode(record_fields, RP_ARRAY_COUNT(record_fields), bytes, record);
    record->column[sizeof record->column - 1] = 0;
    record->mask.name[sizeof record->mask.name - 1] = 0;
}

/* ---- declarations ---------------------------------------------------------------------------- */

static const char *text_or_empty(const char *text)
{
    return text ? text : "";
}

void rp_index_declared(const struct rp_source_spec *spec, char eos[24],
                       const char *texts[RP_INDEX_PATTERNS])
{
    snprintf(eos, 24, "%" PRId64, spec->eos);
    bool is_auto = rp_mask_is_auto(&spec->mask);
    texts[RP_INDEX_NAME] = text_or_empty(spec->name);
    texts[RP_INDEX_FORMAT] = rp_format_name(spec->format);
    texts[RP_INDEX_DTYPE] = spec->type == RP_TOKEN_NONE ? "" : rp_token_type_name(spec->type);
    texts[RP_INDEX_EOS] = eos;
    texts[RP_INDEX_COLUMN] = text_or_empty(spec->column);
    texts[RP_INDEX_MASK] = is_auto ? "auto" : spec->mask.name;
    texts[RP_INDEX_MASK_VALUE] = text_or_empty(spec->mask.value);
    texts[RP_INDEX_MASK_OF] = text_or_empty(spec->mask.of);
    texts[RP_INDEX_DROP_UNTRAINED] = spec->drop_untrained ? "true" : "false";
    texts[RP_INDEX_FOUND_MASK] = texts[RP_INDEX_TOKENIZER] = "";
}
