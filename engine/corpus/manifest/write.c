/* SPDX-License-Identifier: Apache-2.0 */
/* write — the hashes of the segments' pages, the head and the slot (build.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "corpus/manifest/build_struct.h"

/* Pages whose hashes are made at once. */
#define PART_PAGES 1024u

static int fail_memory(const struct rp_manifest_build *build, struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "%s: no memory to write it", build->options.path);
}

static int fail_errno(const struct rp_manifest_build *build, const char *what,
                      struct rp_error *error)
{
    int number = errno;
    return rp_fail(error, -number, NULL, "%s: %s: %s", build->options.path, what, strerror(number));
}

/* ---- hash ------------------------------------------------------------------------------------ */

static uint64_t pages_of(const struct rp_build_source *source)
{
    return source->count ? source->parts.bytes / RP_BLOCK_BYTES : 0;
}

static uint64_t *hashes_of(const struct rp_build_source *source)
{
    return (uint64_t *)(void *)(source->data + source->parts.bytes);
}

/* The last entry of `first`, and the buckets: the rest was put by fill. */
static void complete_segment(const struct rp_build_source *source)
{
    uint8_t *first = source->data + source->parts.first;
    uint32_t *buckets = (uint32_t *)(void *)(source->data + source->parts.buckets);
    uint32_t shards = source->shape.shards, shard = 0;
    rp_store_u64(first + 8 * (uint64_t)shards, source->shape.documents);
    for (uint64_t b = 0; b < source->parts.bucket_count; b++) {
        while (shard + 1 < shards &&
               rp_load_u64(first + 8 * (uint64_t)(shard + 1)) <= b << source->parts.bucket_shift)
            shard++;
        buckets[b] = shard;
    }
}

uint64_t rp_manifest_build_parts(const struct rp_manifest_build *build)
{
    uint64_t parts = 0;
    for (uint32_t s = 0; s < build->options.source_count; s++)
        parts += rp_div_up(pages_of(&build->sources[s]), PART_PAGES);
    return parts;
}

void rp_manifest_build_hash(struct rp_manifest_build *build, uint64_t part)
{
    uint32_t s = 0;
    for (uint64_t own; part >= (own = rp_div_up(pages_of(&build->sources[s]), PART_PAGES)); s++)
        part -= own;
    const struct rp_build_source *source = &build->sources[s];
    uint64_t first = part * PART_PAGES, pages = pages_of(source);
    /* the others are not complete before the end */
    if (first + PART_PAGES < pages && (first + PART_PAGES) * RP_BLOCK_BYTES <= source->parts.first)
        rp_tree_hash_pages(source->data, first, PART_PAGES, hashes_of(source));
}

/* Whatever rp_manifest_build_hash has left out: the end of each segment. */
static void hash_rest(const struct rp_build_source *source)
{
    uint64_t pages = pages_of(source), first = 0;
    while (first + PART_PAGES < pages &&
           (first + PART_PAGES) * RP_BLOCK_BYTES <= source->parts.first)
        first += PART_PAGES;
    complete_segment(source);
    rp_tree_hash_pages(source->data, first, pages - first, hashes_of(source));
}

/* ---- the head -------------------------------------------------------------------------------- */

/* The fingerprint of all shards of a source, from those of each, which are also in the records. */
static int combine_source(const struct rp_manifest_build *build, uint32_t s, struct rp_error *error)
{
    struct rp_build_source *source = &build->sources[s];
    struct rp_fingerprint *members = rp_calloc(source->shards, sizeof *members);
    uint32_t count = 0;
    if (!members)
        return fail_memory(build, error);
    for (uint32_t g = 0; build->appends && g < build->older->sources[s].segment_count; g++) {
        const struct rp_manifest_segment *segment = &build->older->sources[s].segments[g];
        for (uint32_t i = 0; i < segment->shape.shards; i++) {
            struct rp_manifest_record record;
            bool is_good = rp_manifest_record(build->older, segment, i, &record, NULL);
            RP_ASSERT(is_good); /* all its pages were verified at open */
            members[count++] = record.fingerprint;
        }
    }
    for (uint64_t i = 0; i < source->count; i++)
        members[count++] = build->shards[source->first + i].record.fingerprint;
    RP_ASSERT(count == source->shards);
    source->fingerprint = rp_fingerprint_combine(members, count);
    free(members);
    return 0;
}

/* Texts of all sources, while the head is being made. */
struct texts {
    char *bytes;
    size_t count, capacity;
    bool failed;
};

static void add_text(struct texts *texts, const char *text)
{
    size_t bytes = strlen(text) + 1;
    if (texts->count + bytes > texts->capacity) {
        size_t capacity = 2 * (texts->capacity + bytes);
        char *grown = realloc(texts->bytes, capacity);
        texts->failed |= !grown;
        if (!grown)
            return;
        texts->bytes = grown;
        texts->capacity = capacity;
    }
    memcpy(texts->bytes + texts->count, text, bytes);
    texts->count += bytes;
}

