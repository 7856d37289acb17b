/* SPDX-License-Identifier: Apache-2.0 */
/* files — see files.h. */
#include "flow/files.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"

int rp_files_open(struct rp_files *files, const struct rp_flow_options *options,
                  struct rp_error *error)
{
    uint32_t count = rp_corpus_shard_count(options->corpus);
    *files = (struct rp_files){.corpus = options->corpus,
                               .files = rp_calloc(count, sizeof(struct rp_file)),
                               .direct = options->direct,
                               .verify_blocks = options->verify_blocks};
    if (!files->files)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a table of %u token files", count);
    for (uint32_t i = 0; i < count; i++)
        files->files[i].fd = -1;
    return 0;
}

void rp_files_close(struct rp_files *files)
{
    if (!files->files)
        return;
    for (uint32_t i = 0; i < rp_corpus_shard_count(files->corpus); i++)
        if (files->files[i].fd >= 0)
            close(files->files[i].fd);
    free(files->files);
    files->files = NULL;
}

const struct rp_file *rp_files_get(struct rp_files *files, uint32_t shard, struct rp_error *error)
{
    struct rp_file *file = &files->files[shard];
    if (file->fd >= 0)
        return file;
    const struct rp_shard *info = rp_corpus_shard(files->corpus, shard);
    uint32_t alignment;
    int fd = rp_io_open_file(info->path, files->direct, &alignment, error);
    if (fd < 0)
        return NULL;
    if (rp_shard_check(info, fd, error) < 0) {
        close(fd);
        return NULL;
    }
    file->direct = alignment > 1;
    file->checked = files->verify_blocks && info->block_hashes;
    file->alignment = file->checked ? RP_BLOCK_BYTES : alignment;
    RP_ASSERT(alignment <= RP_BLOCK_BYTES);
    file->fd = fd;
    return file;
}

int rp_files_verify(const struct rp_files *files, uint32_t shard, uint64_t offset,
                    const uint8_t *data, uint32_t bytes, struct rp_error *error)
{
    const struct rp_shard *info = rp_corpus_shard(files->corpus, shard);
    RP_ASSERT(offset % RP_BLOCK_BYTES == 0);
    for (uint64_t at = 0; at < bytes; at += RP_BLOCK_BYTES) {
        uint64_t block = (offset + at) / RP_BLOCK_BYTES;
        RP_ASSERT(block < info->block_count);
        uint64_t length = rp_min_u64(RP_BLOCK_BYTES, bytes - at);
        uint64_t found = rp_hash64(data + at, length);
        if (found != info->block_hashes[block])
            return rp_fail(
                error, -RP_E_CORRUPT,
                "the file changed or its disk is failing: restore it, or run `ringpack index` if "
                "the change was meant (the stream is then another one)",
                "%s: block %" PRIu64 " (bytes %" PRIu64 " to %" PRIu64 ") differs from its "
                "sidecar: expected hash %016" PRIx64 ", found %016" PRIx64,
                info->path, block, offset + at, offset + at + length, info->block_hashes[block],
                found);
    }
    return 0;
}
