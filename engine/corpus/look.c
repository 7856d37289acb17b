/* SPDX-License-Identifier: Apache-2.0 */
/* look — whether a mapped index is still what was opened.
 *
 * The .idx and the sidecar stay mapped (but for small ones, which are copied when they are opened),
 * so whoever writes to them in place changes lengths, places and hashes under the plan. A write
 * changes the stamp before it changes a byte. A stamp that differs says only that something
 * happened (a hard link does it, too), so then the content decides: the index is copied into
 * memory, the copy takes the place of the mapping, and its hash is compared with that of the start.
 * From then on the file cannot reach it, also not with what is left of a write that goes on.
 *
 * Not noticed: an index that is changed and changed back between two checks; what another host, or
 * a program that has the file mapped, writes without a new change time; what is left of a write
 * that had begun before the open; a page that a disk gives back with other bits. The next start
 * compares an index up to 64 MiB as a whole. */
#include <inttypes.h>

#include "base/bits.h"
#include "base/defect.h"
#include "corpus/shard.h"

#define HINT                                                                                       \
    "restore it, or run `ringpack index` if the change was meant (the stream is then another "     \
    "one), and restart; what was delivered is valid"

static int changed(const char *path, const char *what, uint64_t expected, uint64_t found,
                   struct rp_error *error)
{
    return rp_fail(error, -RP_E_CHANGED, HINT,
                   "%s: changed while it was in use: %s: expected %" PRIu64 ", found %" PRIu64,
                   path, what, expected, found);
}

static int compare_index(const struct rp_opened *opened, const struct rp_map *map,
                         struct rp_error *error)
{
    const char *path = opened->found.index_path;
    bool is_whole = opened->found.has_sidecar;
    struct rp_hash128 expected = is_whole ? opened->found.sidecar.info.index_content
                                          : opened->megatron.sample;
    struct rp_hash128 found = is_whole ? rp_hash128(map->data, (size_t)map->bytes)
                                       : rp_index_sample(map->data, map->bytes);
    return rp_hash128_equal(found, expected)
               ? 0
               : changed(path, "hash", expected.low, found.low, error);
}

static int compare_sidecar(const struct rp_opened *opened, struct rp_error *error)
{
    const struct rp_sidecar *sidecar = &opened->found.sidecar;
    const struct rp_sidecar_info *info = &sidecar->info; /* as it was at the start */
    struct rp_hash128 blocks = rp_hash128(sidecar->block_hashes, 8 * (size_t)info->block_count);
    if (!rp_hash128_equal(blocks, info->content))
        return changed(sidecar->path, "hash of the block table", info->content.low, blocks.low,
                       error);
    struct rp_error ignored;
    return rp_sidecar_check_table(sidecar, opened->shard.path, &ignored) == 0
               ? 0
               : changed(sidecar->path, "hash of the document table", info->table_root.low,
                         rp_table_hash(sidecar->table.image, sidecar->table.image_bytes, NULL).low,
                         error);
}

/* 1: its stamp differs, so that its content decides. */
static int look_at(const struct rp_map *map, const char *path, bool has_hash,
                   struct rp_error *error)
{
    struct rp_stamp found = {0}; /* of a name that is gone; what is mapped lives on */
    uint64_t expected_value, found_value;
    bool is_there = rp_stamp_at(path, &found) == 0;
    const char *what = rp_stamp_difference(&map->stamp, &found, &expected_value, &found_value);
    if (!what)
        return 0;
    if (is_there && (found.bytes < map->bytes || !has_hash))
        return changed(path, what, expected_value, found_value, error);
    return 1;
}

/* Keep the index in memory from now on, and compare it. */
static int detach_index(struct rp_opened *opened, struct rp_error *error)
{
    struct rp_map *map = &opened->megatron.map;
    int code = rp_map_detach(map, opened->found.index_path, error);
    return code < 0 ? code : compare_index(opened, map, error);
}

static int detach_sidecar(struct rp_opened *opened, struct rp_error *error)
{
    int code = rp_map_detach(&opened->found.sidecar.map, opened->found.sidecar.path, error);
    return code < 0 ? code : compare_sidecar(opened, error);
}

int rp_shard_look(struct rp_opened *opened, struct rp_error *error)
{
    struct rp_map *index = &opened->megatron.map, *sidecar = &opened->found.sidecar.map;
    bool has_hash = opened->found.has_sidecar || index->bytes <= RP_INDEX_HASH_WHOLE_MAX;
    int code = 0;
    if (RP_DEFECT(forget_indexes))
        return 0;
    if (index->mapping && !opened->index_detached) {
        code = look_at(index, opened->found.index_path, has_hash, error);
        if (code == 1) {
            code = detach_index(opened, error);
            opened->index_detached = code == 0;
        }
    }
    if (code == 0 && sidecar->mapping && !opened->sidecar_detached) {
        code = look_at(sidecar, opened->found.sidecar.path, true, error);
        if (code == 1) {
            code = detach_sidecar(opened, error);
            opened->sidecar_detached = code == 0;
        }
    }
    return code;
}
