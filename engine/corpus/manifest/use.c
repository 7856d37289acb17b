/* SPDX-License-Identifier: Apache-2.0 */
/* use — looking up documents and shards in a manifest (manifest.h). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "corpus/manifest/manifest.h"
#include "object/url.h"

/* ---- the declaration ------------------------------------------------------------------------- */

static int differs(const struct rp_manifest *manifest, const struct rp_source_spec *spec,
                   const char *field, const char *expected, const char *found,
                   struct rp_error *error)
{
    return rp_fail(error, -RP_E_MISMATCH,
                   "run `ringpack index -c CONFIG`, which makes the manifest what the "
                   "configuration says, or take the change back",
                   "source `%s`: %s: the manifest %s was made with `%s`, the configuration has "
                   "`%s`",
                   spec->name ? spec->name : "", field, manifest->path, expected, found);
}

static int check_patterns(const struct rp_manifest *manifest,
                          const struct rp_manifest_source *source,
                          const struct rp_source_spec *spec, struct rp_error *error)
{
    struct rp_manifest_paths paths;
    uint32_t count = source->text_count - RP_MANIFEST_PATTERNS;
    int code = rp_manifest_paths_open(&paths, manifest->path, error);
    for (uint32_t i = 0; code == 0 && i < rp_max_u64(count, spec->shard_count); i++) {
        const char *expected = i < count ? source->texts[RP_MANIFEST_PATTERNS + i] : "";
        char *found = rp_manifest_paths_store(&paths, i < spec->shard_count ? spec->shards[i] : "");
        if (!found)
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", manifest->path);
        else if (i >= count || i >= spec->shard_count || strcmp(expected, found) != 0)
            code = differs(manifest, spec, "shards", expected, i < spec->shard_count ? found : "",
                           error);
        free(found);
    }
    rp_manifest_paths_close(&paths);
    return code;
}

int rp_manifest_check_source(const struct rp_manifest *manifest, uint32_t number,
                             const struct rp_source_spec *spec, struct rp_error *error)
{
#define NAME(id, name) name,
    static const char *const names[] = {RP_MANIFEST_TEXTS(NAME)};
#undef NAME
    const struct rp_manifest_source *source = &manifest->sources[number];
    const char *found[RP_MANIFEST_PATTERNS];
    char eos[24];
    rp_manifest_declared(spec, eos, found);
    /* not the name, which no shard depends on */
    for (unsigned i = RP_MANIFEST_NAME + 1; i < RP_MANIFEST_FOUND_MASK; i++)
        if (strcmp(source->texts[i], found[i]) != 0)
            return differs(manifest, spec, names[i], source->texts[i], found[i], error);
    return check_patterns(manifest, source, spec, error);
}

/* ---- look-ups -------------------------------------------------------------------------------- */

static uint64_t first_document(const struct rp_manifest_segment *segment)
{
    return segment->first_document;
}

static uint64_t first_shard(const struct rp_manifest_segment *segment)
{
    return segment->first_shard;
}

/* The last segment whose first document, or shard, is not after this one. */
static inline const struct rp_manifest_segment *find_segment(
    const struct rp_manifest_source *source, uint64_t (*first)(const struct rp_manifest_segment *),
    uint64_t number)
{
    uint32_t low = 0, high = source->segment_count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (first(&source->segments[middle]) <= number)
            low = middle;
        else
            high = middle - 1;
    }
    return &source->segments[low];
}

const struct rp_manifest_segment *rp_manifest_segment_of(const struct rp_manifest_source *source,
                                                         uint64_t document)
{
    return find_segment(source, first_document, document);
}

const struct rp_manifest_segment *rp_manifest_segment_of_shard(
    const struct rp_manifest_source *source, uint32_t shard)
{
    return find_segment(source, first_shard, shard);
}

/* The entry of a part of the segment; false: its page is damaged. */
static bool load(const struct rp_manifest_segment *segment, uint64_t at, uint64_t *value,
                 size_t bytes)
{
    *value = 0;
    if (!rp_tree_verify(&segment->tree, at))
        return false;
    memcpy(value, segment->tree.data + at, bytes);
    return true;
}

uint64_t rp_manifest_first(const struct rp_manifest_segment *segment, uint32_t i)
{
    uint64_t first;
    RP_DASSERT(i <= segment->shape.shards);
    return load(segment, segment->parts.first + 8 * (uint64_t)i, &first, 8) ? first : UINT64_MAX;
}

uint32_t rp_manifest_shard_of(const struct rp_manifest_segment *segment, uint64_t document)
{
    uint64_t bucket = document >> segment->parts.bucket_shift, low, high;
    uint64_t at = segment->parts.buckets + 4 * bucket;
    RP_DASSERT(document < segment->shape.documents);
    if (!load(segment, at, &low, 4) || !load(segment, at + 4, &high, 4) || low > high ||
        high >= segment->shape.shards)
        return UINT32_MAX;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        uint64_t first = rp_manifest_first(segment, (uint32_t)middle);
        if (first == UINT64_MAX)
            return UINT32_MAX;
        if (first <= document)
            low = middle;
        else
            high = middle - 1;
    }
    return (uint32_t)low;
}

const uint64_t *rp_manifest_blocks(const struct rp_manifest_segment *segment)
{
    return (const uint64_t *)(const void *)(segment->tree.data + segment->parts.blocks);
}

/* The text at a place among the paths, or NULL: it is damaged. */
static const char *find_text(const struct rp_manifest_segment *segment, uint64_t place)
{
    uint64_t at = segment->parts.paths + place;
    if (place >= segment->shape.path_bytes)
        return NULL;
    uint64_t left = segment->shape.path_bytes - place;
    for (uint64_t done = 0; done < left;) {
        uint64_t page = rp_min_u64(left - done, RP_BLOCK_BYTES - (at + done) % RP_BLOCK_BYTES);
        if (!rp_tree_verify(&segment->tree, at + done))
            return NULL;
        if (memchr(segment->tree.data + at + done, 0, (size_t)page))
            return (const char *)segment->tree.data + at;
        done += page;
    }
    return NULL;
}

bool rp_manifest_record(const struct rp_manifest *manifest,
                        const struct rp_manifest_segment *segment, uint32_t shard,
                        struct rp_manifest_record *record, char **path_out)
{
    uint64_t at = segment->parts.records + (uint64_t)shard * RP_MANIFEST_RECORD_BYTES;
    RP_DASSERT(shard < segment->shape.shards);
    if (!rp_tree_verify(&segment->tree, at))
        return false;
    rp_manifest_decode_record(segment->tree.data + at, record);
    uint32_t width = rp_token_width(record->type);
    if (width == 0 || !rp_readers_of(record->format) ||
        !rp_range_inside(record->first_block, rp_div_up(record->bytes, RP_BLOCK_BYTES),
                         segment->shape.blocks))
        return false;
    const char *path = find_text(segment, record->path_at);
    if (!path || !path_out)
        return path != NULL;
    bool is_whole = path[0] == '/' || rp_url_is(path) || !strcmp(manifest->directory, ".");
    *path_out = is_whole ? strdup(path) : rp_format("%s/%s", manifest->directory, path);
    return *path_out != NULL;
}

const char *rp_manifest_identity(const struct rp_manifest_segment *segment,
                                 const struct rp_manifest_record *record)
{
    const char *path = find_text(segment, record->path_at);
    return path ? find_text(segment, record->path_at + strlen(path) + 1) : NULL;
}
