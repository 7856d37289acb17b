/* SPDX-License-Identifier: Apache-2.0 */
/* layout — where the parts of a segment are, and how entries of the head and records are stored
 * (INDEX.md). */
#include <inttypes.h>
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

/* ---- entries of the head --------------------------------------------------------------------- */

void rp_index_store_fingerprint(uint8_t *bytes, const struct rp_fingerprint *fingerprint)
{
    rp_hash128_store(bytes, fingerprint->sampled);
    rp_hash128_store(bytes + 16, fingerprint->full);
}

struct rp_fingerprint rp_index_load_fingerprint(const uint8_t *bytes)
{
    return (struct rp_fingerprint){.sampled = rp_hash128_load(bytes),
                                   .full = rp_hash128_load(bytes + 16)};
}

void rp_index_encode_source(const struct rp_index_source *source, uint64_t texts_at, uint8_t *bytes)
{
    rp_store_u64(bytes, source->documents);
    rp_store_u64(bytes + 8, source->tokens);
    rp_store_u64(bytes + 16, source->token_bytes);
    rp_store_u64(bytes + 24, source->bytes);
    rp_store_u32(bytes + 32, source->shards);
    rp_store_u32(bytes + 36, source->widest);
    rp_store_u32(bytes + 40, source->segment_count);
    rp_store_u32(bytes + 44, source->text_count);
    rp_store_u64(bytes + 48, texts_at);
    rp_index_store_fingerprint(bytes + 64, &source->fingerprint);
    rp_hash128_store(bytes + 96, source->tokenizer.hash);
}

void rp_index_decode_source(const uint8_t *bytes, struct rp_index_source *source)
{
    source->documents = rp_load_u64(bytes);
    source->tokens = rp_load_u64(bytes + 8);
    source->token_bytes = rp_load_u64(bytes + 16);
    source->bytes = rp_load_u64(bytes + 24);
    source->shards = rp_load_u32(bytes + 32);
    source->widest = rp_load_u32(bytes + 36);
    source->segment_count = rp_load_u32(bytes + 40);
    source->text_count = rp_load_u32(bytes + 44);
    source->fingerprint = rp_index_load_fingerprint(bytes + 64);
    source->tokenizer.hash = rp_hash128_load(bytes + 96);
}

void rp_index_encode_segment(const struct rp_index_segment *segment, uint8_t *bytes)
{
    const struct rp_index_shape *shape = &segment->shape;
    rp_store_u64(bytes, segment->offset);
    rp_store_u64(bytes + 8, shape->table.documents);
    rp_store_u64(bytes + 16, segment->tokens);
    rp_store_u64(bytes + 24, shape->table.span_count);
    rp_store_u64(bytes + 32, shape->blocks);
    rp_store_u64(bytes + 40, shape->path_bytes);
    rp_store_u32(bytes + 48, shape->shards);
    rp_store_u32(bytes + 52, (shape->table.has_extents ? FLAG_EXTENTS : 0) |
                                 (shape->table.has_spans ? FLAG_SPANS : 0));
    rp_store_u32(bytes + 56, shape->objects);
    rp_hash128_store(bytes + 64, segment->tree.root);
    rp_index_store_fingerprint(bytes + 80, &segment->prefix);
}

void rp_index_decode_segment(const uint8_t *bytes, struct rp_index_segment *segment)
{
    uint32_t flags = rp_load_u32(bytes + 52);
    segment->offset = rp_load_u64(bytes);
    segment->tokens = rp_load_u64(bytes + 16);
    segment->shape = (struct rp_index_shape){.table = {.documents = rp_load_u64(bytes + 8),
                                                       .span_count = rp_load_u64(bytes + 24),
                                                       .has_extents = flags & FLAG_EXTENTS,
                                                       .has_spans = flags & FLAG_SPANS},
                                             .blocks = rp_load_u64(bytes + 32),
                                             .path_bytes = rp_load_u64(bytes + 40),
                                             .shards = rp_load_u32(bytes + 48),
                                             .objects = rp_load_u32(bytes + 56)};
    segment->tree.root = rp_hash128_load(bytes + 64);
    segment->prefix = rp_index_load_fingerprint(bytes + 80);
}

void rp_index_encode_column(const struct rp_index_column *column, uint8_t *bytes)
{
    rp_store_u32(bytes, (uint32_t)column->type);
    rp_store_u64(bytes + 8, column->offset);
    rp_store_u64(bytes + 16, column->values);
    rp_store_u64(bytes + 24, column->segment_at);
    memcpy(bytes + 32, column->name, sizeof column->name);
    rp_hash128_store(bytes + 80, column->tree.root);
}

void rp_index_decode_column(const uint8_t *bytes, struct rp_index_column *column)
{
    column->type = (enum rp_index_column_type)rp_load_u32(bytes);
    column->offset = rp_load_u64(bytes + 8);
    column->values = rp_load_u64(bytes + 16);
    column->segment_at = rp_load_u64(bytes + 24);
    memcpy(column->name, bytes + 32, sizeof column->name);
    column->tree.root = rp_hash128_load(bytes + 80);
}

/* ---- records --------------------------------------------------------------------------------- */

