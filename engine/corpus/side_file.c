/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/side_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/text.h"

#define VERSION 1u
static const uint8_t magic[8] = {0x89, 'R', 'P', 'C', 0x0d, 0x0a, 0x1a, 0x0a};

enum {
    AT_VERSION = 8,
    AT_DTYPE = 12,
    AT_COUNT = 16,
    AT_BYTES = 20,
    AT_ENTRIES = 24,
    AT_BLOCKS = 32,
    AT_CONTENT = 40,
    AT_TOKENIZER = 56,
    AT_TOKENIZER_NAME = 72,
    AT_CHECK = RP_BLOCK_BYTES - 16,
};
_Static_assert(RP_SIDE_DATA_OFFSET == RP_BLOCK_BYTES, "the header is a block");

/* ---- names and types ------------------------------------------------------------------------- */

static const char *const dtype_names[] = {
    [RP_DTYPE_U16] = "u16", [RP_DTYPE_I32] = "i32", [RP_DTYPE_I64] = "i64",
    [RP_DTYPE_F32] = "f32", [RP_DTYPE_F16] = "f16", [RP_DTYPE_BF16] = "bf16",
    [RP_DTYPE_F64] = "f64", [RP_DTYPE_U8] = "u8",   [RP_DTYPE_I8] = "i8",
    [RP_DTYPE_I16] = "i16"};

const char *rp_sidefile_dtype_name(uint32_t dtype)
{
    const char *name = dtype < RP_ARRAY_COUNT(dtype_names) ? dtype_names[dtype] : NULL;
    return name ? name : "unknown";
}

void rp_sidefile_type_text(const struct rp_side_type *type, char text[RP_SIDE_TYPE_BYTES])
{
    int used = snprintf(text, RP_SIDE_TYPE_BYTES, "%s", rp_sidefile_dtype_name(type->dtype));
    if (type->count != 1)
        snprintf(text + used, RP_SIDE_TYPE_BYTES - (size_t)used, "x%" PRIu32, type->count);
}

/* The names that batches have already: sections, and their numbers in Python. */
static const char *const taken[] = {"rows",         "doc_lens",    "input_ids",      "labels",
                                    "position_ids", "segment_ids", "loss_mask",      "cu_seqlens",
                                    "provenance",   "row_plans",   "attention_mask", "max_seqlen",
                                    "tokens",       "inputs",      "targets",        "next"};

bool rp_sidefile_is_name(const char *name)
{
    size_t length = strlen(name);
    bool is_name = length > 0 && length < RP_SIDE_NAME_BYTES && !(name[0] >= '0' && name[0] <= '9');
    is_name = is_name && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == length;
    is_name = is_name && strncmp(name, "labels_", 7) != 0; /* labels of tokens further ahead */
    for (size_t i = 0; is_name && i < RP_ARRAY_COUNT(taken); i++)
        is_name = strcmp(name, taken[i]) != 0;
    return is_name;
}

static bool is_type(const struct rp_side_type *type)
{
    return type->count > 0 && type->count <= RP_SIDE_ENTRY_BYTES && type->bytes > 0 &&
           type->bytes <= RP_SIDE_ENTRY_BYTES &&
           type->bytes == type->count * rp_dtype_bytes(type->dtype);
}

char *rp_sidefile_path(const char *token_path, const char *name)
{
    size_t stem = rp_text_stem(token_path, ".bin");
    return rp_asprintf("%.*s.%s.col", (int)stem, token_path, name);
}

/* ---- reading --------------------------------------------------------------------------------- */

int rp_sidefile_fail(const char *path, const char *problem, struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT, "restore it, or make it again with `ringpack column`",
                   "%s: %s", path, problem);
}

