/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar — the file format of sidecar.h: finding, checking and reading it. sidecar_write.c writes
 * it. */
#include "corpus/sidecar.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "corpus/readers.h"
#include "corpus/sidecar_layout.h"

#define REBUILD_HINT "run `ringpack index %s` again; the token file itself is not touched"

char *rp_sidecar_path(const char *token_path, const char *index_dir)
{
    if (!index_dir)
        return rp_format("%s.rpx", token_path);
    /* The directory is resolved, the last name is not: so it works for a file that is gone. */
    char *directory = rp_path_directory(token_path);
    char *resolved = directory ? realpath(directory, NULL) : NULL;
    const char *slash = strrchr(token_path, '/');
    const char *base = slash ? slash + 1 : token_path;
    char *absolute = rp_format("%s/%s", resolved ? resolved : directory ? directory : "", base);
    char *path = NULL;
    if (absolute)
        path = rp_format("%s/%s-%08" PRIx32 ".rpx", index_dir, base,
                         (uint32_t)rp_hash64(absolute, strlen(absolute)));
    free(absolute);
    free(resolved);
    free(directory);
    return path;
}

static int damaged(const struct rp_sidecar *sidecar, const char *token_path, int code,
                   const char *what, uint64_t expected, uint64_t found, struct rp_error *error)
{
    char hint[sizeof error->hint];
    snprintf(hint, sizeof hint, REBUILD_HINT, RP_HINT_PATH(token_path));
    return rp_fail(error, code, hint,
                   "%s: damaged sidecar: %s: expected %" PRIu64 ", found %" PRIu64, sidecar->path,
                   what, expected, found);
}

static int damaged_hash(const struct rp_sidecar *sidecar, const char *token_path, const char *what,
                        struct rp_error *error)
{
    char hint[sizeof error->hint];
    snprintf(hint, sizeof hint, REBUILD_HINT, RP_HINT_PATH(token_path));
    return rp_fail(error, -RP_E_CORRUPT, hint, "%s: damaged sidecar: the hash of the %s is wrong",
                   sidecar->path, what);
}

static void decode(const uint8_t *header, struct rp_sidecar_info *info)
{
    uint32_t sections = rp_load_u32(header + AT_TABLE_SECTIONS);
    *info = (struct rp_sidecar_info){
        .format = (enum rp_format)rp_load_u32(header + AT_FORMAT),
        .type = (enum rp_token_type)rp_load_u32(header + AT_TYPE),
        .eos = (int64_t)rp_load_u64(header + AT_EOS),
        .bytes = rp_load_u64(header + AT_BYTES),
        .token_offset = rp_load_u64(header + AT_TOKEN_OFFSET),
        .tokens = rp_load_u64(header + AT_TOKENS),
        .token_max = rp_load_u64(header + AT_TOKEN_MAX),
        .block_count = rp_load_u64(header + AT_BLOCK_COUNT),
        .index_bytes = rp_load_u64(header + AT_INDEX_BYTES),
        .index_sample = rp_hash128_load(header + AT_INDEX_SAMPLE),
        .index_content = rp_hash128_load(header + AT_INDEX_CONTENT),
        .content = rp_hash128_load(header + AT_CONTENT),
        .table_root = rp_hash128_load(header + AT_TABLE_ROOT),
        .table = {.documents = rp_load_u64(header + AT_DOCUMENTS),
                  .span_count = rp_load_u64(header + AT_SPAN_COUNT),
                  .has_extents = sections & 1,
                  .has_spans = sections & 2},
    };
    info->mask.rule = rp_mask_rule_of(rp_load_u32(header + AT_MASK_RULE));
    memcpy(info->column, header + AT_COLUMN, sizeof info->column);
    memcpy(info->mask.name, header + AT_MASK, sizeof info->mask.name);
}

/* A sidecar of version 1 that has a table; its entries are where the bytes of the table are now. */
static int fail_old_version(const struct rp_sidecar *sidecar, const char *token_path,
                            struct rp_error *error)
{
    char hint[sizeof error->hint];
    snprintf(hint, sizeof hint, REBUILD_HINT, RP_HINT_PATH(token_path));
    return rp_fail(error, -RP_E_VERSION, hint,
                   "%s: version: expected %u, found 1, whose document table has another form",
                   sidecar->path, RP_SIDECAR_VERSION);
}

