/* SPDX-License-Identifier: Apache-2.0 */
/* manifest — opening, checking and reading the file of manifest.h. write.c writes it. */
#include "corpus/manifest/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/defect.h"
#include "base/mem.h"
#include "corpus/readers.h"

#define REBUILD_HINT                                                                               \
    "run `ringpack index -c CONFIG` again; it reads no shard again that has not changed, where "   \
    "that can be known, and token files are not touched"

static int damaged(const struct rp_manifest *manifest, int code, const char *what,
                   uint64_t expected, uint64_t found, struct rp_error *error)
{
    return rp_fail(error, code, REBUILD_HINT,
                   "%s: damaged manifest: %s: expected %" PRIu64 ", found %" PRIu64, manifest->path,
                   what, expected, found);
}

int rp_manifest_fail_damaged(const struct rp_manifest *manifest, const char *what,
                             struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT, REBUILD_HINT,
                   "%s: damaged manifest: the hash of the %s is wrong", manifest->path, what);
}

/* ---- page 0 ---------------------------------------------------------------------------------- */

static bool is_zero(const uint8_t *bytes, size_t count)
{
    while (count > 0 && bytes[count - 1] == 0)
        count--;
    return count == 0;
}

static int check_first_page(const struct rp_manifest *manifest, struct rp_error *error)
{
    const uint8_t *page = manifest->map.data;
    if (manifest->map.bytes < RP_BLOCK_BYTES)
        return damaged(manifest, -RP_E_CORRUPT, "bytes, at least", RP_BLOCK_BYTES,
                       manifest->map.bytes, error);
    if (memcmp(page, RP_MANIFEST_MAGIC, 8) != 0)
        return damaged(manifest, -RP_E_FORMAT, "magic", rp_load_u64(RP_MANIFEST_MAGIC),
                       rp_load_u64(page), error);
    if (rp_load_u32(page + 8) != RP_MANIFEST_VERSION)
        return damaged(manifest, -RP_E_VERSION, "version", RP_MANIFEST_VERSION,
                       rp_load_u32(page + 8), error);
    if (rp_load_u32(page + 12) != RP_BLOCK_BYTES)
        return damaged(manifest, -RP_E_VERSION, "page size", RP_BLOCK_BYTES, rp_load_u32(page + 12),
                       error);
    static const struct {
        size_t begin, end;
    } gaps[] = {{16, 1024},
                {1024 + RP_MANIFEST_SLOT_BYTES, 2048},
                {2048 + RP_MANIFEST_SLOT_BYTES, RP_BLOCK_BYTES}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(gaps); i++)
        if (!is_zero(page + gaps[i].begin, gaps[i].end - gaps[i].begin))
            return damaged(manifest, -RP_E_CORRUPT, "bytes that must be 0, from", gaps[i].begin, 1,
                           error);
    return 0;
}

/* Its generation; 0: it was never written; UINT64_MAX: it is damaged. */
static uint64_t check_slot(const struct rp_manifest *manifest, unsigned which)
{
    const uint8_t *slot = manifest->map.data + RP_MANIFEST_SLOT_AT(which);
    if (is_zero(slot, RP_MANIFEST_SLOT_BYTES))
        return 0;
    uint64_t generation = rp_load_u64(slot), offset = rp_load_u64(slot + 8);
    bool is_good = rp_hash128_equal(rp_hash128(slot, 48), rp_hash128_load(slot + 48)) &&
                   generation && generation % 2 == which && offset % 8 == 0 &&
                   rp_load_u64(slot + 24) == 0 &&
                   rp_load_u64(slot + 16) >= RP_MANIFEST_HEAD_BYTES &&
                   rp_range_inside(offset, rp_load_u64(slot + 16), manifest->map.bytes);
    return is_good ? generation : UINT64_MAX;
}

/* The slot of the newest head. A slot that is damaged may be the newer one, so it is not passed
 * over but to repair the file. */
static int find_slot(struct rp_manifest *manifest, bool to_repair, const uint8_t **slot_out,
                     struct rp_error *error)
{
    uint64_t generations[] = {check_slot(manifest, 0), check_slot(manifest, 1)};
    for (unsigned i = 0; i < 2; i++) {
        if (generations[i] == UINT64_MAX && !to_repair)
            return rp_manifest_fail_damaged(manifest, "slot of a head", error);
        manifest->is_torn |= generations[i] == UINT64_MAX;
        if (generations[i] == UINT64_MAX)
            generations[i] = 0;
    }
    unsigned newest = generations[1] > generations[0];
    uint64_t generation = generations[newest], other = generations[1 - newest];
    *slot_out = manifest->map.data + RP_MANIFEST_SLOT_AT(newest);
    manifest->is_torn |= other != generation - 1;
    if (generation == 0 || (manifest->is_torn && !to_repair))
        return damaged(manifest, -RP_E_CORRUPT, "generation of the older head", generation - 1,
                       other, error);
    return 0;
}

