/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.c — shards, documents and columns of an index (index.h). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "corpus/index/index.h"
#include "object/url.h"
#include "corpus/readers.h"

/* ---- the declaration ------------------------------------------------------------------------- */

static int differs(const struct rp_index *index, const struct rp_source_spec *spec,
                   const char *field, const char *expected, const char *found,
                   struct rp_error *error)
{
    return rp_fail(error, -RP_E_MISMATCH,
                   "run `ringpack index -c CONFIG`, which builds the index of this "
                   "configuration, or take the change back",
                   "source `%s`: %s: the index %s was made with `%s`, the configuration has `%s`",
                   spec->name ? spec->name : "", field, index->path, expected, found);
}

static int check_patterns(const struct rp_index *index, const struct rp_index_source *source,
                          const struct rp_source_spec *spec, struct rp_error *error)
{
    struct rp_index_paths paths;
    uint32_t count = source->text_count - RP_INDEX_PATTERNS;
    int code = rp_index_paths_open(&paths, index->path, error);
    for (uint32_t i = 0; code == 0 && i < rp_max_u64(count, spec->shard_count); i++) {
        const char *expected = i < count ? source->texts[RP_INDEX_PATTERNS + i] : "";
        char *found = rp_index_paths_store(&paths, i < spec->shard_count ? spec->shards[i] : "");
        if (!found)
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", index->path);
        else if (i >= count || i >= spec->shard_count || strcmp(expected, found) != 0)
            code = differs(index, spec, "shards", expected, i < spec->shard_count ? found : "",
                           error);
        free(found);
    }
    rp_index_paths_close(&paths);
    return code;
}

int rp_index_check_source(const struct rp_index *index, uint32_t number,
                          const struct rp_source_spec *spec, struct rp_error *error)
{
#define NAME(id, name) name,
    static const char *const names[] = {RP_INDEX_TEXTS(NAME)};
#undef NAME
    const struct rp_index_source *source = &index->sources[number];
    const char *found[RP_INDEX_PATTERNS];
    char eos[24];
    rp_index_declared(spec, eos, found);
    /* the name does not count: no shard depends on it */
    for (unsigned i = RP_INDEX_NAME + 1; i < RP_INDEX_FOUND_MASK; i++)
        if (strcmp(source->texts[i], found[i]) != 0)
            return differs(index, spec, names[i], source->texts[i], found[i], error);
    return check_patterns(index, source, spec, error);
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* Load an entry of a segment; false: its page is damaged. */
static bool load(const struct rp_index_segment *segment, uint64_t at, uint64_t *value, size_t bytes)
{
    *value = 0;
    if (!rp_tree_verify(&segment->tree, at))
        return false;
    memcpy(value, segment->tree.data + at, bytes);
    return true;
}

uint64_t rp_index_documents_before(const struct rp_index_segment *segment, uint32_t i)
{
    uint64_t first;
    RP_DASSERT(i <= segment->shape.shards);
    return load(segment, segment->parts.first + 8 * (uint64_t)i, &first, 8) ? first : UINT64_MAX;
}

uint32_t rp_index_shard_of(const struct rp_index_segment *segment, uint64_t document)
{
    uint64_t bucket = document >> segment->parts.bucket_shift, low, high;
    uint64_t at = segment->parts.buckets + 4 * bucket;
    RP_DASSERT(document < segment->shape.table.documents);
    if (!load(segment, at, &low, 4) || !load(segment, at + 4, &high, 4) || low > high ||
        high >= segment->shape.shards)
        return UINT32_MAX;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        uint64_t first = rp_index_documents_before(segment, (uint32_t)middle);
        if (first == UINT64_MAX)
            return UINT32_MAX;
        if (first <= document)
            low = middle;
        else
            high = middle - 1;
    }
    return (uint32_t)low;
}

const uint64_t *rp_index_blocks(const struct rp_index_segment *segment,
                                const struct rp_index_record *record)
{
    return (const uint64_t *)(const void *)(segment->tree.data + segment->parts.blocks) +
           record->first_block;
}

