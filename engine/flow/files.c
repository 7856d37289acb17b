/* SPDX-License-Identifier: Apache-2.0 */
/* files — see files.h. */
#include "flow/files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/defect.h"
#include "base/mapped.h"
#include "base/mem.h"

#define WATCH_NS 500000000u
#define OTHER_DESCRIPTORS 32u /* rings, sockets, checkpoints */

/* Files stay open once they are read. That there are too few descriptors is better known at the
 * start than in the middle, with trainers that can no longer be answered. */
static int check_descriptors(uint32_t files, struct rp_error *error)
{
    struct rlimit limit;
    uint64_t wanted = (uint64_t)files + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || wanted <= limit.rlim_cur)
        return 0;
    char hint[128];
    snprintf(hint, sizeof hint,
             "raise it (`ulimit -n %" PRIu64 "`), or put the corpus into fewer shards", wanted);
    return rp_fail(error, -RP_E_RESOURCE, hint,
                   "open files: expected a limit of at least %" PRIu64 " for %" PRIu32
                   " token files, found %" PRIu64,
                   wanted, files, (uint64_t)limit.rlim_cur);
}

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
    return check_descriptors(count, error);
}

static void unmap_all(struct rp_files *files)
{
    for (uint32_t i = 0; i < rp_corpus_shard_count(files->corpus); i++) {
        struct rp_file *file = &files->files[i];
        const struct rp_shard *shard = rp_corpus_shard(files->corpus, i);
        if (file->map) {
            rp_mapped_remove(file->map);
            munmap((void *)(uintptr_t)file->map, shard->bytes);
        }
        file->map = NULL;
    }
}

void rp_files_close(struct rp_files *files)
{
    if (!files->files)
        return;
    unmap_all(files);
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

int rp_files_watch(struct rp_files *files, struct rp_error *error)
{
    uint64_t now = rp_now_ns();
    if (now - files->watched_ns < WATCH_NS || RP_DEFECT(ignore_changed_files))
        return 0;
    files->watched_ns = now;
    for (uint32_t i = 0; i < rp_corpus_shard_count(files->corpus); i++) {
        struct rp_file *file = &files->files[i];
        const struct rp_shard *shard = rp_corpus_shard(files->corpus, i);
        int code = file->fd >= 0 ? rp_shard_check(shard, file->fd, error) : 0;
        if (code < 0 && !file->checked)
            return code;
    }
    return 0;
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
        if (found != info->block_hashes[block] && !RP_DEFECT(ignore_block_hash))
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

/* ---- mapped ---------------------------------------------------------------------------------- */

static int map_file(struct rp_files *files, uint32_t index, struct rp_error *error)
{
    const struct rp_shard *shard = rp_corpus_shard(files->corpus, index);
    if (!rp_files_get(files, index, error))
        return error->code;
    struct rp_file *file = &files->files[index];
    void *map = mmap(NULL, shard->bytes, PROT_READ, MAP_SHARED, file->fd, 0);
    if (map == MAP_FAILED)
        return rp_fail(error, -errno, NULL, "%s: cannot be mapped: %s", shard->path,
                       rp_strerror(-errno));
    file->map = map;
    if (!rp_mapped_add(map, shard->bytes, shard->path))
        return rp_fail(error, -ENOMEM, NULL, "%s: out of memory for its name", shard->path);
    return 0;
}

int rp_files_map(struct rp_files *files, struct rp_error *error)
{
    int code = 0;
    for (uint32_t i = 0; i < rp_corpus_shard_count(files->corpus) && code >= 0; i++)
        code = map_file(files, i, error);
    if (code < 0)
        unmap_all(files);
    return code;
}

bool rp_files_have_hashes(const struct rp_files *files)
{
    for (uint32_t i = 0; i < rp_corpus_shard_count(files->corpus); i++)
        if (files->files[i].checked)
            return true;
    return false;
}

#define PLACES 64u

bool rp_files_are_cached(const struct rp_corpus *corpus)
{
    uint64_t cached = 0, looked = 0;
    for (uint32_t i = 0; i < rp_corpus_shard_count(corpus); i++) {
        const struct rp_shard *shard = rp_corpus_shard(corpus, i);
        uint32_t alignment;
        int fd = rp_io_open_file(shard->path, false, &alignment, NULL);
        if (fd < 0)
            return false;
        bool in_memory = rp_io_lies_in_memory(fd); /* asked so, it refuses as overlayfs does */
        for (uint64_t p = 0; p < PLACES && shard->bytes; p++, looked++) {
            uint8_t byte;
            struct iovec vector = {&byte, 1};
            ssize_t got = preadv2(fd, &vector, 1, (off_t)(shard->bytes / PLACES * p), RWF_NOWAIT);
            cached += got == 1 || in_memory;
        }
        close(fd);
    }
    return cached * 100 >= looked * 98;
}
