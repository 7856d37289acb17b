/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/index/write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

/* Pages of a part. */
#define PART_PAGES 1024u
/* Segments up to this many bytes are written from memory, larger ones through a mapping. */
#define MEMORY_BYTES_MAX (1u << 20)

static int fail_errno(const struct rp_index_writer *writer, const char *what,
                      struct rp_error *error)
{
    int number = errno;
    return rp_fail(error, -number, NULL, "%s: %s: %s", writer->path, what, strerror(number));
}

/* ---- segments -------------------------------------------------------------------------------- */

uint64_t rp_index_align(uint64_t offset, uint64_t bytes)
{
    return rp_align_up(offset, bytes > RP_MAP_COPY_BYTES_MAX ? RP_BLOCK_BYTES : 8);
}

/* For few bytes, as most sidecars have, a write is cheaper than a mapping. */
static int take_memory(struct rp_index_writer *writer, uint64_t begin, uint64_t end,
                       struct rp_error *error)
{
    writer->map_at = begin;
    writer->map_bytes = end - begin;
    writer->memory = writer->map = rp_calloc((size_t)writer->map_bytes, 1);
    return writer->map ? 0
                       : rp_fail(error, -ENOMEM, NULL, "%s: no memory to write it", writer->path);
}

int rp_index_map_new(struct rp_index_writer *writer, uint64_t begin, uint64_t end,
                     struct rp_error *error)
{
    if (end - begin <= MEMORY_BYTES_MAX)
        return take_memory(writer, begin, end, error);
    int number = posix_fallocate(writer->fd, (off_t)begin, (off_t)(end - begin));
    if (number != 0)
        return rp_fail(error, -number, "make room, and run the command again: it continues",
                       "%s: no room for %" PRIu64 " bytes: %s", writer->path, end - begin,
                       strerror(number));
    writer->map_at = rp_align_down(begin, RP_BLOCK_BYTES);
    writer->map_bytes = end - writer->map_at;
    void *map = mmap(NULL, (size_t)writer->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                     writer->fd, (off_t)writer->map_at);
    if (map == MAP_FAILED)
        return fail_errno(writer, "cannot be mapped", error);
    writer->map = map;
    return 0;
}

int rp_index_lay_out(struct rp_index_writer *writer, struct rp_index *draft, struct rp_error *error)
{
    uint64_t begin = writer->end ? writer->end : RP_INDEX_HEADER_BYTES, end = begin;
    for (uint32_t g = 0; g < draft->segment_count; g++) {
        struct rp_index_segment *segment = &draft->segments[g];
        if (segment->index)
            continue;
        if (!rp_index_find_parts(&segment->shape, &segment->parts))
            return rp_fail(error, -RP_E_RESOURCE, NULL, "%s: too many documents", writer->path);
        uint64_t bytes = rp_index_parts_bytes(&segment->parts);
        segment->offset = rp_index_align(end, bytes);
        end = segment->offset + bytes;
    }
    draft->end = end;
    if (end == begin)
        return 0;
    int code = rp_index_map_new(writer, begin, end, error);
    for (uint32_t g = 0; code == 0 && g < draft->segment_count; g++) {
        struct rp_index_segment *segment = &draft->segments[g];
        if (!segment->index)
            segment->tree.data = writer->map + (segment->offset - writer->map_at);
    }
    return code;
}

int rp_index_writer_append(struct rp_index_writer *writer, const struct rp_index *index,
                           struct rp_error *error)
{
    *writer = (struct rp_index_writer){.path = index->path,
                                       .fd = open(index->file, O_RDWR | O_CLOEXEC),
                                       .end = rp_align_up(index->end, 8)};
    if (writer->fd < 0)
        return rp_file_fail(error, index->path, "open for writing");
    return ftruncate(writer->fd, (off_t)index->end) < 0
               ? rp_file_fail(error, index->path, "truncate")
               : 0;
}

void rp_index_writer_close(struct rp_index_writer *writer)
{
    if (writer->map && !writer->memory)
        munmap(writer->map, (size_t)writer->map_bytes);
    free(writer->memory);
    writer->map = writer->memory = NULL;
}

void rp_index_put_documents_before(const struct rp_index_segment *segment, uint32_t shard,
                                   uint64_t documents)
{
    rp_store_u64(rp_index_data(segment) + segment->parts.first + 8 * (uint64_t)shard, documents);
}

void rp_index_put_buckets(const struct rp_index_segment *segment)
{
    const uint8_t *first = segment->tree.data + segment->parts.first;
    uint8_t *buckets = rp_index_data(segment) + segment->parts.buckets;
    uint32_t shards = segment->shape.shards, shard = 0;
    for (uint64_t b = 0; b < segment->parts.bucket_count; b++) {
        while (shard + 1 < shards &&
               rp_load_u64(first + 8 * (uint64_t)(shard + 1)) <= b << segment->parts.bucket_shift)
            shard++;
        rp_store_u32(buckets + 4 * b, shard);
    }
}

static uint64_t pages_of(const struct rp_index_segment *segment)
{
    return segment->index ? 0 : rp_div_up(segment->parts.bytes, RP_BLOCK_BYTES);
}

static uint64_t *hashes_of(const struct rp_index_segment *segment)
{
    return (uint64_t *)(void *)(rp_index_data(segment) + segment->parts.bytes);
}

