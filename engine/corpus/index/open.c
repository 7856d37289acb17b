/* SPDX-License-Identifier: Apache-2.0 */
/* open.c — opening and checking an index (INDEX.md). write.c writes it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/text.h"
#include "corpus/index/index.h"

#define HINT_BYTES sizeof(((struct rp_error *)NULL)->hint)
#define MAGIC_OLD_SIDECAR "\x89RPX\r\n\x1a\n"
#define MAGIC_OLD_CORPUS "\x89RPM\r\n\x1a\n"

/* The command that rewrites the index. */
static const char *hint_of(const struct rp_index *index, char hint[HINT_BYTES])
{
    if (index->token_path)
        snprintf(hint, HINT_BYTES,
                 "run `ringpack index %s` again; the token file itself is not touched",
                 RP_HINT_PATH(index->token_path));
    else
        snprintf(hint, HINT_BYTES,
                 "run `ringpack index -c CONFIG` again; it reads no shard again that has not "
                 "changed, where that can be known, and token files are not touched");
    return hint;
}

static int fail_damaged(const struct rp_index *index, int code, const char *what, uint64_t expected,
                        uint64_t found, struct rp_error *error)
{
    char hint[HINT_BYTES];
    return rp_fail(error, code, hint_of(index, hint),
                   "%s: damaged index: %s: expected %" PRIu64 ", found %" PRIu64, index->path, what,
                   expected, found);
}

int rp_index_fail_damaged(const struct rp_index *index, const char *what, struct rp_error *error)
{
    char hint[HINT_BYTES];
    return rp_fail(error, -RP_E_CORRUPT, hint_of(index, hint),
                   "%s: damaged index: the hash of the %s is wrong", index->path, what);
}

/* ---- the header ------------------------------------------------------------------------------ */

static bool is_zero(const uint8_t *bytes, size_t count)
{
    while (count > 0 && bytes[count - 1] == 0)
        count--;
    return count == 0;
}

static int check_magic(const struct rp_index *index, struct rp_error *error)
{
    const uint8_t *header = index->map.data;
    char hint[HINT_BYTES];
    uint64_t bytes = index->map.bytes;
    bool is_old = bytes >= 8 &&
                  (!memcmp(header, MAGIC_OLD_SIDECAR, 8) || !memcmp(header, MAGIC_OLD_CORPUS, 8));
    if (is_old)
        return rp_fail(error, -RP_E_VERSION, hint_of(index, hint),
                       "%s: it was written by an older ringpack (a %s); this one reads indexes "
                       "(" RP_INDEX_SUFFIX ") of version %u",
                       index->path, header[3] == 'X' ? "sidecar, .rpx" : "manifest",
                       RP_INDEX_VERSION);
    if (bytes < RP_INDEX_HEADER_BYTES)
        return fail_damaged(index, -RP_E_CORRUPT, "bytes, at least", RP_INDEX_HEADER_BYTES, bytes,
                            error);
    if (memcmp(header, RP_INDEX_MAGIC, 8) != 0)
        return fail_damaged(index, -RP_E_FORMAT, "magic", rp_load_u64(RP_INDEX_MAGIC),
                            rp_load_u64(header), error);
    return 0;
}

static int check_header(const struct rp_index *index, struct rp_error *error)
{
    const uint8_t *header = index->map.data;
    int code = check_magic(index, error);
    if (code < 0)
        return code;
    if (rp_load_u32(header + 8) != RP_INDEX_VERSION)
        return fail_damaged(index, -RP_E_VERSION, "version", RP_INDEX_VERSION,
                            rp_load_u32(header + 8), error);
    if (rp_load_u32(header + 12) != RP_BLOCK_BYTES)
        return fail_damaged(index, -RP_E_VERSION, "page size", RP_BLOCK_BYTES,
                            rp_load_u32(header + 12), error);
    size_t slots = RP_INDEX_SLOT_AT(0), slots_end = slots + 2 * RP_INDEX_SLOT_BYTES;
    bool is_filled = is_zero(header + 16, slots - 16) &&
                     is_zero(header + slots_end, RP_INDEX_HEADER_BYTES - slots_end);
    return is_filled
               ? 0
               : fail_damaged(index, -RP_E_CORRUPT, "header bytes that must be 0", 0, 1, error);
}