static int check_header(const struct rp_sidecar *sidecar, const char *token_path,
                        struct rp_error *error)
{
    const uint8_t *header = sidecar->map.data;
    if (sidecar->map.bytes < RP_SIDECAR_HEADER_BYTES)
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "bytes, at least",
                       RP_SIDECAR_HEADER_BYTES, sidecar->map.bytes, error);
    if (memcmp(header, RP_SIDECAR_MAGIC, 8))
        return damaged(sidecar, token_path, -RP_E_FORMAT, "magic", rp_load_u64(RP_SIDECAR_MAGIC),
                       rp_load_u64(header), error);
    uint32_t version = rp_load_u32(header + AT_VERSION);
    if (version < 1 || version > RP_SIDECAR_VERSION_TOKENIZER)
        return damaged(sidecar, token_path, -RP_E_VERSION, "version", RP_SIDECAR_VERSION, version,
                       error);
    if (!rp_hash128_equal(rp_hash128(header, AT_HEADER_HASH),
                          rp_hash128_load(header + AT_HEADER_HASH)))
        return damaged_hash(sidecar, token_path, "header", error);
    if (version == 1 && rp_load_u64(header + AT_TABLE_BYTES) != 0)
        return fail_old_version(sidecar, token_path, error);
    return 0;
}

static uint64_t table_offset(const struct rp_sidecar_info *info)
{
    return RP_SIDECAR_HEADER_BYTES + 8 * info->block_count;
}

static bool has_tokenizer(const struct rp_sidecar *sidecar)
{
    return rp_load_u32(sidecar->map.data + AT_VERSION) == RP_SIDECAR_VERSION_TOKENIZER;
}

/* The sizes of the parts, which fill the file. */
static int check_sizes(const struct rp_sidecar *sidecar, const char *token_path,
                       struct rp_error *error)
{
    const struct rp_sidecar_info *info = &sidecar->info;
    uint64_t claimed = rp_load_u64(sidecar->map.data + AT_TABLE_BYTES), image, expected;
    if (!rp_table_image_bytes(&info->table, &image) || image != claimed)
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "bytes of the document table", image,
                       claimed, error);
    /* Blocks are a 4096th of a number of bytes, and an image has less than half of all numbers. */
    expected = table_offset(info) + image + 8 * rp_table_pages(image) +
               (has_tokenizer(sidecar) ? TOKENIZER_BYTES : 0);
    if (expected != sidecar->map.bytes)
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "bytes of the tables and the header",
                       expected, sidecar->map.bytes, error);
    return 0;
}

/* The header's hash was right, so what is wrong here was written wrong, or forged: refuse it all
 * the same. */
static int check_info(const struct rp_sidecar *sidecar, const char *token_path,
                      struct rp_error *error)
{
    const struct rp_sidecar_info *info = &sidecar->info;
    const struct rp_reader *reader = rp_readers_of(info->format);
    if (!reader || rp_token_width(info->type) == 0)
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "format, below", RP_FORMAT_COUNT,
                       (uint64_t)info->format, error);
    if (rp_load_u32(sidecar->map.data + AT_BLOCK_BYTES) != RP_BLOCK_BYTES)
        return damaged(sidecar, token_path, -RP_E_VERSION, "block size", RP_BLOCK_BYTES,
                       rp_load_u32(sidecar->map.data + AT_BLOCK_BYTES), error);
    if (info->block_count != rp_div_up(info->bytes, RP_BLOCK_BYTES))
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "blocks",
                       rp_div_up(info->bytes, RP_BLOCK_BYTES), info->block_count, error);
    if (info->token_offset > info->bytes)
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "token offset, at most", info->bytes,
                       info->token_offset, error);
    if (rp_load_u32(sidecar->map.data + AT_TABLE_SECTIONS) > 3 ||
        info->table.has_extents != (reader->walk != NULL))
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "sections of the table, extents",
                       reader->walk != NULL, info->table.has_extents, error);
    if (!memchr(info->column, 0, sizeof info->column) ||
        !memchr(info->mask.name, 0, sizeof info->mask.name) ||
        (info->table.span_count && !info->table.has_spans))
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "spans of the table", 0,
                       info->table.span_count, error);
    return check_sizes(sidecar, token_path, error);
}

/* The last bytes of a file whose size was checked. */
static int open_tokenizer(struct rp_sidecar *sidecar, const char *token_path,
                          struct rp_error *error)
{
    struct rp_tokenizer_id *tokenizer = &sidecar->info.tokenizer;
    const uint8_t *at = sidecar->map.data + sidecar->map.bytes - TOKENIZER_BYTES;
    if (!has_tokenizer(sidecar))
        return 0;
    memcpy(tokenizer->name, at + TOKENIZER_AT_NAME, sizeof tokenizer->name);
    tokenizer->hash = rp_hash128_load(at + TOKENIZER_AT_HASH);
    if (!rp_hash128_equal(rp_hash128(at, TOKENIZER_AT_CHECK),
                          rp_hash128_load(at + TOKENIZER_AT_CHECK)) ||
        !memchr(tokenizer->name, 0, sizeof tokenizer->name) || !rp_ids_know_tokenizer(tokenizer))
        return damaged_hash(sidecar, token_path, "tokenizer", error);
    return 0;
}