bool rp_index_verify_blocks(const struct rp_index_segment *segment, const uint64_t *blocks,
                            uint64_t count)
{
    uint64_t at = (uint64_t)((const uint8_t *)blocks - segment->tree.data);
    return count == 0 || rp_tree_verify_range(&segment->tree, at, 8 * count);
}

/* The text at a place among the paths; NULL: damaged. */
static const char *find_text(const struct rp_index_segment *segment, uint64_t place)
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

const char *rp_index_stored_path(const struct rp_index_segment *segment,
                                 const struct rp_index_record *record)
{
    return find_text(segment, record->path_at);
}

const char *rp_index_identity(const struct rp_index_segment *segment,
                              const struct rp_index_record *record)
{
    const char *path = find_text(segment, record->path_at);
    return path ? find_text(segment, record->path_at + strlen(path) + 1) : NULL;
}

bool rp_index_get_record(const struct rp_index_segment *segment, uint32_t shard,
                         struct rp_index_record *record, char **path_out)
{
    uint64_t at = segment->parts.records + (uint64_t)shard * RP_INDEX_RECORD_BYTES;
    RP_DASSERT(shard < segment->shape.shards);
    if (!rp_tree_verify_range(&segment->tree, at, RP_INDEX_RECORD_BYTES))
        return false;
    rp_index_decode_record(segment->tree.data + at, record);
    if (rp_token_width(record->type) == 0 || !rp_readers_find(record->format) ||
        record->token_offset > record->bytes ||
        !rp_range_inside(record->first_block, rp_div_up(record->bytes, RP_BLOCK_BYTES),
                         segment->shape.blocks))
        return false;
    const char *path = find_text(segment, record->path_at);
    if (!path || !path_out)
        return path != NULL;
    const char *directory = segment->index->directory;
    bool is_whole = path[0] == '/' || rp_url_is(path) || !strcmp(directory, ".");
    *path_out = is_whole ? strdup(path) : rp_asprintf("%s/%s", directory, path);
    return *path_out != NULL;
}

bool rp_index_add_fingerprints(const struct rp_index_segment *segment,
                               struct rp_fingerprint_list *list)
{
    struct rp_index_record record;
    for (uint32_t i = 0; i < segment->shape.shards; i++) {
        if (!rp_index_get_record(segment, i, &record, NULL))
            return false;
        rp_fingerprint_add(list, &record.fingerprint);
    }
    return true;
}

/* ---- columns --------------------------------------------------------------------------------- */

uint32_t rp_index_column_width(enum rp_index_column_type type)
{
#define WIDTH(id, bytes) [RP_INDEX_COLUMN_##id] = bytes,
    static const uint8_t widths[] = {RP_INDEX_COLUMN_TYPES(WIDTH)};
#undef WIDTH
    return (size_t)type < RP_ARRAY_COUNT(widths) ? widths[type] : 0;
}

const char *rp_index_column_type_name(enum rp_index_column_type type)
{
    static const char *const names[] = {"none", "u8",  "u16", "u32", "u64", "i64",
                                        "f32",  "f64", "i8",  "i16", "i32"};
    RP_STATIC_ASSERT(RP_ARRAY_COUNT(names) == RP_INDEX_COLUMN_TYPE_COUNT, "each type has a name");
    return names[type];
}

const struct rp_index_column *rp_index_find_column(const struct rp_index *index,
                                                   const struct rp_index_segment *segment,
                                                   const char *name)
{
    for (uint32_t i = 0; i < index->column_count; i++)
        if (index->columns[i].segment_at == segment->offset &&
            !strcmp(index->columns[i].name, name))
            return &index->columns[i];
    return NULL;
}

const void *rp_index_value(const struct rp_index_column *column, uint64_t document)
{
    uint64_t at = document * rp_index_column_width(column->type);
    RP_DASSERT(document < column->values);
    return rp_tree_verify(&column->tree, at) ? column->tree.data + at : NULL;
}