/* The generation of a slot; 0: never written; UINT64_MAX: damaged. */
static uint64_t check_slot(const struct rp_index *index, unsigned which)
{
    const uint8_t *slot = index->map.data + RP_INDEX_SLOT_AT(which);
    if (is_zero(slot, RP_INDEX_SLOT_BYTES))
        return 0;
    uint64_t generation = rp_load_u64(slot), offset = rp_load_u64(slot + 8);
    bool is_good = rp_hash128_equal(rp_hash128(slot, 48), rp_hash128_load(slot + 48)) &&
                   generation && generation % 2 == which && offset % 8 == 0 &&
                   rp_load_u64(slot + 24) == 0 && rp_load_u64(slot + 16) >= RP_INDEX_HEAD_BYTES &&
                   rp_range_inside(offset, rp_load_u64(slot + 16), index->map.bytes);
    return is_good ? generation : UINT64_MAX;
}

/* The slot of the newest head. A damaged slot may be the newer one, so only a repair may use the
 * other. */
static int find_slot(struct rp_index *index, bool to_repair, const uint8_t **slot_out,
                     struct rp_error *error)
{
    uint64_t generations[] = {check_slot(index, 0), check_slot(index, 1)};
    for (unsigned i = 0; i < 2; i++) {
        if (generations[i] == UINT64_MAX && !to_repair)
            return rp_index_fail_damaged(index, "slot of a head", error);
        index->is_torn |= generations[i] == UINT64_MAX;
        if (generations[i] == UINT64_MAX)
            generations[i] = 0;
    }
    unsigned newest = generations[1] > generations[0];
    uint64_t generation = generations[newest], other = generations[1 - newest];
    *slot_out = index->map.data + RP_INDEX_SLOT_AT(newest);
    index->is_torn |= other != generation - 1;
    if (generation == 0 || (index->is_torn && !to_repair))
        return fail_damaged(index, -RP_E_CORRUPT, "generation of the older head", generation - 1,
                            other, error);
    return 0;
}

/* ---- the head -------------------------------------------------------------------------------- */

static int fail_memory(const struct rp_index *index, struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its sources", index->path);
}

/* Load the sources. Returns the number of all texts. */
static uint64_t take_sources(struct rp_index *index, const uint8_t *entry)
{
    uint64_t texts = 0;
    for (uint32_t s = 0; s < index->source_count; s++, entry += RP_INDEX_ENTRY_BYTES) {
        rp_index_decode_source(entry, &index->sources[s]);
        texts += index->sources[s].text_count;
    }
    return texts;
}

static int take_texts(struct rp_index *index, const uint8_t *head, uint64_t texts_at,
                      uint64_t head_bytes, struct rp_error *error)
{
    const uint8_t *entry = head + RP_INDEX_HEAD_BYTES;
    uint64_t bytes = rp_load_u64(head + 32), count = take_sources(index, entry);
    const char *texts = (const char *)head + texts_at;
    if (bytes > head_bytes || rp_align_up(texts_at + bytes, 8) != head_bytes || bytes == 0 ||
        texts[bytes - 1] != 0)
        return fail_damaged(index, -RP_E_CORRUPT, "bytes of the texts", head_bytes - texts_at,
                            bytes, error);
    if (count > bytes)
        return fail_damaged(index, -RP_E_CORRUPT, "texts, at most", bytes, count, error);
    index->texts = rp_calloc((size_t)count, sizeof *index->texts);
    if (!index->texts)
        return fail_memory(index, error);
    const char **next = index->texts;
    for (uint32_t s = 0; s < index->source_count; s++, entry += RP_INDEX_ENTRY_BYTES) {
        struct rp_index_source *source = &index->sources[s];
        uint64_t at = rp_load_u64(entry + 48);
        source->texts = next;
        for (uint32_t i = 0; i < source->text_count; i++) {
            if (at >= bytes)
                return fail_damaged(index, -RP_E_CORRUPT, "place of a text, below", bytes, at,
                                    error);
            *next++ = texts + at;
            at += strlen(texts + at) + 1;
        }
        if (source->text_count < RP_INDEX_PATTERNS)
            return fail_damaged(index, -RP_E_CORRUPT, "texts of a source, at least",
                                RP_INDEX_PATTERNS, source->text_count, error);
        snprintf(source->tokenizer.name, sizeof source->tokenizer.name, "%s",
                 source->texts[RP_INDEX_TOKENIZER]);
    }
    return 0;
}