/* ---- the head -------------------------------------------------------------------------------- */

static int fail_memory(const struct rp_manifest *manifest, struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its sources", manifest->path);
}

static int take_texts(struct rp_manifest *manifest, const uint8_t *head, uint64_t texts_at,
                      uint64_t head_bytes, struct rp_error *error)
{
    uint64_t bytes = rp_load_u64(head + 24), count = 0;
    const char *texts = (const char *)head + texts_at;
    if (bytes > head_bytes || rp_align_up(texts_at + bytes, 8) != head_bytes || bytes == 0 ||
        texts[bytes - 1] != 0)
        return damaged(manifest, -RP_E_CORRUPT, "bytes of the texts", head_bytes - texts_at, bytes,
                       error);
    for (uint32_t s = 0; s < manifest->source_count; s++) {
        const uint8_t *entry = head + RP_MANIFEST_HEAD_BYTES + RP_MANIFEST_ENTRY_BYTES * (size_t)s;
        count += rp_load_u32(entry + 44);
    }
    if (count > bytes)
        return damaged(manifest, -RP_E_CORRUPT, "texts, at most", bytes, count, error);
    manifest->texts = rp_calloc((size_t)count, sizeof *manifest->texts);
    if (!manifest->texts)
        return fail_memory(manifest, error);
    const char **next = manifest->texts;
    for (uint32_t s = 0; s < manifest->source_count; s++) {
        const uint8_t *entry = head + RP_MANIFEST_HEAD_BYTES + RP_MANIFEST_ENTRY_BYTES * (size_t)s;
        struct rp_manifest_source *source = &manifest->sources[s];
        uint64_t at = rp_load_u64(entry + 48);
        source->texts = next;
        source->text_count = rp_load_u32(entry + 44);
        for (uint32_t i = 0; i < source->text_count; i++) {
            if (at >= bytes)
                return damaged(manifest, -RP_E_CORRUPT, "place of a text, below", bytes, at, error);
            *next++ = texts + at;
            at += strlen(texts + at) + 1;
        }
        if (source->text_count <= RP_MANIFEST_PATTERNS)
            return damaged(manifest, -RP_E_CORRUPT, "texts of a source, more than",
                           RP_MANIFEST_PATTERNS, source->text_count, error);
        snprintf(source->tokenizer.name, sizeof source->tokenizer.name, "%s",
                 source->texts[RP_MANIFEST_TOKENIZER]);
    }
    return 0;
}

static int open_segment(struct rp_manifest *manifest, struct rp_manifest_segment *segment,
                        const uint8_t *entry, struct rp_error *error)
{
    uint64_t file_bytes = manifest->map.bytes;
    segment->offset = rp_load_u64(entry);
    segment->tokens = rp_load_u64(entry + 16);
    segment->prefix = rp_manifest_load_fingerprint(entry + 80);
    segment->shape = (struct rp_manifest_shape){.documents = rp_load_u64(entry + 8),
                                                .spans = rp_load_u64(entry + 24),
                                                .blocks = rp_load_u64(entry + 32),
                                                .path_bytes = rp_load_u64(entry + 40),
                                                .shards = rp_load_u32(entry + 48),
                                                .objects = rp_load_u32(entry + 56),
                                                .has_spans = rp_load_u32(entry + 52) & 1};
    bool fits = segment->shape.shards > 0 && segment->shape.objects <= segment->shape.shards &&
                rp_manifest_find_parts(&segment->shape, &segment->parts) &&
                segment->offset % RP_BLOCK_BYTES == 0 && segment->offset >= RP_BLOCK_BYTES &&
                rp_range_inside(segment->offset, rp_manifest_parts_bytes(&segment->parts),
                                file_bytes);
    if (!fits)
        return damaged(manifest, -RP_E_CORRUPT, "end of a segment, at most", file_bytes,
                       segment->offset, error);
    const uint8_t *data = manifest->map.data + segment->offset;
    const struct rp_table_shape table = {.documents = segment->shape.documents,
                                         .span_count = segment->shape.spans,
                                         .has_extents = true,
                                         .has_spans = segment->shape.has_spans};
    int code = rp_tree_over(&segment->tree, data, segment->parts.bytes / RP_BLOCK_BYTES,
                            rp_hash128_load(entry + 64), error);
    return code < 0 ? code : rp_table_over_tree(&segment->table, &table, &segment->tree, error);
}

