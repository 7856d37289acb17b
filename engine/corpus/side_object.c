/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/side_object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/own_dir.h"
#include "base/stop.h"
#include "object/fetch.h"
#include "object/url.h"

#define GROUP 128u                    /* objects whose headers and hashes are requested together */
#define PIECE_BYTES (8u << 20)        /* the most that one request fetches */
#define FETCHED_BYTES_MAX (64u << 20) /* hashes in memory; one object may have more */

static int fail_memory(const char *name, struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "column `%s`: no memory to open it in a store", name);
}

/* The URL of the column; the caller frees it. */
static char *column_url(const char *token_url, const char *name)
{
    char *suffix = rp_asprintf(".%s.col", name), *url = NULL;
    if (suffix)
        url = rp_url_companion(token_url, rp_url_has_suffix(token_url, ".bin") ? 4 : 0, suffix);
    free(suffix);
    return url;
}

/* ---- hashes ---------------------------------------------------------------------------------- */

static uint64_t hash_bytes(const struct rp_side_file *file)
{
    return file->shard.block_count * sizeof(uint64_t);
}

static bool are_right(const struct rp_side_file *file, const void *hashes)
{
    return rp_hash128_equal(rp_hash128(hashes, (size_t)hash_bytes(file)), file->content);
}

/* The file of this machine that has them; the caller frees the name. */
static char *hashes_path(const struct rp_side_file *file, const char *directory)
{
    char hash[RP_HASH_HEX_BYTES];
    return rp_asprintf("%s/%s.hashes", directory, rp_hash128_hex(file->content, hash));
}

/* Map a file of hashes. */
static bool map_hashes(struct rp_side_file *file, const char *path)
{
    if (rp_map_open(&file->map, path, NULL) < 0)
        return false;
    if (file->map.bytes == hash_bytes(file) && are_right(file, file->map.data)) {
        file->shard.block_hashes = (const uint64_t *)(const void *)file->map.data;
        return true;
    }
    rp_map_close(&file->map);
    file->map = (struct rp_map){0};
    return false;
}

/* Map the hashes that an earlier start has fetched. */
static bool find_hashes(struct rp_side_file *file, const char *directory)
{
    char *path = hashes_path(file, directory);
    bool is_found = path && map_hashes(file, path);
    free(path);
    return is_found;
}

/* A range in pieces. Returns their number, at most rp_div_up(bytes, PIECE_BYTES). */
static size_t cut_range(const struct rp_side_file *file, uint64_t offset, uint64_t bytes,
                        uint8_t *to, struct rp_fetch_part *parts)
{
    size_t pieces = (size_t)rp_div_up(bytes, PIECE_BYTES);
    for (size_t i = 0; i < pieces; i++) {
        uint64_t at = i * (uint64_t)PIECE_BYTES;
        parts[i] = (struct rp_fetch_part){.url = file->url,
                                          .to = to + at,
                                          .offset = offset + at,
                                          .bytes = (uint32_t)rp_min_u64(PIECE_BYTES, bytes - at),
                                          .total = file->shard.bytes};
        snprintf(parts[i].identity, sizeof parts[i].identity, "%s", file->identity);
    }
    return pieces;
}

/* Compare fetched hashes with the header, write them to a file of this machine and map it. */
static int keep_hashes(struct rp_side_file *file, const char *directory, const uint8_t *hashes,
                       struct rp_error *error)
{
    if (!are_right(file, hashes))
        return rp_sidefile_fail(file->path, "its block hashes differ from the hash of them", error);
    char *path = hashes_path(file, directory);
    int code = path ? rp_file_replace(path, hashes, (size_t)hash_bytes(file), error)
                    : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", file->path);
    if (code == 0 && !map_hashes(file, path))
        code = rp_fail(error, -RP_E_CORRUPT, "check the disk (dmesg)",
                       "%s: other bytes were read than written", path);
    free(path);
    return code;
}

/* Fetch the hashes of some objects together: `bytes` of all of them. */
static int fetch_hashes(struct rp_side_file *const *files, size_t count, uint64_t bytes,
                        const char *directory, struct rp_error *error)
{
    size_t piece_count = 0;
    struct rp_fetch_part *parts = rp_calloc(count + (size_t)(bytes / PIECE_BYTES), sizeof *parts);
    uint8_t *hashes = malloc((size_t)bytes), *to = hashes;
    int code = parts && hashes
                   ? 0
                   : rp_fail(error, -ENOMEM, NULL, "%s: no memory for its hashes", files[0]->path);
    for (size_t i = 0; i < count && code == 0; to += hash_bytes(files[i++]))
        piece_count += cut_range(files[i], files[i]->shard.block_count * RP_BLOCK_BYTES,
                                 hash_bytes(files[i]), to, parts + piece_count);
    if (code == 0)
        code = rp_fetch_parts(parts, piece_count, error);
    to = hashes;
    for (size_t i = 0; i < count && code == 0; to += hash_bytes(files[i++])) {
        code = rp_stop_check(error);
        if (code == 0)
            code = keep_hashes(files[i], directory, to, error);
    }
    free(hashes);
    free(parts);
    return code;
}