static int open_segment(struct rp_index *index, struct rp_index_segment *segment,
                        const uint8_t *entry, struct rp_error *error)
{
    uint64_t file_bytes = index->map.bytes;
    rp_index_decode_segment(entry, segment);
    const struct rp_index_shape *shape = &segment->shape;
    bool fits = shape->shards > 0 && shape->objects <= shape->shards &&
                (shape->table.has_spans || shape->table.span_count == 0) &&
                (shape->table.has_extents || shape->shards == 1) && segment->offset % 8 == 0 &&
                rp_index_find_parts(shape, &segment->parts) &&
                segment->offset >= RP_INDEX_HEADER_BYTES &&
                rp_range_inside(segment->offset, rp_index_parts_bytes(&segment->parts), file_bytes);
    if (!fits)
        return fail_damaged(index, -RP_E_CORRUPT, "end of a segment, at most", file_bytes,
                            segment->offset, error);
    const uint8_t *data = index->map.data + segment->offset;
    int code = rp_tree_over(&segment->tree, data, segment->parts.bytes, segment->tree.root, error);
    if (code < 0)
        return code;
    rp_table_over(&segment->table, &shape->table, data, &segment->tree);
    segment->lengths = (const uint8_t *)segment->table.lengths;
    segment->index = index;
    return 0;
}

/* Open the segments of a source, which must sum up to it. */
static int open_segments(struct rp_index *index, struct rp_index_source *source,
                         const uint8_t **entry, struct rp_error *error)
{
    uint64_t documents = 0, tokens = 0, shards = 0;
    for (uint32_t i = 0; i < source->segment_count; i++, *entry += RP_INDEX_ENTRY_BYTES) {
        struct rp_index_segment *segment = &index->segments[index->segment_count++];
        segment->first_shard = (uint32_t)shards;
        segment->first_document = documents;
        int code = open_segment(index, segment, *entry, error);
        if (code < 0)
            return code;
        if (!rp_add_u64(documents, segment->shape.table.documents, &documents) ||
            !rp_add_u64(tokens, segment->tokens, &tokens))
            return fail_damaged(index, -RP_E_CORRUPT, "documents", 0, documents, error);
        shards += segment->shape.shards;
    }
    if (documents != source->documents || tokens != source->tokens || shards != source->shards)
        return fail_damaged(index, -RP_E_CORRUPT, "documents of a source", source->documents,
                            documents, error);
    return 0;
}

/* A source of a corpus has tokens; a sidecar may be of a shard without any. */
static int open_sources(struct rp_index *index, const uint8_t *head, const uint8_t **entry,
                        struct rp_error *error)
{
    uint64_t shards = 0, left = rp_load_u32(head + 12);
    for (uint32_t s = 0; s < index->source_count; s++) {
        struct rp_index_source *source = &index->sources[s];
        source->segments = index->segments + index->segment_count;
        if (source->segment_count == 0 || source->segment_count > left ||
            (source->tokens == 0 && !index->token_path) || source->widest == 0 ||
            source->widest > 8)
            return fail_damaged(index, -RP_E_CORRUPT, "segments of a source, at most", left,
                                source->segment_count, error);
        left -= source->segment_count;
        shards += source->shards;
        int code = open_segments(index, source, entry, error);
        if (code < 0)
            return code;
    }
    if (left != 0 || shards != rp_load_u64(head + 24) || shards > UINT32_MAX)
        return fail_damaged(index, -RP_E_CORRUPT, "shards", rp_load_u64(head + 24), shards, error);
    index->shard_count = (uint32_t)shards;
    return 0;
}

static bool has_segment(const struct rp_index *index, const struct rp_index_column *column)
{
    for (uint32_t g = 0; g < index->segment_count; g++)
        if (index->segments[g].offset == column->segment_at)
            return index->segments[g].shape.table.documents == column->values;
    return false;
}

static int open_column(struct rp_index *index, struct rp_index_column *column, const uint8_t *entry,
                       struct rp_error *error)
{
    rp_index_decode_column(entry, column);
    uint64_t width = rp_index_column_width(column->type), bytes = 0;
    bool fits = width > 0 && column->values > 0 && column->values <= UINT64_MAX / 64 &&
                has_segment(index, column) && memchr(column->name, 0, sizeof column->name) &&
                column->name[0] && column->offset % 8 == 0 &&
                column->offset >= RP_INDEX_HEADER_BYTES;
    if (fits) {
        bytes = rp_align_up(column->values * width, 8);
        uint64_t hashes = 8 * rp_tree_hash_count(rp_div_up(bytes, RP_BLOCK_BYTES));
        fits = rp_range_inside(column->offset, bytes + hashes, index->map.bytes);
    }
    return fits ? rp_tree_over(&column->tree, index->map.data + column->offset, bytes,
                               column->tree.root, error)
                : fail_damaged(index, -RP_E_CORRUPT, "end of a column, at most", index->map.bytes,
                               column->offset, error);
}