uint64_t rp_index_hash_part_count(const struct rp_index *draft)
{
    uint64_t parts = 0;
    for (uint32_t g = 0; g < draft->segment_count; g++)
        parts += rp_div_up(pages_of(&draft->segments[g]), PART_PAGES);
    return parts;
}

void rp_index_hash_part(const struct rp_index *draft, uint64_t part)
{
    const struct rp_index_segment *segment = draft->segments;
    for (uint64_t own; part >= (own = rp_div_up(pages_of(segment), PART_PAGES)); segment++)
        part -= own;
    uint64_t first = part * PART_PAGES;
    rp_tree_hash_pages(segment->tree.data, segment->parts.bytes, first,
                       rp_min_u64(PART_PAGES, pages_of(segment) - first), hashes_of(segment));
}

/* ---- the head -------------------------------------------------------------------------------- */

static size_t text_bytes(const struct rp_index_source *source)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < source->text_count; i++)
        bytes += strlen(source->texts[i]) + 1;
    return bytes;
}

static uint8_t *put_texts(const struct rp_index_source *source, uint8_t *to)
{
    for (uint32_t i = 0; i < source->text_count; i++) {
        size_t bytes = strlen(source->texts[i]) + 1;
        memcpy(to, source->texts[i], bytes);
        to += bytes;
    }
    return to;
}

/* The caller frees the head; NULL when out of memory. */
static uint8_t *make_head(const struct rp_index *draft, size_t *bytes_out)
{
    size_t entries = (size_t)draft->source_count + draft->segment_count + draft->column_count;
    size_t before = RP_INDEX_HEAD_BYTES + RP_INDEX_ENTRY_BYTES * entries, texts = 0;
    for (uint32_t s = 0; s < draft->source_count; s++)
        texts += text_bytes(&draft->sources[s]);
    *bytes_out = (size_t)rp_align_up(before + texts, 8);
    uint8_t *head = rp_calloc(*bytes_out, 1);
    if (!head)
        return NULL;
    rp_store_u64(head, draft->generation);
    rp_store_u32(head + 8, draft->source_count);
    rp_store_u32(head + 12, draft->segment_count);
    rp_store_u32(head + 16, draft->column_count);
    rp_store_u64(head + 24, draft->shard_count);
    rp_store_u64(head + 32, texts);
    memcpy(head + 40, &draft->fingerprint, sizeof draft->fingerprint);
    uint8_t *entry = head + RP_INDEX_HEAD_BYTES, *text = head + before;
    for (uint32_t s = 0; s < draft->source_count; s++, entry += RP_INDEX_ENTRY_BYTES) {
        rp_index_encode_source(&draft->sources[s], (uint64_t)(text - head) - before, entry);
        text = put_texts(&draft->sources[s], text);
    }
    for (uint32_t g = 0; g < draft->segment_count; g++, entry += RP_INDEX_ENTRY_BYTES)
        rp_index_encode_segment(&draft->segments[g], entry);
    for (uint32_t i = 0; i < draft->column_count; i++, entry += RP_INDEX_ENTRY_BYTES)
        rp_index_encode_column(&draft->columns[i], entry);
    return head;
}

static int write_slot(const struct rp_index_writer *writer, const struct rp_index *draft,
                      uint64_t head_bytes, struct rp_error *error)
{
    uint8_t header[RP_INDEX_HEADER_BYTES] = {0};
    uint8_t *slot = header + RP_INDEX_SLOT_AT(draft->generation);
    rp_store_u64(slot, draft->generation);
    rp_store_u64(slot + 8, draft->end);
    rp_store_u64(slot + 16, head_bytes);
    rp_hash128_store(slot + 32, draft->root);
    rp_hash128_store(slot + 48, rp_hash128(slot, 48));
    if (writer->end)
        return rp_file_write_at(writer->fd, writer->path, slot, RP_INDEX_SLOT_BYTES,
                                RP_INDEX_SLOT_AT(draft->generation), error);
    memcpy(header, RP_INDEX_MAGIC, 8);
    rp_store_u32(header + 8, RP_INDEX_VERSION);
    rp_store_u32(header + 12, RP_BLOCK_BYTES);
    return rp_file_write_at(writer->fd, writer->path, header, sizeof header, 0, error);
}

int rp_index_write_head(struct rp_index_writer *writer, struct rp_index *draft,
                        struct rp_error *error)
{
    size_t bytes;
    for (uint32_t g = 0; g < draft->segment_count; g++) {
        struct rp_index_segment *segment = &draft->segments[g];
        if (!segment->index)
            segment->tree.root = rp_tree_finish(pages_of(segment), hashes_of(segment));
    }
    uint8_t *head = make_head(draft, &bytes);
    if (!head)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory to write it", writer->path);
    draft->root = rp_hash128(head, bytes);
    int code = rp_file_write_at(writer->fd, writer->path, head, bytes, draft->end, error);
    if (code == 0 && writer->memory)
        code = rp_file_write_at(writer->fd, writer->path, writer->memory, (size_t)writer->map_bytes,
                                writer->map_at, error);
    free(head);
    /* the head is on the disk before the slot that points to it */
    if (code == 0 && writer->end && fsync(writer->fd) < 0)
        code = fail_errno(writer, "cannot be synced", error);
    if (code == 0)
        code = write_slot(writer, draft, bytes, error);
    if (code == 0 && writer->end && fsync(writer->fd) < 0)
        code = fail_errno(writer, "cannot be synced", error);
    return code;
}