static void add_texts(struct rp_manifest_build *build, uint32_t s, struct texts *texts)
{
    const struct rp_manifest_patterns *patterns = &build->options.patterns[s];
    const char *declared[RP_MANIFEST_PATTERNS];
    char eos[24];
    rp_manifest_declared(&build->options.sources[s], eos, declared);
    declared[RP_MANIFEST_FOUND_MASK] = build->sources[s].found_mask;
    declared[RP_MANIFEST_TOKENIZER] = build->sources[s].tokenizer.id.name;
    for (unsigned i = 0; i < RP_MANIFEST_PATTERNS; i++)
        add_text(texts, declared[i]);
    for (uint32_t i = 0; i < patterns->count; i++) {
        char *stored = rp_manifest_paths_store(&build->paths, patterns->patterns[i]);
        texts->failed |= !stored;
        add_text(texts, stored ? stored : "");
        free(stored);
    }
}

static uint32_t segments_of(const struct rp_manifest_build *build, uint32_t s)
{
    uint32_t older = build->appends ? build->older->sources[s].segment_count : 0;
    return older + (build->sources[s].count > 0);
}

static void encode_source(const struct rp_manifest_build *build, uint32_t s, uint64_t texts_at,
                          uint8_t *entry)
{
    const struct rp_build_source *source = &build->sources[s];
    rp_store_u64(entry, source->documents);
    rp_store_u64(entry + 8, source->tokens);
    rp_store_u64(entry + 16, source->token_bytes);
    rp_store_u64(entry + 24, source->bytes);
    rp_store_u32(entry + 32, source->shards);
    rp_store_u32(entry + 36, source->widest);
    rp_store_u32(entry + 40, segments_of(build, s));
    rp_store_u32(entry + 44, RP_MANIFEST_PATTERNS + build->options.patterns[s].count);
    rp_store_u64(entry + 48, texts_at);
    rp_manifest_store_fingerprint(entry + 64, &source->fingerprint);
    rp_hash128_store(entry + 96, source->tokenizer.id.hash);
}

static void encode_segment(const struct rp_manifest_shape *shape, uint64_t offset, uint64_t tokens,
                           struct rp_hash128 root, const struct rp_fingerprint *prefix,
                           uint8_t *entry)
{
    rp_store_u64(entry, offset);
    rp_store_u64(entry + 8, shape->documents);
    rp_store_u64(entry + 16, tokens);
    rp_store_u64(entry + 24, shape->spans);
    rp_store_u64(entry + 32, shape->blocks);
    rp_store_u64(entry + 40, shape->path_bytes);
    rp_store_u32(entry + 48, shape->shards);
    rp_store_u32(entry + 52, shape->has_spans);
    rp_store_u32(entry + 56, shape->objects);
    rp_hash128_store(entry + 64, root);
    rp_manifest_store_fingerprint(entry + 80, prefix);
}

/* The entries of the segments of a source: those that were there, and the one that was written. */
static uint8_t *encode_segments(const struct rp_manifest_build *build, uint32_t s, uint8_t *entry)
{
    const struct rp_build_source *source = &build->sources[s];
    uint64_t tokens = source->tokens;
    for (uint32_t g = 0; build->appends && g < build->older->sources[s].segment_count; g++) {
        const struct rp_manifest_segment *segment = &build->older->sources[s].segments[g];
        encode_segment(&segment->shape, segment->offset, segment->tokens, segment->tree.root,
                       &segment->prefix, entry);
        tokens -= segment->tokens;
        entry += RP_MANIFEST_ENTRY_BYTES;
    }
    if (source->count == 0)
        return entry;
    encode_segment(&source->shape, source->offset, tokens, source->root, &source->fingerprint,
                   entry);
    return entry + RP_MANIFEST_ENTRY_BYTES;
}

/* The caller frees the head; NULL when out of memory. */
static uint8_t *make_head(struct rp_manifest_build *build, uint64_t generation, size_t *bytes_out,
                          struct rp_manifest_built *built)
{
    uint32_t sources = build->options.source_count, segments = 0, s;
    struct texts texts = {0};
    struct rp_fingerprint *members = rp_calloc(sources, sizeof *members);
    uint64_t *texts_at = rp_calloc(sources, sizeof *texts_at), shards = 0;
    for (s = 0; s < sources && texts_at && members; s++) {
        texts_at[s] = texts.count;
        add_texts(build, s, &texts);
        members[s] = build->sources[s].fingerprint;
        segments += segments_of(build, s);
        shards += build->sources[s].shards;
    }
    size_t before = RP_MANIFEST_HEAD_BYTES + RP_MANIFEST_ENTRY_BYTES * ((size_t)sources + segments);
    *bytes_out = (size_t)rp_align_up(before + texts.count, 8);
    uint8_t *head = texts.failed || !texts_at || !members ? NULL : rp_calloc(*bytes_out, 1);
    if (head) {
        built->fingerprint = rp_fingerprint_combine(members, sources);
        rp_store_u64(head, generation);
        rp_store_u32(head + 8, sources);
        rp_store_u32(head + 12, segments);
        rp_store_u64(head + 16, shards);
        rp_store_u64(head + 24, texts.count);
        rp_manifest_store_fingerprint(head + 32, &built->fingerprint);
        uint8_t *entry = head + RP_MANIFEST_HEAD_BYTES;
        for (s = 0; s < sources; s++, entry += RP_MANIFEST_ENTRY_BYTES)
            encode_source(build, s, texts_at[s], entry);
        for (s = 0; s < sources; s++)
            entry = encode_segments(build, s, entry);
        memcpy(head + before, texts.bytes, texts.count);
    }
    free(texts.bytes);
    free(members);
    free(texts_at);
    return head;
}

