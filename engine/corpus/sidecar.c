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
#include "corpus/fingerprint.h"
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
    snprintf(hint, sizeof hint, REBUILD_HINT, token_path);
    return rp_fail(error, code, hint,
                   "%s: damaged sidecar: %s: expected %" PRIu64 ", found %" PRIu64, sidecar->path,
                   what, expected, found);
}

static int damaged_hash(const struct rp_sidecar *sidecar, const char *token_path, const char *what,
                        struct rp_error *error)
{
    char hint[sizeof error->hint];
    snprintf(hint, sizeof hint, REBUILD_HINT, token_path);
    return rp_fail(error, -RP_E_CORRUPT, hint, "%s: damaged sidecar: the hash of the %s is wrong",
                   sidecar->path, what);
}

static struct rp_hash128 load_hash(const uint8_t *p)
{
    return (struct rp_hash128){rp_load_u64(p), rp_load_u64(p + 8)};
}

static void decode(const uint8_t *header, struct rp_sidecar_info *info)
{
    *info = (struct rp_sidecar_info){
        .format = (enum rp_format)rp_load_u32(header + AT_FORMAT),
        .type = (enum rp_token_type)rp_load_u32(header + AT_TYPE),
        .eos = (int64_t)rp_load_u64(header + AT_EOS),
        .bytes = rp_load_u64(header + AT_BYTES),
        .token_offset = rp_load_u64(header + AT_TOKEN_OFFSET),
        .tokens = rp_load_u64(header + AT_TOKENS),
        .documents = rp_load_u64(header + AT_DOCUMENTS),
        .token_max = rp_load_u64(header + AT_TOKEN_MAX),
        .block_count = rp_load_u64(header + AT_BLOCK_COUNT),
        .start_count = rp_load_u64(header + AT_START_COUNT),
        .index_bytes = rp_load_u64(header + AT_INDEX_BYTES),
        .index_sample = load_hash(header + AT_INDEX_SAMPLE),
        .index_content = load_hash(header + AT_INDEX_CONTENT),
        .content = load_hash(header + AT_CONTENT),
    };
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
    if (rp_load_u32(header + AT_VERSION) != RP_SIDECAR_VERSION)
        return damaged(sidecar, token_path, -RP_E_VERSION, "version", RP_SIDECAR_VERSION,
                       rp_load_u32(header + AT_VERSION), error);
    if (!rp_hash128_equal(rp_hash128(header, AT_HEADER_HASH), load_hash(header + AT_HEADER_HASH)))
        return damaged_hash(sidecar, token_path, "header", error);
    return 0;
}

/* The header's hash was right, so what is wrong here was written wrong, or forged: refuse it all
 * the same. */
static int check_info(const struct rp_sidecar *sidecar, const char *token_path,
                      struct rp_error *error)
{
    const struct rp_sidecar_info *info = &sidecar->info;
    uint32_t width = rp_token_width(info->type);
    bool has_table = info->format != RP_FORMAT_MEGATRON;
    if (info->format == RP_FORMAT_AUTO || info->format > RP_FORMAT_LLMC || width == 0)
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "format, at most", RP_FORMAT_LLMC,
                       (uint64_t)info->format, error);
    if (rp_load_u32(sidecar->map.data + AT_BLOCK_BYTES) != RP_BLOCK_BYTES)
        return damaged(sidecar, token_path, -RP_E_VERSION, "block size", RP_BLOCK_BYTES,
                       rp_load_u32(sidecar->map.data + AT_BLOCK_BYTES), error);
    if (info->block_count != rp_div_up(info->bytes, RP_BLOCK_BYTES))
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "blocks",
                       rp_div_up(info->bytes, RP_BLOCK_BYTES), info->block_count, error);
    if (info->token_offset > info->bytes || info->token_offset % width != 0)
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "token offset, at most", info->bytes,
                       info->token_offset, error);
    if (has_table && info->tokens != (info->bytes - info->token_offset) / width)
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "tokens",
                       (info->bytes - info->token_offset) / width, info->tokens, error);
    uint64_t starts = has_table ? info->documents + 1 : 0; /* a wrap to 0 fails the last test */
    if (info->start_count != starts)
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "document table entries", starts,
                       info->start_count, error);
    uint64_t entries, bytes;
    if (!rp_add_u64(info->block_count, info->start_count, &entries) ||
        !rp_mul_u64(entries, 8, &bytes) || !rp_add_u64(bytes, RP_SIDECAR_HEADER_BYTES, &bytes) ||
        bytes != sidecar->map.bytes)
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "bytes of both tables and the header",
                       RP_SIDECAR_HEADER_BYTES + 8 * (info->block_count + info->start_count),
                       sidecar->map.bytes, error);
    if (has_table && (info->start_count == 0 || info->index_bytes != 8 * info->start_count))
        return damaged(sidecar, token_path, -RP_E_CORRUPT, "bytes of the document table",
                       8 * info->start_count, info->index_bytes, error);
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

/* The block table has a 512th of the bytes of the token file: to read all of it would make starts
 * slower with every shard. What is wrong in it is found where a block differs from it. */
static int check_tables(const struct rp_sidecar *sidecar, const char *token_path,
                        struct rp_error *error)
{
    const struct rp_sidecar_info *info = &sidecar->info;
    int code = sidecar->map.mapping ? 0 : rp_sidecar_check_blocks(sidecar, token_path, error);
    if (code < 0 || info->start_count == 0)
        return code;
    if (!rp_hash128_equal(rp_hash128(sidecar->starts, 8 * (size_t)info->start_count),
                          info->index_content) ||
        !rp_hash128_equal(rp_index_sample(sidecar->starts, info->index_bytes), info->index_sample))
        return damaged_hash(sidecar, token_path, "document table", error);
    return 0;
}

/* A hash of the block table is looked at here and there: for one, the kernel would read as far as
 * it reads ahead. A hint. */
static void expect_looks(const struct rp_sidecar *sidecar)
{
    uint64_t bytes = rp_align_down(RP_SIDECAR_HEADER_BYTES + 8 * sidecar->info.block_count,
                                   RP_BLOCK_BYTES);
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
    if (code == 0) {
        /* The mapping is page-aligned and the header a multiple of 8: these are aligned. */
        const uint8_t *tables = sidecar->map.data + RP_SIDECAR_HEADER_BYTES;
        sidecar->block_hashes = (const uint64_t *)(const void *)tables;
        sidecar->starts = sidecar->block_hashes + sidecar->info.block_count;
        expect_looks(sidecar);
        code = check_tables(sidecar, token_path, error);
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
    rp_map_close(&sidecar->map);
    free(sidecar->path);
    *sidecar = (struct rp_sidecar){0};
}