int rp_sidecar_check_blocks(const struct rp_sidecar *sidecar, const char *token_path,
                            struct rp_error *error)
{
    const struct rp_sidecar_info *info = &sidecar->info;
    bool is_good = rp_hash128_equal(
        rp_hash128(sidecar->block_hashes, 8 * (size_t)info->block_count), info->content);
    return is_good ? 0 : damaged_hash(sidecar, token_path, "block table", error);
}

int rp_sidecar_check_table(const struct rp_sidecar *sidecar, const char *token_path,
                           struct rp_error *error)
{
    const struct rp_table *table = &sidecar->table;
    const uint8_t *hashes = table->image + table->image_bytes;
    uint64_t pages = rp_table_pages(table->image_bytes);
    struct rp_hash128 root = sidecar->info.table_root;
    if (pages == 0)
        return 0;
    if (!rp_hash128_equal(rp_table_hash(table->image, table->image_bytes, NULL), root))
        return damaged_hash(sidecar, token_path, "document table", error);
    return rp_hash128_equal(rp_hash128(hashes, 8 * (size_t)pages), root)
               ? 0
               : damaged_hash(sidecar, token_path, "list of page hashes", error);
}

/* The image and its page hashes. Of a sidecar that is mapped only what is used is read: to read all
 * of it would make starts slower with every shard. */
static int open_tables(struct rp_sidecar *sidecar, const char *token_path, struct rp_error *error)
{
    const struct rp_sidecar_info *info = &sidecar->info;
    const uint8_t *image = sidecar->map.data + table_offset(info);
    uint64_t bytes;
    bool fits = rp_table_image_bytes(&info->table, &bytes);
    RP_ASSERT(fits);
    /* The mapping is page-aligned and the header a multiple of 8: all parts are aligned. */
    sidecar->block_hashes = (const uint64_t *)(const void *)(sidecar->map.data +
                                                             RP_SIDECAR_HEADER_BYTES);
    const uint64_t *hashes = (const uint64_t *)(const void *)(image + bytes);
    int code = rp_table_over(&sidecar->table, &info->table, image,
                             sidecar->map.mapping ? hashes : NULL, error);
    sidecar->table.root = info->table_root;
    if (code < 0 || sidecar->map.mapping)
        return code;
    code = rp_sidecar_check_blocks(sidecar, token_path, error);
    return code < 0 ? code : rp_sidecar_check_table(sidecar, token_path, error);
}

/* A hash of the block table is read here and there: for one, the kernel would read as far as it
 * reads ahead. A hint. */
static void expect_random_reads(const struct rp_sidecar *sidecar)
{
    uint64_t bytes = rp_align_down(table_offset(&sidecar->info), RP_BLOCK_BYTES);
    if (sidecar->map.mapping)
        (void)madvise((void *)(uintptr_t)sidecar->map.data, (size_t)bytes, MADV_RANDOM);
}

int rp_sidecar_open(struct rp_sidecar *sidecar, const char *path, const char *token_path,
                    struct rp_error *error)
{
    *sidecar = (struct rp_sidecar){.path = strdup(path)};
    if (!sidecar->path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    int code = rp_map_open(&sidecar->map, path, error);
    if (code == 0)
        code = check_header(sidecar, token_path, error);
    if (code == 0) {
        decode(sidecar->map.data, &sidecar->info);
        code = check_info(sidecar, token_path, error);
    }
    if (code == 0)
        code = open_tokenizer(sidecar, token_path, error);
    if (code == 0) {
        expect_random_reads(sidecar);
        code = open_tables(sidecar, token_path, error);
    }
    if (code < 0)
        rp_sidecar_close(sidecar);
    return code;
}

int rp_sidecar_find(struct rp_sidecar *sidecar, const char *token_path, const char *index_dir,
                    struct rp_error *error)
{
    for (int beside = index_dir ? 0 : 1; beside < 2; beside++) {
        char *path = rp_sidecar_path(token_path, beside ? NULL : index_dir);
        if (!path)
            return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", token_path);
        bool there = access(path, F_OK) == 0;
        int code = there ? rp_sidecar_open(sidecar, path, token_path, error) : 0;
        free(path);
        if (there)
            return code < 0 ? code : 1;
    }
    return 0;
}

void rp_sidecar_close(struct rp_sidecar *sidecar)
{
    rp_table_close(&sidecar->table);
    rp_map_close(&sidecar->map);
    free(sidecar->path);
    *sidecar = (struct rp_sidecar){0};
}
