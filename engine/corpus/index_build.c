/* SPDX-License-Identifier: Apache-2.0 */
/* index_build — `ringpack index`: everything that needs a look at every token, done in one pass. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "corpus/document_scan.h"
#include "corpus/shard.h"

/* Hash the blocks of a piece and pass its document starts on. */
static int add_piece(void *context, const uint8_t *bytes, size_t byte_count, const uint64_t *starts,
                     size_t start_count, struct rp_error *error)
{
    struct rp_sidecar_writer *writer = context;
    uint64_t hashes[RP_DOCUMENT_SCAN_BYTES / RP_BLOCK_BYTES];
    size_t blocks = 0;
    for (size_t at = 0; at < byte_count; at += RP_BLOCK_BYTES)
        hashes[blocks++] = rp_hash64(bytes + at,
                                     (size_t)rp_min_u64(RP_BLOCK_BYTES, byte_count - at));
    int code = rp_sidecar_add(writer, &writer->blocks, hashes, blocks, error);
    return code < 0 ? code : rp_sidecar_add(writer, &writer->starts, starts, start_count, error);
}

static int write_sidecar(struct rp_opened *opened, int fd, const char *path,
                         const struct rp_progress *progress, struct rp_error *error)
{
    bool megatron = opened->found.format == RP_FORMAT_MEGATRON;
    struct rp_sidecar_writer writer;
    struct rp_document_scan scan;
    int code = rp_sidecar_begin(&writer, path, rp_div_up(opened->shard.bytes, RP_BLOCK_BYTES),
                                error);
    if (code < 0)
        return code;
    rp_document_scan_begin(&scan, opened->shard.type, megatron ? RP_EOS_NONE : opened->found.eos,
                           opened->found.format == RP_FORMAT_LLMC);
    code = rp_tokens_read(opened, fd, &scan, add_piece, &writer, progress, error);
    if (code == 0) /* what was hashed must be what the sidecar will be compared with */
        code = rp_shard_check(&opened->shard, &opened->shard.stamp, fd, error);
    if (code < 0) {
        rp_sidecar_discard(&writer);
        return code;
    }
    struct rp_sidecar_info info = {
        .format = opened->found.format,
        .type = opened->shard.type,
        .eos = opened->found.eos,
        .bytes = opened->shard.bytes,
        .token_offset = opened->token_offset,
        .tokens = opened->shard.tokens,
        .token_max = scan.token_max,
        .documents = opened->shard.documents,
    };
    if (megatron) {
        const struct rp_map *index = &opened->megatron.map;
        info.index_bytes = index->bytes;
        info.index_sample = opened->megatron.sample;
        info.index_content = rp_hash128(index->data, (size_t)index->bytes);
    }
    return rp_sidecar_finish(&writer, &info, error);
}

int rp_index_build(const char *path, const struct rp_source_spec *hints, const char *index_dir,
                   void (*progress)(void *context, uint64_t done, uint64_t total), void *context,
                   struct rp_error *error)
{
    const struct rp_find_options options = {
        .hints = hints, .index_dir = index_dir, .replacing_sidecar = true};
    const struct rp_progress report = {progress, context};
    struct rp_opened opened;
    int fd;
    int code = rp_shard_open_for_index(&opened, path, &options, &fd, error);
    if (code < 0)
        return code;
    char *sidecar_path = rp_sidecar_path(opened.shard.path, index_dir);
    if (!sidecar_path)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    if (code == 0 && index_dir)
        code = rp_dir_make(index_dir, error);
    if (code == 0)
        code = write_sidecar(&opened, fd, sidecar_path, &report, error);
    free(sidecar_path);
    close(fd);
    rp_shard_close(&opened);
    return code;
}
