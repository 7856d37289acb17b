/* SPDX-License-Identifier: Apache-2.0 */
/* files_hashes.c — combines the hashes of a file's blocks, compares them, and reports a difference.
 */
#include <inttypes.h>

#include "base/bits.h"
#include "base/hash.h"
#include "flow/files.h"

static uint64_t block_bytes(uint64_t at, uint64_t bytes)
{
    return rp_min_u64(RP_BLOCK_BYTES, bytes - at);
}

uint64_t rp_files_expected(const struct rp_files *files, uint32_t shard, uint64_t offset,
                           uint64_t bytes)
{
    const struct rp_shard *info = rp_corpus_shard(files->corpus, shard);
    uint64_t first = offset / RP_BLOCK_BYTES, count = rp_div_up(bytes, RP_BLOCK_BYTES), all = 0;
    RP_ASSERT(offset % RP_BLOCK_BYTES == 0 && first + count <= info->block_count);
    for (uint64_t i = 0; i < count; i++)
        all = rp_files_add_hash(all, info->block_hashes[first + i]);
    return all;
}

static const char *where_hashes_are(const struct rp_shard *info)
{
    switch (info->kind) {
    case RP_SHARD_LISTED:
        return "the index";
    case RP_SHARD_SIDE:
        return "its hash";
    default:
        return "its sidecar";
    }
}

static const char *how_to_restore(const struct rp_shard *info)
{
    switch (info->kind) {
    case RP_SHARD_SIDE:
        return "restore it, or make it again with `ringpack column`";
    case RP_SHARD_LISTED:
        return info->url
                   ? "the store returned other bytes than were indexed: restore the object, or, if "
                     "the change was meant, run `ringpack index --index-dir DIR` on its URL, and "
                     "`ringpack index -c CONFIG --index DIR -o FILE` (the stream is then another "
                     "one)"
                   : "the file changed or its disk is failing: restore it, or, if the change was "
                     "meant, run `touch` on it and `ringpack index -c CONFIG` (the stream is then "
                     "another one)";
    default:
        return "the file changed or its disk is failing: restore it, or run `ringpack index` if "
               "the change was meant (the stream is then another one)";
    }
}

static int fail_block(const struct rp_shard *info, uint64_t offset, uint64_t bytes, uint64_t found,
                      struct rp_error *error)
{
    uint64_t block = offset / RP_BLOCK_BYTES;
    int code = rp_shard_check_sidecar(info, error);
    if (code < 0)
        return code;
    return rp_fail(error, -RP_E_CORRUPT, how_to_restore(info),
                   "%s: block %" PRIu64 " (bytes %" PRIu64 " to %" PRIu64
                   ") differs from %s: expected hash %016" PRIx64 ", found %016" PRIx64,
                   info->path, block, offset, offset + bytes, where_hashes_are(info),
                   info->block_hashes[block], found);
}

/* The blocks have their hashes, and these were not the expected ones. */
static int fail_changed(const struct rp_shard *info, uint64_t offset, uint64_t bytes,
                        struct rp_error *error)
{
    return rp_fail(error, -RP_E_CHANGED, "restore both and restart; delivered rows are valid",
                   "%s: bytes %" PRIu64 " to %" PRIu64 " changed while they were in use, and %s "
                   "with them",
                   info->path, offset, offset + bytes, where_hashes_are(info));
}

int rp_files_explain(const struct rp_files *files, uint32_t shard, uint64_t offset,
                     const uint64_t *hashes, uint64_t bytes, struct rp_error *error)
{
    const struct rp_shard *info = rp_corpus_shard(files->corpus, shard);
    const uint64_t *expected = info->block_hashes + offset / RP_BLOCK_BYTES;
    for (uint64_t at = 0; at < bytes; at += RP_BLOCK_BYTES)
        if (hashes[at / RP_BLOCK_BYTES] != expected[at / RP_BLOCK_BYTES])
            return fail_block(info, offset + at, block_bytes(at, bytes),
                              hashes[at / RP_BLOCK_BYTES], error);
    return fail_changed(info, offset, bytes, error);
}

int rp_files_verify(const struct rp_files *files, const struct rp_read *read, const uint8_t *data,
                    struct rp_error *error)
{
    const struct rp_shard *info = rp_corpus_shard(files->corpus, read->shard);
    uint64_t all = 0, offset = read->offset, bytes = read->bytes_needed;
    RP_ASSERT(offset % RP_BLOCK_BYTES == 0);
    for (uint64_t at = 0; at < bytes; at += RP_BLOCK_BYTES)
        all = rp_files_add_hash(all, rp_hash64(data + at, block_bytes(at, bytes)));
    if (all == read->expected)
        return 0;
    for (uint64_t at = 0; at < bytes; at += RP_BLOCK_BYTES) {
        uint64_t found = rp_hash64(data + at, block_bytes(at, bytes));
        if (found != info->block_hashes[(offset + at) / RP_BLOCK_BYTES])
            return fail_block(info, offset + at, block_bytes(at, bytes), found, error);
    }
    return fail_changed(info, offset, bytes, error);
}