static int open_entries(struct rp_index *index, const uint8_t *head, struct rp_error *error)
{
    const uint8_t *entry = head + RP_INDEX_HEAD_BYTES +
                           RP_INDEX_ENTRY_BYTES * (size_t)index->source_count;
    uint32_t columns = rp_load_u32(head + 16);
    int code = open_sources(index, head, &entry, error);
    for (uint32_t i = 0; code == 0 && i < columns; i++, entry += RP_INDEX_ENTRY_BYTES)
        code = open_column(index, &index->columns[index->column_count++], entry, error);
    return code;
}

static int open_head(struct rp_index *index, const uint8_t *slot, struct rp_error *error)
{
    uint64_t offset = rp_load_u64(slot + 8), bytes = rp_load_u64(slot + 16);
    const uint8_t *head = index->map.data + offset;
    index->generation = rp_load_u64(slot);
    index->root = rp_hash128_load(slot + 32);
    index->end = offset + bytes;
    if (!rp_hash128_equal(rp_hash128(head, (size_t)bytes), index->root) ||
        rp_load_u64(head) != index->generation)
        return rp_index_fail_damaged(index, "head", error);
    uint64_t sources = rp_load_u32(head + 8), segments = rp_load_u32(head + 12),
             columns = rp_load_u32(head + 16);
    uint64_t texts_at = RP_INDEX_HEAD_BYTES + RP_INDEX_ENTRY_BYTES * (sources + segments + columns);
    if (sources == 0 || texts_at > bytes)
        return fail_damaged(index, -RP_E_CORRUPT, "bytes of the head, at least", texts_at, bytes,
                            error);
    memcpy(&index->fingerprint, head + 40, sizeof index->fingerprint);
    index->source_count = (uint32_t)sources;
    index->sources = rp_calloc((size_t)sources, sizeof *index->sources);
    index->segments = rp_calloc((size_t)segments, sizeof *index->segments);
    index->columns = columns ? rp_calloc((size_t)columns, sizeof *index->columns) : NULL;
    if (!index->sources || !index->segments || (columns && !index->columns))
        return fail_memory(index, error);
    int code = take_texts(index, head, texts_at, bytes, error);
    if (code < 0)
        return code;
    if (!index->token_path && sources == 1 && index->sources[0].text_count == RP_INDEX_PATTERNS)
        return rp_fail(error, -RP_E_FORMAT, "give the token file itself",
                       "%s: expected the index of a corpus, found a token file's", index->path);
    return open_entries(index, head, error);
}

/* A hint to the kernel: reads are scattered, so reading ahead of each would be wasted. */
static void expect_random_reads(const struct rp_index *index)
{
    if (index->map.mapping)
        (void)madvise((void *)(uintptr_t)index->map.data, (size_t)index->map.bytes, MADV_RANDOM);
}

/* A small file was copied: verify all of it now, as the copy cannot change later. */
static int check_copy(struct rp_index *index, struct rp_error *error)
{
    if (index->map.mapping)
        return 0;
    int code = rp_index_check_all(index, NULL, error);
    for (uint32_t i = 0; code == 0 && i < index->segment_count; i++)
        rp_a64_store_relaxed(&index->segments[i].plain, index->segments[i].shape.table.documents);
    return code;
}

static int open_file(struct rp_index *index, bool to_repair, struct rp_error *error)
{
    const uint8_t *slot = NULL;
    int code = rp_map_open(&index->map, index->file, error);
    if (code == -ENOENT && !index->token_path)
        return rp_fail(error, code, "run `ringpack index -c CONFIG` once, or take `index:` out",
                       "%s: the configuration names this index, and it is not there", index->path);
    if (code < 0)
        return code;
    index->known = index->map.stamp;
    expect_random_reads(index);
    code = check_header(index, error);
    if (code == 0)
        code = find_slot(index, to_repair, &slot, error);
    if (code == 0)
        code = open_head(index, slot, error);
    return code < 0 ? code : check_copy(index, error);
}

int rp_index_open(struct rp_index **index_out, const struct rp_index_open_options *options,
                  struct rp_error *error)
{
    *index_out = NULL;
    struct rp_index *index = rp_calloc(1, sizeof *index);
    if (!index)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for an index", options->path);
    index->token_path = options->token_path;
    index->path = strdup(options->path);
    index->file = strdup(options->file ? options->file : options->path);
    index->directory = rp_path_directory(options->path);
    int code = index->path && index->file && index->directory
                   ? open_file(index, options->to_repair, error)
                   : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", options->path);
    if (code < 0)
        rp_index_close(index);
    else
        *index_out = index;
    return code;
}