int rp_sidefile_take_header(struct rp_side_file *file, const uint8_t header[RP_SIDE_DATA_OFFSET],
                            uint64_t bytes, struct rp_error *error)
{
    if (memcmp(header, magic, sizeof magic))
        return rp_sidefile_fail(file->path,
                                "expected a column (magic \\x89RPC), found another file", error);
    if (rp_load_u32(header + AT_VERSION) != VERSION)
        return rp_fail(error, -RP_E_VERSION, "use the ringpack that wrote it",
                       "%s: expected version %u of columns, found %" PRIu32, file->path, VERSION,
                       rp_load_u32(header + AT_VERSION));
    if (!rp_hash128_equal(rp_hash128(header, AT_CHECK), rp_hash128_load(header + AT_CHECK)))
        return rp_sidefile_fail(file->path, "its header differs from the hash of it", error);
    uint64_t blocks = rp_load_u64(header + AT_BLOCKS), data, whole;
    file->type = (struct rp_side_type){rp_load_u32(header + AT_DTYPE),
                                       rp_load_u32(header + AT_COUNT),
                                       rp_load_u32(header + AT_BYTES)};
    file->entries = rp_load_u64(header + AT_ENTRIES);
    file->content = rp_hash128_load(header + AT_CONTENT);
    file->tokenizer.hash = rp_hash128_load(header + AT_TOKENIZER);
    memcpy(file->tokenizer.name, header + AT_TOKENIZER_NAME, sizeof file->tokenizer.name);
    if (file->tokenizer.name[sizeof file->tokenizer.name - 1])
        return rp_sidefile_fail(file->path, "the name of its tokenizer has no end", error);
    if (!is_type(&file->type) || !rp_mul_u64(file->entries, file->type.bytes, &data) ||
        data > INT64_MAX || blocks != 1 + rp_div_up(data, RP_BLOCK_BYTES))
        return rp_sidefile_fail(file->path, "its header has impossible numbers", error);
    whole = blocks * (RP_BLOCK_BYTES + sizeof(uint64_t));
    if (bytes != whole)
        return rp_fail(error, -RP_E_CORRUPT, "copy it again, or make it with `ringpack column`",
                       "%s: expected %" PRIu64 " bytes, found %" PRIu64, file->path, whole, bytes);
    file->shard = (struct rp_shard){.kind = RP_SHARD_SIDE,
                                    .path = file->path,
                                    .bytes = blocks * RP_BLOCK_BYTES,
                                    .type = RP_TOKEN_U8,
                                    .block_count = blocks};
    return 0;
}

static int open_file(struct rp_side_file *file, int fd, uint64_t bytes, struct rp_error *error)
{
    uint8_t header[RP_BLOCK_BYTES];
    if (bytes < sizeof header)
        return rp_sidefile_fail(file->path, "it is too short for a column", error);
    int code = rp_file_read_at(fd, file->path, header, sizeof header, 0, error);
    if (code == 0)
        code = rp_sidefile_take_header(file, header, bytes, error);
    if (code == 0)
        code = rp_stamp_settle(fd, &file->shard.stamp);
    if (code == 0)
        code = rp_map_file(&file->map, fd, bytes, file->path, error);
    if (code == 0)
        file->shard.block_hashes = (const uint64_t *)(const void *)(file->map.data +
                                                                    file->shard.bytes);
    return code;
}