enum {
    AT_BYTES = 0,
    AT_MTIME = 8,
    AT_DOCUMENTS = 16,
    AT_TOKENS = 24,
    AT_FIRST_BLOCK = 32,
    AT_PATH = 40,
    AT_FORMAT = 48,
    AT_TYPE = 52,
    AT_EOS = 56,
    AT_TOKEN_OFFSET = 64,
    AT_TOKEN_MAX = 72,
    AT_CONTENT = 80,
    AT_FINGERPRINT = 96,
    AT_COLUMN = 128,
    AT_MASK = 160,
    AT_MASK_RULE = 192,
    AT_IDX_TIME = 200,
    AT_MASK_TIME = 208,
    AT_SIDECAR_TIME = 216,
    AT_TABLE_ROOT = 224,
    AT_IDX_BYTES = 240,
    AT_IDX_SAMPLE = 248,
    AT_IDX_CONTENT = 264,
};

void rp_index_encode_record(const struct rp_index_record *record, uint8_t *bytes)
{
    memset(bytes, 0, RP_INDEX_RECORD_BYTES);
    rp_store_u64(bytes + AT_BYTES, record->bytes);
    rp_store_u64(bytes + AT_MTIME, record->mtime_ns);
    rp_store_u64(bytes + AT_DOCUMENTS, record->documents);
    rp_store_u64(bytes + AT_TOKENS, record->tokens);
    rp_store_u64(bytes + AT_FIRST_BLOCK, record->first_block);
    rp_store_u64(bytes + AT_PATH, record->path_at);
    rp_store_u32(bytes + AT_FORMAT, (uint32_t)record->format);
    rp_store_u32(bytes + AT_TYPE, (uint32_t)record->type);
    rp_store_u64(bytes + AT_EOS, (uint64_t)record->eos);
    rp_store_u64(bytes + AT_TOKEN_OFFSET, record->token_offset);
    rp_store_u64(bytes + AT_TOKEN_MAX, record->token_max);
    rp_hash128_store(bytes + AT_CONTENT, record->content);
    rp_index_store_fingerprint(bytes + AT_FINGERPRINT, &record->fingerprint);
    memcpy(bytes + AT_COLUMN, record->column, sizeof record->column);
    memcpy(bytes + AT_MASK, record->mask.name, sizeof record->mask.name);
    rp_store_u32(bytes + AT_MASK_RULE, rp_mask_rule_bits(&record->mask.rule));
    rp_store_u64(bytes + AT_IDX_TIME, record->companions.idx_ns);
    rp_store_u64(bytes + AT_MASK_TIME, record->companions.mask_ns);
    rp_store_u64(bytes + AT_SIDECAR_TIME, record->companions.sidecar_ns);
    rp_hash128_store(bytes + AT_TABLE_ROOT, record->table_root);
    rp_store_u64(bytes + AT_IDX_BYTES, record->idx_bytes);
    rp_hash128_store(bytes + AT_IDX_SAMPLE, record->idx_sample);
    rp_hash128_store(bytes + AT_IDX_CONTENT, record->idx_content);
}

void rp_index_decode_record(const uint8_t *bytes, struct rp_index_record *record)
{
    *record = (struct rp_index_record){
        .bytes = rp_load_u64(bytes + AT_BYTES),
        .mtime_ns = rp_load_u64(bytes + AT_MTIME),
        .documents = rp_load_u64(bytes + AT_DOCUMENTS),
        .tokens = rp_load_u64(bytes + AT_TOKENS),
        .first_block = rp_load_u64(bytes + AT_FIRST_BLOCK),
        .path_at = rp_load_u64(bytes + AT_PATH),
        .format = (enum rp_format)rp_load_u32(bytes + AT_FORMAT),
        .type = (enum rp_token_type)rp_load_u32(bytes + AT_TYPE),
        .eos = (int64_t)rp_load_u64(bytes + AT_EOS),
        .token_offset = rp_load_u64(bytes + AT_TOKEN_OFFSET),
        .token_max = rp_load_u64(bytes + AT_TOKEN_MAX),
        .content = rp_hash128_load(bytes + AT_CONTENT),
        .fingerprint = rp_index_load_fingerprint(bytes + AT_FINGERPRINT),
        .mask.rule = rp_mask_rule_of(rp_load_u32(bytes + AT_MASK_RULE)),
        .companions = {.idx_ns = rp_load_u64(bytes + AT_IDX_TIME),
                       .mask_ns = rp_load_u64(bytes + AT_MASK_TIME),
                       .sidecar_ns = rp_load_u64(bytes + AT_SIDECAR_TIME)},
        .table_root = rp_hash128_load(bytes + AT_TABLE_ROOT),
        .idx_bytes = rp_load_u64(bytes + AT_IDX_BYTES),
        .idx_sample = rp_hash128_load(bytes + AT_IDX_SAMPLE),
        .idx_content = rp_hash128_load(bytes + AT_IDX_CONTENT),
    };
    memcpy(record->column, bytes + AT_COLUMN, sizeof record->column);
    memcpy(record->mask.name, bytes + AT_MASK, sizeof record->mask.name);
    record->column[sizeof record->column - 1] = 0;
    record->mask.name[sizeof record->mask.name - 1] = 0;
}

/* ---- what was declared ----------------------------------------------------------------------- */

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
    texts[RP_INDEX_DROP_UNMASKED] = spec->drop_unmasked ? "true" : "false";
    texts[RP_INDEX_FOUND_MASK] = "";
    texts[RP_INDEX_TOKENIZER] = "";
}