/* ---- finish ---------------------------------------------------------------------------------- */

static int write_head(struct rp_manifest_build *build, struct rp_manifest_built *built,
                      struct rp_error *error)
{
    const char *path = build->options.path;
    uint64_t generation = build->appends ? build->older->generation + 1 : 1;
    uint64_t offset = build->map_at + build->map_bytes;
    uint8_t slot[RP_MANIFEST_SLOT_BYTES] = {0};
    size_t bytes;
    uint8_t *head = make_head(build, generation, &bytes, built);
    if (!head)
        return fail_memory(build, error);
    built->root = rp_hash128(head, bytes);
    rp_store_u64(slot, generation);
    rp_store_u64(slot + 8, offset);
    rp_store_u64(slot + 16, bytes);
    rp_hash128_store(slot + 32, built->root);
    rp_hash128_store(slot + 48, rp_hash128(slot, 48));
    int code = rp_file_write_at(build->fd, path, head, bytes, offset, error);
    free(head);
    if (code == 0 && !build->appends) {
        uint8_t page[RP_BLOCK_BYTES] = {0};
        rp_store_u64(page, rp_load_u64(RP_MANIFEST_MAGIC));
        rp_store_u32(page + 8, RP_MANIFEST_VERSION);
        rp_store_u32(page + 12, RP_BLOCK_BYTES);
        memcpy(page + RP_MANIFEST_SLOT_AT(generation), slot, sizeof slot);
        code = rp_file_write_at(build->fd, path, page, sizeof page, 0, error);
        return code < 0 ? code : rp_new_file_publish(&build->file, error);
    }
    /* what the slot points to is on the disk before the slot is */
    if (code == 0 && fsync(build->fd) < 0)
        code = fail_errno(build, "cannot be synced", error);
    if (code == 0)
        code = rp_file_write_at(build->fd, path, slot, sizeof slot, RP_MANIFEST_SLOT_AT(generation),
                                error);
    if (code == 0 && fsync(build->fd) < 0)
        code = fail_errno(build, "cannot be synced", error);
    return code;
}

/* The manifest has all that was in it. A file that cannot be removed does no
 * harm; it only takes room. */
static void remove_work(const struct rp_manifest_build *build)
{
    DIR *folder = opendir(build->work);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (strstr(entry->d_name, ".rpx"))
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    (void)rmdir(build->work);
}

static void tell(const struct rp_manifest_build *build, struct rp_manifest_built *built)
{
    memcpy(built->why, build->why, sizeof built->why);
    built->outcome = build->appends ? RP_MANIFEST_APPENDED
                     : build->older ? RP_MANIFEST_REWRITTEN
                                    : RP_MANIFEST_NEW;
    built->shards_added = (uint32_t)build->shard_count;
    for (uint64_t i = 0; i < build->shard_count; i++)
        built->shards_read += build->shards[i].was_read;
    for (uint32_t s = 0; s < build->options.source_count; s++) {
        built->shards += build->sources[s].shards;
        built->documents += build->sources[s].documents;
        built->tokens += build->sources[s].tokens;
        built->bytes += build->sources[s].bytes;
    }
}

int rp_manifest_build_finish(struct rp_manifest_build *build, struct rp_manifest_built *built,
                             struct rp_error *error)
{
    *built = (struct rp_manifest_built){.outcome = RP_MANIFEST_NEW};
    tell(build, built);
    if (build->fd < 0) {
        built->outcome = RP_MANIFEST_UNCHANGED;
        built->root = build->older->root;
        built->fingerprint = build->older->fingerprint;
        return 0;
    }
    int code = 0;
    for (uint32_t s = 0; s < build->options.source_count && code == 0; s++) {
        struct rp_build_source *source = &build->sources[s];
        if (source->count > 0) {
            hash_rest(source);
            source->root = rp_tree_finish(pages_of(source), hashes_of(source));
        }
        code = combine_source(build, s, error);
    }
    if (build->map && msync(build->map, (size_t)build->map_bytes, MS_SYNC) < 0 && code == 0)
        code = fail_errno(build, "cannot be written", error);
    if (code == 0)
        code = write_head(build, built, error);
    if (code == 0)
        remove_work(build);
    return code;
}