/* The segments of a source, and that they sum up to it. */
static int open_segments(struct rp_manifest *manifest, uint32_t s, const uint8_t **entry,
                         struct rp_error *error)
{
    struct rp_manifest_source *source = &manifest->sources[s];
    uint64_t documents = 0, tokens = 0, shards = 0;
    for (uint32_t i = 0; i < source->segment_count; i++, *entry += RP_MANIFEST_ENTRY_BYTES) {
        struct rp_manifest_segment *segment = &manifest->segments[manifest->segment_count++];
        segment->source = s;
        segment->first_shard = (uint32_t)shards;
        segment->first_document = documents;
        int code = open_segment(manifest, segment, *entry, error);
        if (code < 0)
            return code;
        if (!rp_add_u64(documents, segment->shape.documents, &documents) ||
            !rp_add_u64(tokens, segment->tokens, &tokens))
            return damaged(manifest, -RP_E_CORRUPT, "documents", 0, documents, error);
        shards += segment->shape.shards;
    }
    if (documents != source->documents || tokens != source->tokens || shards != source->shards)
        return damaged(manifest, -RP_E_CORRUPT, "documents of a source", source->documents,
                       documents, error);
    return 0;
}

static int open_sources(struct rp_manifest *manifest, const uint8_t *head, uint32_t segments,
                        struct rp_error *error)
{
    const uint8_t *entry = head + RP_MANIFEST_HEAD_BYTES;
    const uint8_t *segment_entry = entry + RP_MANIFEST_ENTRY_BYTES * (size_t)manifest->source_count;
    uint64_t shards = 0, left = segments;
    for (uint32_t s = 0; s < manifest->source_count; s++, entry += RP_MANIFEST_ENTRY_BYTES) {
        struct rp_manifest_source *source = &manifest->sources[s];
        source->documents = rp_load_u64(entry);
        source->tokens = rp_load_u64(entry + 8);
        source->token_bytes = rp_load_u64(entry + 16);
        source->bytes = rp_load_u64(entry + 24);
        source->shards = rp_load_u32(entry + 32);
        source->widest = rp_load_u32(entry + 36);
        source->segment_count = rp_load_u32(entry + 40);
        source->segments = manifest->segments + manifest->segment_count;
        source->fingerprint = rp_manifest_load_fingerprint(entry + 64);
        source->tokenizer.hash = rp_hash128_load(entry + 96);
        if (source->segment_count == 0 || source->segment_count > left || source->tokens == 0 ||
            source->widest == 0 || source->widest > 8)
            return damaged(manifest, -RP_E_CORRUPT, "segments of a source, at most", left,
                           source->segment_count, error);
        left -= source->segment_count;
        shards += source->shards;
        int code = open_segments(manifest, s, &segment_entry, error);
        if (code < 0)
            return code;
    }
    if (left != 0 || shards != rp_load_u64(head + 16) || shards > UINT32_MAX)
        return damaged(manifest, -RP_E_CORRUPT, "shards", rp_load_u64(head + 16), shards, error);
    manifest->shard_count = (uint32_t)shards;
    return 0;
}

static int open_head(struct rp_manifest *manifest, const uint8_t *slot, struct rp_error *error)
{
    uint64_t offset = rp_load_u64(slot + 8), bytes = rp_load_u64(slot + 16);
    const uint8_t *head = manifest->map.data + offset;
    manifest->generation = rp_load_u64(slot);
    manifest->root = rp_hash128_load(slot + 32);
    manifest->end = offset + bytes;
    if (!rp_hash128_equal(rp_hash128(head, (size_t)bytes), manifest->root) ||
        rp_load_u64(head) != manifest->generation)
        return rp_manifest_fail_damaged(manifest, "head", error);
    uint64_t sources = rp_load_u32(head + 8), segments = rp_load_u32(head + 12);
    uint64_t texts_at = RP_MANIFEST_HEAD_BYTES + RP_MANIFEST_ENTRY_BYTES * (sources + segments);
    if (sources == 0 || texts_at > bytes)
        return damaged(manifest, -RP_E_CORRUPT, "bytes of the head, at least", texts_at, bytes,
                       error);
    manifest->fingerprint = rp_manifest_load_fingerprint(head + 32);
    manifest->source_count = (uint32_t)sources;
    manifest->sources = rp_calloc((size_t)sources, sizeof *manifest->sources);
    manifest->segments = rp_calloc((size_t)segments, sizeof *manifest->segments);
    if (!manifest->sources || !manifest->segments)
        return fail_memory(manifest, error);
    int code = take_texts(manifest, head, texts_at, bytes, error);
    return code < 0 ? code : open_sources(manifest, head, (uint32_t)segments, error);
}

/* Pages are read here and there: for one, the kernel would read as far as it reads ahead. A hint.
 */