/* Takes the path. */
static int open_path(struct rp_side_file *file, char *path, const char *subject,
                     struct rp_error *error)
{
    *file = (struct rp_side_file){.path = path};
    uint64_t bytes = 0;
    if (!path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", subject);
    int fd = rp_file_open_read(file->path, &bytes, error);
    int code = fd < 0 ? fd : open_file(file, fd, bytes, error);
    if (fd >= 0)
        close(fd);
    return code;
}

int rp_sidefile_open(struct rp_side_file *file, const char *token_path, const char *name,
                     struct rp_error *error)
{
    return open_path(file, rp_sidefile_path(token_path, name), token_path, error);
}

int rp_sidefile_open_path(struct rp_side_file *file, const char *path, struct rp_error *error)
{
    return open_path(file, strdup(path), path, error);
}

bool rp_sidefile_is_file(const char *path)
{
    return rp_file_begins(path, magic, sizeof magic);
}

void rp_sidefile_close(struct rp_side_file *file)
{
    rp_map_close(&file->map);
    free(file->path);
    free(file->url);
    free(file->identity);
    *file = (struct rp_side_file){.path = NULL};
}

int rp_sidefile_compare(const struct rp_side_file *file, uint64_t first, const uint8_t *data,
                        uint64_t bytes, struct rp_error *error)
{
    for (uint64_t at = 0; at < bytes; at += RP_BLOCK_BYTES) {
        uint64_t block = first + at / RP_BLOCK_BYTES, found = rp_hash64(data + at, RP_BLOCK_BYTES);
        int code = block % 4096 == 0 ? rp_stop_check(error) : 0;
        if (code < 0)
            return code;
        if (found != file->shard.block_hashes[block])
            return rp_fail(error, -RP_E_CORRUPT,
                           "restore it, or make it again with `ringpack column`",
                           "%s: block %" PRIu64 ": expected hash %016" PRIx64 ", found %016" PRIx64,
                           file->path, block, file->shard.block_hashes[block], found);
    }
    return 0;
}

int rp_sidefile_verify(const struct rp_side_file *file, struct rp_error *error)
{
    const struct rp_shard *shard = &file->shard;
    size_t list_bytes = (size_t)shard->block_count * sizeof(uint64_t);
    if (!rp_hash128_equal(rp_hash128(shard->block_hashes, list_bytes), file->content))
        return rp_sidefile_fail(file->path, "its block hashes differ from the hash of them", error);
    return rp_sidefile_compare(file, 1, file->map.data + RP_BLOCK_BYTES,
                               (shard->block_count - 1) * RP_BLOCK_BYTES, error);
}

/* ---- writing --------------------------------------------------------------------------------- */

int rp_sidefile_begin(struct rp_side_writer *writer, const char *path,
                      const struct rp_side_type *type, struct rp_error *error)
{
    *writer = (struct rp_side_writer){.file.fd = -1, .type = *type};
    RP_ASSERT(is_type(type));
    writer->block = calloc(1, RP_BLOCK_BYTES);
    if (!writer->block)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a block", path);
    int code = rp_new_file_open(&writer->file, path, error);
    if (code == 0)
        code = rp_file_write(writer->file.fd, path, writer->block, RP_BLOCK_BYTES, error);
    writer->block_count = 1;
    if (code == 0 && !RP_GROW(writer->hashes, writer->capacity, 1))
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for hashes", path);
    if (code == 0)
        writer->hashes[0] = 0; /* the header's: it is written last */
    return code;
}

static int flush_block(struct rp_side_writer *writer, struct rp_error *error)
{
    if (!RP_GROW(writer->hashes, writer->capacity, writer->block_count + 1))
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for hashes", writer->file.path);
    writer->hashes[writer->block_count++] = rp_hash64(writer->block, RP_BLOCK_BYTES);
    return rp_file_write(writer->file.fd, writer->file.path, writer->block, RP_BLOCK_BYTES, error);
}

int rp_sidefile_add(struct rp_side_writer *writer, const void *data, size_t bytes,
                    struct rp_error *error)
{
    int code = 0;
    for (size_t at = 0; at < bytes && code == 0;) {
        size_t begin = writer->bytes % RP_BLOCK_BYTES;
        size_t some = (size_t)rp_min_u64(bytes - at, RP_BLOCK_BYTES - begin);
        memcpy(writer->block + begin, (const uint8_t *)data + at, some);
        writer->bytes += some;
        at += some;
        if (begin + some == RP_BLOCK_BYTES)
            code = flush_block(writer, error);
    }
    return code;
}

static void make_header(const struct rp_side_writer *writer, uint8_t header[RP_BLOCK_BYTES])
{
    memset(header, 0, RP_BLOCK_BYTES);
    memcpy(header, magic, sizeof magic);
    rp_store_u32(header + AT_VERSION, VERSION);
    rp_store_u32(header + AT_DTYPE, writer->type.dtype);
    rp_store_u32(header + AT_COUNT, writer->type.count);
    rp_store_u32(header + AT_BYTES, writer->type.bytes);
    rp_store_u64(header + AT_ENTRIES, writer->bytes / writer->type.bytes);
    rp_store_u64(header + AT_BLOCKS, writer->block_count);
    rp_hash128_store(header + AT_CONTENT,
                     rp_hash128(writer->hashes, writer->block_count * sizeof(uint64_t)));
    rp_hash128_store(header + AT_TOKENIZER, writer->tokenizer.hash);
    snprintf((char *)header + AT_TOKENIZER_NAME, sizeof writer->tokenizer.name, "%s",
             writer->tokenizer.name);
    rp_hash128_store(header + AT_CHECK, rp_hash128(header, AT_CHECK));
}

int rp_sidefile_end(struct rp_side_writer *writer, struct rp_error *error)
{
    const char *path = writer->file.path;
    size_t rest = writer->bytes % RP_BLOCK_BYTES;
    int code = 0;
    if (writer->bytes % writer->type.bytes != 0)
        return rp_fail(error, -RP_E_FORMAT, NULL, "%s: its last entry is not whole", path);
    if (rest > 0) {
        memset(writer->block + rest, 0, RP_BLOCK_BYTES - rest);
        code = flush_block(writer, error);
    }
    if (code == 0)
        code = rp_file_write(writer->file.fd, path, writer->hashes,
                             (size_t)writer->block_count * sizeof(uint64_t), error);
    make_header(writer, writer->block);
    return code < 0
               ? code
               : rp_file_write_at(writer->file.fd, path, writer->block, RP_BLOCK_BYTES, 0, error);
}

int rp_sidefile_finish(struct rp_side_writer *writer, struct rp_error *error)
{
    int code = rp_sidefile_end(writer, error);
    return code < 0 ? code : rp_new_file_publish(&writer->file, error);
}

void rp_sidefile_discard(struct rp_side_writer *writer)
{
    rp_new_file_discard(&writer->file);
    free(writer->block);
    free(writer->hashes);
}