void rp_index_close(struct rp_index *index)
{
    if (!index)
        return;
    for (uint32_t i = 0; i < index->segment_count; i++)
        rp_tree_close(&index->segments[i].tree);
    for (uint32_t i = 0; i < index->column_count; i++)
        rp_tree_close(&index->columns[i].tree);
    rp_map_close(&index->map);
    free(index->sources);
    free(index->segments);
    free(index->columns);
    free(index->texts);
    free(index->path);
    free(index->file);
    free(index->directory);
    free(index);
}

bool rp_index_is_file(const char *path)
{
    return rp_file_begins(path, RP_INDEX_MAGIC, 8) || rp_file_begins(path, MAGIC_OLD_CORPUS, 8);
}

bool rp_index_is_of_corpus(const char *path)
{
    const struct rp_index_open_options options = {.path = path};
    struct rp_index *index;
    struct rp_error ignored;
    bool is_open = rp_index_open(&index, &options, &ignored) == 0;
    rp_index_close(index);
    return is_open;
}

/* ---- the whole file -------------------------------------------------------------------------- */

static int check_tree(const struct rp_index *index, const struct rp_tree *tree,
                      const struct rp_progress *progress, struct rp_error *error)
{
    uint64_t offset = (uint64_t)(tree->data - index->map.data);
    for (uint64_t byte = 0; byte < tree->bytes; byte += RP_BLOCK_BYTES) {
        if (!rp_tree_verify(tree, byte)) {
            char what[64];
            snprintf(what, sizeof what, "page at byte %" PRIu64, offset + byte);
            return rp_index_fail_damaged(index, what, error);
        }
        if (byte / RP_BLOCK_BYTES % 4096 == 0)
            rp_progress_report(progress, offset + byte, index->map.bytes);
    }
    return 0;
}

/* The prefix root of the last segment is the fingerprint of the source. */
static bool check_prefixes(const struct rp_index_source *source)
{
    struct rp_fingerprint_list list;
    struct rp_fingerprint found = {{0, 0}, {0, 0}};
    bool is_good = true;
    rp_fingerprint_begin(&list);
    for (uint32_t g = 0; is_good && g < source->segment_count; g++) {
        is_good = rp_index_add_fingerprints(&source->segments[g], &list);
        found = rp_fingerprint_of(&list);
        is_good &= !memcmp(&found, &source->segments[g].prefix, sizeof found);
    }
    return is_good && !memcmp(&found, &source->fingerprint, sizeof found);
}

int rp_index_check_all(const struct rp_index *index, const struct rp_progress *progress,
                       struct rp_error *error)
{
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < index->segment_count; i++)
        code = check_tree(index, &index->segments[i].tree, progress, error);
    for (uint32_t i = 0; code == 0 && i < index->column_count; i++)
        code = check_tree(index, &index->columns[i].tree, progress, error);
    for (uint32_t s = 0; code == 0 && s < index->source_count && !index->token_path; s++)
        if (!check_prefixes(&index->sources[s]))
            code = rp_index_fail_damaged(index, "prefix of a source", error);
    return code;
}

int rp_index_revalidate(struct rp_index *index, struct rp_error *error)
{
    struct rp_stamp found = {0};
    uint64_t expected_value, found_value;
    char hint[HINT_BYTES];
    if (!index->map.mapping ||
        rp_stamp_at(index->file, &found) < 0 || /* the name is gone; the mapping remains */
        !rp_stamp_difference(&index->known, &found, &expected_value, &found_value))
        return 0;
    /* The name may have another, shorter file now: the mapping is checked, not that file. If it is
     * the same file, a page that was cut off raises SIGBUS, which the caller's guard reports. */
    bool is_good = true;
    for (uint32_t i = 0; i < index->segment_count && is_good; i++)
        is_good = rp_tree_verify_again(&index->segments[i].tree);
    for (uint32_t i = 0; i < index->column_count && is_good; i++)
        is_good = rp_tree_verify_again(&index->columns[i].tree);
    snprintf(hint, sizeof hint,
             "restore it, or run `ringpack index %s` if the change was meant (the stream is then "
             "another one), and restart; delivered rows are valid",
             index->token_path ? RP_HINT_PATH(index->token_path) : "-c CONFIG");
    if (!is_good)
        return rp_fail(error, -RP_E_CHANGED, hint,
                       "%s: changed while it was in use: a page that was read has another hash now",
                       index->path);
    index->known = found;
    return 0;
}