static void expect_random_reads(const struct rp_manifest *manifest)
{
    if (manifest->map.mapping)
        (void)madvise((void *)(uintptr_t)manifest->map.data, (size_t)manifest->map.bytes,
                      MADV_RANDOM);
}

static int open_file(struct rp_manifest *manifest, bool to_repair, struct rp_error *error)
{
    const uint8_t *slot = NULL;
    int code = rp_map_open(&manifest->map, manifest->file, error);
    if (code == -ENOENT)
        return rp_fail(error, code, "run `ringpack index -c CONFIG` once, or take `manifest:` out",
                       "%s: the configuration names this manifest, and it is not there",
                       manifest->path);
    if (code < 0)
        return code;
    manifest->known = manifest->map.stamp;
    expect_random_reads(manifest);
    code = check_first_page(manifest, error);
    if (code == 0)
        code = find_slot(manifest, to_repair, &slot, error);
    return code < 0 ? code : open_head(manifest, slot, error);
}

int rp_manifest_open(struct rp_manifest **manifest_out, const char *path, bool to_repair,
                     struct rp_error *error)
{
    return rp_manifest_open_file(manifest_out, path, path, to_repair, error);
}

int rp_manifest_open_file(struct rp_manifest **manifest_out, const char *path, const char *file,
                          bool to_repair, struct rp_error *error)
{
    *manifest_out = NULL;
    struct rp_manifest *manifest = rp_calloc(1, sizeof *manifest);
    if (!manifest)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a manifest", path);
    manifest->path = strdup(path);
    manifest->file = strdup(file);
    manifest->directory = rp_path_directory(path);
    int code = manifest->path && manifest->file && manifest->directory
                   ? open_file(manifest, to_repair, error)
                   : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    if (code < 0)
        rp_manifest_close(manifest);
    else
        *manifest_out = manifest;
    return code;
}

void rp_manifest_close(struct rp_manifest *manifest)
{
    if (!manifest)
        return;
    for (uint32_t i = 0; i < manifest->segment_count; i++)
        rp_tree_close(&manifest->segments[i].tree);
    rp_map_close(&manifest->map);
    free(manifest->sources);
    free(manifest->segments);
    free(manifest->texts);
    free(manifest->path);
    free(manifest->file);
    free(manifest->directory);
    free(manifest);
}

bool rp_manifest_is_file(const char *path)
{
    uint8_t magic[8];
    uint64_t bytes;
    int fd = rp_file_open_read(path, &bytes, NULL);
    if (fd < 0)
        return false;
    bool is_manifest = bytes >= RP_BLOCK_BYTES &&
                       rp_file_read_at(fd, path, magic, sizeof magic, 0, NULL) == 0 &&
                       !memcmp(magic, RP_MANIFEST_MAGIC, sizeof magic);
    close(fd);
    return is_manifest;
}

/* ---- the whole file -------------------------------------------------------------------------- */

int rp_manifest_check_all(const struct rp_manifest *manifest, const struct rp_progress *progress,
                          struct rp_error *error)
{
    for (uint32_t i = 0; i < manifest->segment_count; i++) {
        const struct rp_tree *tree = &manifest->segments[i].tree;
        for (uint64_t page = 0; page < tree->pages; page++) {
            uint64_t byte = page * RP_BLOCK_BYTES, at = manifest->segments[i].offset + byte;
            if (!rp_tree_verify(tree, byte)) {
                char what[64];
                snprintf(what, sizeof what, "page at byte %" PRIu64, at);
                return rp_manifest_fail_damaged(manifest, what, error);
            }
            if (progress->report && page % 4096 == 0)
                progress->report(progress->context, at, manifest->map.bytes);
        }
    }
    return 0;
}

int rp_manifest_look(struct rp_manifest *manifest, struct rp_error *error)
{
    struct rp_stamp found = {0};
    uint64_t expected_value, found_value;
    if (!manifest->map.mapping || RP_DEFECT(forget_indexes) ||
        rp_stamp_at(manifest->file, &found) < 0 || /* its name is gone; what is mapped lives on */
        !rp_stamp_difference(&manifest->known, &found, &expected_value, &found_value))
        return 0;
    /* The new file may be another one, and shorter: the mapping is checked, not that file. Of the
     * same file, a page that was cut off raises SIGBUS here, which the caller's guard reports. */
    bool is_good = true;
    for (uint32_t i = 0; i < manifest->segment_count && is_good; i++)
        is_good = rp_tree_verify_again(&manifest->segments[i].tree);
    if (!is_good)
        return rp_fail(error, -RP_E_CHANGED,
                       "restore it, or run `ringpack index -c CONFIG` if the change was meant (the "
                       "stream is then another one), and restart; what was delivered is valid",
                       "%s: changed while it was in use: a page that was read has another hash now",
                       manifest->path);
    manifest->known = found;
    return 0;
}
