/* SPDX-License-Identifier: Apache-2.0 */
/* layout — where the parts of a segment lie, and how a record is stored (manifest.h). */
#include <inttypes.h>
#include <stdio.h>

#include "corpus/manifest/manifest.h"

/* No part of a file has more entries than a file has bytes, so the sums below cannot overflow. */
#define COUNT_MAX (UINT64_C(1) << 48)
#define BUCKETS_PER_SHARD 4u

bool rp_manifest_find_parts(const struct rp_manifest_shape *shape, struct rp_manifest_parts *parts)
{
    const struct rp_table_shape table = {.documents = shape->documents,
                                         .span_count = shape->spans,
                                         .has_extents = true,
                                         .has_spans = shape->has_spans};
    uint64_t image;
    if (shape->documents > COUNT_MAX || shape->spans > COUNT_MAX || shape->blocks > COUNT_MAX ||
        shape->path_bytes > COUNT_MAX || !rp_table_image_bytes(&table, &image))
        return false;
    uint64_t shards = shape->shards;
    *parts = (struct rp_manifest_parts){.records = rp_align_up(image, RP_BLOCK_BYTES)};
    while (shape->documents >> parts->bucket_shift > BUCKETS_PER_SHARD * shards)
        parts->bucket_shift++;
    parts->bucket_count = (shape->documents >> parts->bucket_shift) + 2;
    parts->first = parts->records + shards * RP_MANIFEST_RECORD_BYTES;
    parts->buckets = parts->first + 8 * (shards + 1);
    parts->blocks = rp_align_up(parts->buckets + 4 * parts->bucket_count, 8);
    parts->paths = parts->blocks + 8 * shape->blocks;
    parts->bytes = rp_align_up(parts->paths + shape->path_bytes, RP_BLOCK_BYTES);
    return true;
}

uint64_t rp_manifest_parts_bytes(const struct rp_manifest_parts *parts)
{
    return parts->bytes + 8 * rp_tree_hash_count(parts->bytes / RP_BLOCK_BYTES);
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
    AT_INDEX_TIME = 200,
    AT_MASK_TIME = 208,
    AT_SIDECAR_TIME = 216,
};

void rp_manifest_store_fingerprint(uint8_t *bytes, const struct rp_fingerprint *fingerprint)
{
    rp_hash128_store(bytes, fingerprint->sampled);
    rp_hash128_store(bytes + 16, fingerprint->full);
}

struct rp_fingerprint rp_manifest_load_fingerprint(const uint8_t *bytes)
{
    return (struct rp_fingerprint){.sampled = rp_hash128_load(bytes),
                                   .full = rp_hash128_load(bytes + 16)};
}

void rp_manifest_encode_record(const struct rp_manifest_record *record, uint8_t *bytes)
{
    memset(bytes, 0, RP_MANIFEST_RECORD_BYTES);
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
    rp_manifest_store_fingerprint(bytes + AT_FINGERPRINT, &record->fingerprint);
    memcpy(bytes + AT_COLUMN, record->column, sizeof record->column);
    memcpy(bytes + AT_MASK, record->mask.name, sizeof record->mask.name);
    rp_store_u32(bytes + AT_MASK_RULE, rp_mask_rule_bits(&record->mask.rule));
    rp_store_u64(bytes + AT_INDEX_TIME, record->beside.index_ns);
    rp_store_u64(bytes + AT_MASK_TIME, record->beside.mask_ns);
    rp_store_u64(bytes + AT_SIDECAR_TIME, record->beside.sidecar_ns);
}

void rp_manifest_decode_record(const uint8_t *bytes, struct rp_manifest_record *record)
{
    *record = (struct rp_manifest_record){
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
        .fingerprint = rp_manifest_load_fingerprint(bytes + AT_FINGERPRINT),
        .mask.rule = rp_mask_rule_of(rp_load_u32(bytes + AT_MASK_RULE)),
        .beside = {.index_ns = rp_load_u64(bytes + AT_INDEX_TIME),
                   .mask_ns = rp_load_u64(bytes + AT_MASK_TIME),
                   .sidecar_ns = rp_load_u64(bytes + AT_SIDECAR_TIME)},
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

void rp_manifest_declared(const struct rp_source_spec *spec, char eos[24],
                          const char *texts[RP_MANIFEST_PATTERNS])
{
    snprintf(eos, 24, "%" PRId64, spec->eos);
    bool is_auto = rp_mask_is_auto(&spec->mask);
    texts[RP_MANIFEST_NAME] = text_or_empty(spec->name);
    texts[RP_MANIFEST_FORMAT] = rp_format_name(spec->format);
    texts[RP_MANIFEST_DTYPE] = spec->type == RP_TOKEN_NONE ? "" : rp_token_type_name(spec->type);
    texts[RP_MANIFEST_EOS] = eos;
    texts[RP_MANIFEST_COLUMN] = text_or_empty(spec->column);
    texts[RP_MANIFEST_MASK] = is_auto ? "auto" : spec->mask.name;
    texts[RP_MANIFEST_MASK_VALUE] = text_or_empty(spec->mask.value);
    texts[RP_MANIFEST_MASK_OF] = text_or_empty(spec->mask.of);
    texts[RP_MANIFEST_DROP_UNMASKED] = spec->drop_unmasked ? "true" : "false";
    texts[RP_MANIFEST_FOUND_MASK] = texts[RP_MANIFEST_TOKENIZER] = "";
}
