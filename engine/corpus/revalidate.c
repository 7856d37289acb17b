/* SPDX-License-Identifier: Apache-2.0 */
/* revalidate.c — whether the mapped .idx of a shard is still the opened content.
 *
 * A large .idx stays mapped (a small one is copied at open), so a write in place changes lengths
 * and places under the plan. A write changes the stamp before it changes a byte. A stamp may also
 * differ without a write (a hard link is enough), so then the content decides: the .idx is copied
 * into memory, the copy replaces the mapping, and its hash is compared with the hash at the start.
 * From then on no write to the file, finished or not, can reach it. An index of ringpack has hashes
 * of its pages instead (rp_index_revalidate).
 *
 * Not noticed: a change that is undone before the next check; writes by another host, or through
 * another mapping, that leave the change time; the rest of a write that had begun before the open;
 * wrong bits from the disk. The next start compares an .idx of up to 64 MiB as a whole. */
#include <inttypes.h>

#include "base/bits.h"
#include "corpus/shard.h"

#define HINT                                                                                       \
    "restore it, or run `ringpack index` if the change was meant (the stream is then another "     \
    "one), and restart; delivered rows are valid"

static int fail_changed(const char *path, const char *what, uint64_t expected, uint64_t found,
                        struct rp_error *error)
{
    return rp_fail(error, -RP_E_CHANGED, HINT,
                   "%s: changed while it was in use: %s: expected %" PRIu64 ", found %" PRIu64,
                   path, what, expected, found);
}

static int compare(const struct rp_opened *opened, struct rp_error *error)
{
    const struct rp_map *map = &opened->megatron.map;
    /* without a sidecar it is small, and its sample is its hash */
    struct rp_hash128 expected = opened->found.sidecar ? opened->found.record.idx_content
                                                       : opened->megatron.sample;
    struct rp_hash128 found = rp_hash128(map->data, (size_t)map->bytes);
    return rp_hash128_equal(found, expected)
               ? 0
               : fail_changed(opened->found.index_path, "hash", expected.low, found.low, error);
}

int rp_shard_revalidate(struct rp_opened *opened, struct rp_error *error)
{
    struct rp_map *map = &opened->megatron.map;
    const char *path = opened->found.index_path;
    bool has_hash = opened->found.sidecar || map->bytes <= RP_INDEX_HASH_WHOLE_MAX;
    struct rp_stamp found = {0}; /* stays zero if the name is gone; the mapping remains */
    uint64_t expected_value, found_value;
    if (!map->mapping || opened->idx_detached)
        return 0;
    bool is_there = rp_stamp_at(path, &found) == 0;
    const char *what = rp_stamp_difference(&map->stamp, &found, &expected_value, &found_value);
    if (!what)
        return 0;
    if (is_there && (found.bytes < map->bytes || !has_hash))
        return fail_changed(path, what, expected_value, found_value, error);
    int code = rp_map_detach(map, path, error);
    if (code == 0)
        code = compare(opened, error);
    opened->idx_detached = code == 0;
    return code;
}