/* Fetch the hashes that no file of this machine has, many at a time. */
static int take_hashes(struct rp_side_object *objects, size_t count, const char *directory,
                       struct rp_error *error)
{
    struct rp_side_file *absent[GROUP];
    uint64_t bytes = 0;
    size_t absent_count = 0;
    int code = 0;
    for (size_t i = 0; i < count && code == 0; i++) {
        struct rp_side_file *file = objects[i].file;
        if (find_hashes(file, directory))
            continue;
        if (absent_count > 0 && bytes + hash_bytes(file) > FETCHED_BYTES_MAX) {
            code = fetch_hashes(absent, absent_count, bytes, directory, error);
            bytes = absent_count = 0;
        }
        absent[absent_count++] = file;
        bytes += hash_bytes(file);
    }
    return code < 0 || absent_count == 0
               ? code
               : fetch_hashes(absent, absent_count, bytes, directory, error);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int take_object(struct rp_side_object *object, const struct rp_fetch_part *head,
                       struct rp_error *error)
{
    struct rp_side_file *file = object->file;
    int code = head->error.code;
    object->is_missing = code == -ENOENT || code == -EACCES;
    if (code < 0) {
        if (error)
            *error = head->error;
        return object->is_missing ? -ENOENT : code;
    }
    file->identity = strdup(head->identity);
    if (!file->identity)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its identity", file->path);
    if (head->total < RP_SIDE_DATA_OFFSET)
        return rp_sidefile_fail(file->path, "it is too short for a column", error);
    code = rp_sidefile_take_header(file, head->to, head->total, error);
    if (code < 0)
        return code;
    file->shard.url = file->url;
    file->shard.identity = file->identity;
    file->shard.bytes = head->total; /* each reply has it */
    return 0;
}

static int open_group(struct rp_side_object *objects, size_t count, const char *name,
                      const char *directory, struct rp_error *error)
{
    struct rp_fetch_part *heads = rp_calloc(count, sizeof *heads);
    uint8_t *bytes = rp_calloc(count, RP_SIDE_DATA_OFFSET);
    int code = heads && bytes ? 0 : fail_memory(name, error);
    for (size_t i = 0; i < count && code == 0; i++) {
        struct rp_side_file *file = objects[i].file;
        *file = (struct rp_side_file){.url = column_url(objects[i].token_url, name)};
        file->path = file->url ? rp_url_name(file->url) : NULL;
        code = file->path ? 0 : fail_memory(name, error);
        heads[i] = (struct rp_fetch_part){
            .url = file->url, .to = bytes + i * RP_SIDE_DATA_OFFSET, .bytes = RP_SIDE_DATA_OFFSET};
    }
    if (code == 0)
        code = rp_fetch_heads(heads, count, error);
    for (size_t i = 0; i < count && code == 0; i++)
        code = take_object(&objects[i], &heads[i], error);
    if (code == 0)
        code = take_hashes(objects, count, directory, error);
    free(heads);
    free(bytes);
    return code;
}

int rp_sideobjects_open(struct rp_side_object *objects, size_t count, const char *name,
                        const char *cache_dir, struct rp_error *error)
{
    char *directory = rp_dir_of_caches(cache_dir);
    int code = directory ? rp_dir_make_caches(directory, error) : fail_memory(name, error);
    for (size_t first = 0; first < count && code == 0; first += GROUP)
        code = open_group(objects + first, (size_t)rp_min_u64(GROUP, count - first), name,
                          directory, error);
    free(directory);
    return code;
}

/* ---- checking -------------------------------------------------------------------------------- */

int rp_sideobject_verify(const struct rp_side_file *file, struct rp_error *error)
{
    uint64_t end = file->shard.block_count * RP_BLOCK_BYTES;
    struct rp_fetch_part part;
    uint8_t *piece = malloc(PIECE_BYTES);
    int code = piece ? 0 : rp_fail(error, -ENOMEM, NULL, "%s: no memory to read it", file->path);
    for (uint64_t at = RP_SIDE_DATA_OFFSET; at < end && code == 0; at += PIECE_BYTES) {
        uint64_t bytes = rp_min_u64(PIECE_BYTES, end - at);
        code = rp_fetch_parts(&part, cut_range(file, at, bytes, piece, &part), error);
        if (code == 0)
            code = rp_sidefile_compare(file, at / RP_BLOCK_BYTES, piece, bytes, error);
    }
    free(piece);
    return code;
}
