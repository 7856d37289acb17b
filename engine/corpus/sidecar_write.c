/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar_write — a sidecar is written as a stream into a file that has no name until it is whole.
 *
 * Flow: begin, add blocks and documents in any interleaving, finish. The block table has its final
 * size from the start, so it and the first section of the document table have their place. Sections
 * after that are spilled to files without a name and copied at the end. The page hashes and the
 * header come last. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "corpus/sidecar.h"
#include "corpus/sidecar_layout.h"

static void begin_section(struct rp_sidecar_section *section, int fd, uint64_t begin)
{
    section->fd = fd;
    section->begin = section->offset = begin;
    section->buffered = 0;
}

int rp_sidecar_begin(struct rp_sidecar_writer *writer, const char *path, uint64_t block_count,
                     struct rp_error *error)
{
    writer->file = (struct rp_new_file){.fd = -1};
    writer->path = strdup(path);
    writer->span_count = 0;
    writer->has_spans = false;
    rp_hasher_begin(&writer->content);
    for (size_t i = 0; i < RP_SIDECAR_SPILLED; i++) {
        writer->spills[i] = (struct rp_new_file){.fd = -1};
        begin_section(&writer->spilled[i], -1, 0);
    }
    int code = 0;
    if (!writer->path)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory to write a sidecar", path);
    if (code == 0)
        code = writer->is_scratch ? rp_new_file_open_scratch(&writer->file, path, error)
                                  : rp_new_file_open(&writer->file, path, error);
    begin_section(&writer->blocks, writer->file.fd, RP_SIDECAR_HEADER_BYTES);
    begin_section(&writer->bytes, writer->file.fd, RP_SIDECAR_HEADER_BYTES + 8 * block_count);
    if (code < 0)
        rp_sidecar_discard(writer);
    return code;
}

static int flush(const struct rp_sidecar_writer *writer, struct rp_sidecar_section *section,
                 struct rp_error *error)
{
    int code = rp_file_write_at(section->fd, writer->path, section->buffer, section->buffered,
                                section->offset, error);
    section->offset += section->buffered;
    section->buffered = 0;
    return code;
}

/* Add to a section that has a file. */
static int add(const struct rp_sidecar_writer *writer, struct rp_sidecar_section *section,
               const void *entries, size_t bytes, struct rp_error *error)
{
    for (const uint8_t *from = entries; bytes > 0;) {
        size_t part = (size_t)rp_min_u64(bytes, sizeof section->buffer - section->buffered);
        memcpy(section->buffer + section->buffered, from, part);
        section->buffered += part;
        from += part;
        bytes -= part;
        if (section->buffered == sizeof section->buffer) {
            int code = flush(writer, section, error);
            if (code < 0)
                return code;
        }
    }
    return 0;
}

/* Add to a section that is spilled: it gets its file when its buffer is full. */
static int spill(struct rp_sidecar_writer *writer, size_t which, const void *entries, size_t bytes,
                 struct rp_error *error)
{
    struct rp_sidecar_section *section = &writer->spilled[which];
    if (section->fd < 0 && section->buffered + bytes >= sizeof section->buffer) {
        int code = rp_new_file_open(&writer->spills[which], writer->path, error);
        if (code < 0)
            return code;
        section->fd = writer->spills[which].fd;
    }
    return add(writer, section, entries, bytes, error);
}

int rp_sidecar_add_blocks(struct rp_sidecar_writer *writer, const uint64_t *hashes, size_t count,
                          struct rp_error *error)
{
    rp_hasher_add(&writer->content, hashes, count * sizeof *hashes);
    return add(writer, &writer->blocks, hashes, count * sizeof *hashes, error);
}

/* Where a section has room left, as nearly always. */
static inline bool put(struct rp_sidecar_section *section, const void *entry, size_t bytes)
{
    if (section->buffered + bytes >= sizeof section->buffer)
        return false;
    memcpy(section->buffer + section->buffered, entry, bytes);
    section->buffered += bytes;
    return true;
}

int rp_sidecar_add_document(struct rp_sidecar_writer *writer, uint64_t byte, uint32_t tokens,
                            const struct rp_span *spans, size_t span_count, struct rp_error *error)
{
    int code = 0;
    if (!put(&writer->bytes, &byte, sizeof byte))
        code = add(writer, &writer->bytes, &byte, sizeof byte, error);
    if (code == 0 && !put(&writer->spilled[RP_SIDECAR_LENGTHS], &tokens, sizeof tokens))
        code = spill(writer, RP_SIDECAR_LENGTHS, &tokens, sizeof tokens, error);
    return code < 0 || !writer->has_spans ? code
                                          : rp_sidecar_add_spans(writer, spans, span_count, error);
}

int rp_sidecar_add_spans(struct rp_sidecar_writer *writer, const struct rp_span *spans,
                         size_t span_count, struct rp_error *error)
{
    writer->span_count += span_count;
    int code = spill(writer, RP_SIDECAR_SPAN_ENDS, &writer->span_count, sizeof writer->span_count,
                     error);
    return code < 0 ? code
                    : spill(writer, RP_SIDECAR_SPANS, spans, span_count * sizeof *spans, error);
}

/* ---- finish ---------------------------------------------------------------------------------- */

/* Append what was spilled to the section of the table that is being written. */
static int append(struct rp_sidecar_writer *writer, size_t which, struct rp_error *error)
{
    struct rp_sidecar_section *from = &writer->spilled[which];
    uint8_t part[8192];
    int code = 0;
    for (uint64_t at = 0; code == 0 && at < from->offset;) {
        size_t bytes = (size_t)rp_min_u64(sizeof part, from->offset - at);
        code = rp_file_read_at(from->fd, writer->path, part, bytes, at, error);
        if (code == 0)
            code = add(writer, &writer->bytes, part, bytes, error);
        at += bytes;
    }
    return code < 0 ? code : add(writer, &writer->bytes, from->buffer, from->buffered, error);
}

/* Write the sections after the first, in the order of table.h. */
static int append_sections(struct rp_sidecar_writer *writer, const struct rp_table_shape *shape,
                           struct rp_error *error)
{
    static const uint8_t zeros[8];
    int code = 0;
    if (shape->has_extents)
        code = append(writer, RP_SIDECAR_LENGTHS, error);
    uint64_t bytes = writer->bytes.offset + writer->bytes.buffered - writer->bytes.begin;
    if (code == 0)
        code = add(writer, &writer->bytes, zeros, (size_t)(rp_align_up(bytes, 8) - bytes), error);
    if (code == 0 && shape->has_spans)
        code = add(writer, &writer->bytes, zeros, sizeof zeros, error); /* before document 0 */
    if (code == 0 && shape->has_spans)
        code = append(writer, RP_SIDECAR_SPAN_ENDS, error);
    if (code == 0 && shape->has_spans)
        code = append(writer, RP_SIDECAR_SPANS, error);
    return code < 0 ? code : flush(writer, &writer->bytes, error);
}

/* Hash the pages of the table that was written, and write their hashes after it. */
static int add_page_hashes(struct rp_sidecar_writer *writer, struct rp_sidecar_info *info,
                           struct rp_error *error)
{
    uint64_t begin = writer->bytes.begin, end = writer->bytes.offset;
    size_t hash_bytes = 8 * (size_t)rp_table_pages(end - begin);
    uint64_t *hashes = malloc(hash_bytes + 8);
    if (!hashes)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for %zu bytes of hashes", writer->path,
                       hash_bytes);
    void *map = mmap(NULL, (size_t)end, PROT_READ, MAP_SHARED, writer->file.fd, 0);
    int code = 0;
    if (map == MAP_FAILED) {
        code = rp_fail(error, -errno, NULL, "%s: cannot map the new sidecar: %s", writer->path,
                       strerror(errno));
    } else {
        info->table_root = rp_table_hash((const uint8_t *)map + begin, end - begin, hashes);
        munmap(map, (size_t)end);
        code = rp_file_write_at(writer->file.fd, writer->path, hashes, hash_bytes, end, error);
    }
    free(hashes);
    return code;
}

static int finish_table(struct rp_sidecar_writer *writer, struct rp_sidecar_info *info,
                        struct rp_error *error)
{
    if (!info->table.has_extents && !info->table.has_spans)
        return 0;
    info->table.span_count = info->table.has_spans ? writer->span_count : 0;
    int code = append_sections(writer, &info->table, error);
    return code < 0 ? code : add_page_hashes(writer, info, error);
}

static void encode(const struct rp_sidecar_info *info, uint8_t header[RP_SIDECAR_HEADER_BYTES])
{
    uint64_t table_bytes;
    bool fits = rp_table_image_bytes(&info->table, &table_bytes);
    RP_ASSERT(fits);
    memset(header, 0, RP_SIDECAR_HEADER_BYTES);
    memcpy(header, RP_SIDECAR_MAGIC, 8);
    rp_store_u32(header + AT_VERSION, rp_ids_know_tokenizer(&info->tokenizer)
                                          ? RP_SIDECAR_VERSION_TOKENIZER
                                          : RP_SIDECAR_VERSION);
    rp_store_u32(header + AT_BLOCK_BYTES, RP_BLOCK_BYTES);
    rp_store_u32(header + AT_FORMAT, (uint32_t)info->format);
    rp_store_u32(header + AT_TYPE, (uint32_t)info->type);
    rp_store_u64(header + AT_EOS, (uint64_t)info->eos);
    rp_store_u64(header + AT_BYTES, info->bytes);
    rp_store_u64(header + AT_TOKEN_OFFSET, info->token_offset);
    rp_store_u64(header + AT_TOKENS, info->tokens);
    rp_store_u64(header + AT_DOCUMENTS, info->table.documents);
    rp_store_u64(header + AT_TOKEN_MAX, info->token_max);
    rp_store_u64(header + AT_BLOCK_COUNT, info->block_count);
    rp_store_u64(header + AT_TABLE_BYTES, table_bytes);
    rp_store_u64(header + AT_INDEX_BYTES, info->index_bytes);
    rp_hash128_store(header + AT_INDEX_SAMPLE, info->index_sample);
    rp_hash128_store(header + AT_INDEX_CONTENT, info->index_content);
    rp_hash128_store(header + AT_CONTENT, info->content);
    rp_store_u32(header + AT_TABLE_SECTIONS,
                 (info->table.has_extents ? 1u : 0u) | (info->table.has_spans ? 2u : 0u));
    rp_store_u64(header + AT_SPAN_COUNT, info->table.span_count);
    rp_hash128_store(header + AT_TABLE_ROOT, info->table_root);
    rp_store_u32(header + AT_MASK_RULE, rp_mask_rule_bits(&info->mask.rule));
    memcpy(header + AT_COLUMN, info->column, sizeof info->column);
    memcpy(header + AT_MASK, info->mask.name, sizeof info->mask.name);
    rp_hash128_store(header + AT_HEADER_HASH, rp_hash128(header, AT_HEADER_HASH));
}

/* After everything else. */
static int write_tokenizer(const struct rp_sidecar_writer *writer,
                           const struct rp_sidecar_info *info, struct rp_error *error)
{
    uint8_t bytes[TOKENIZER_BYTES];
    uint64_t image_bytes;
    bool fits = rp_table_image_bytes(&info->table, &image_bytes);
    RP_ASSERT(fits);
    if (!rp_ids_know_tokenizer(&info->tokenizer))
        return 0;
    memcpy(bytes + TOKENIZER_AT_NAME, info->tokenizer.name, RP_TOKENIZER_NAME_BYTES);
    rp_hash128_store(bytes + TOKENIZER_AT_HASH, info->tokenizer.hash);
    rp_hash128_store(bytes + TOKENIZER_AT_CHECK, rp_hash128(bytes, TOKENIZER_AT_CHECK));
    return rp_file_write_at(writer->file.fd, writer->path, bytes, sizeof bytes,
                            writer->bytes.begin + image_bytes + 8 * rp_table_pages(image_bytes),
                            error);
}

int rp_sidecar_finish(struct rp_sidecar_writer *writer, struct rp_sidecar_info *info,
                      struct rp_error *error)
{
    int code = flush(writer, &writer->blocks, error);
    info->block_count = (writer->blocks.offset - writer->blocks.begin) / 8;
    info->content = rp_hasher_finish(&writer->content);
    if (code == 0)
        code = finish_table(writer, info, error);
    if (code == 0)
        code = write_tokenizer(writer, info, error);
    if (code == 0) {
        uint8_t header[RP_SIDECAR_HEADER_BYTES];
        encode(info, header);
        code = rp_file_write_at(writer->file.fd, writer->path, header, sizeof header, 0, error);
    }
    if (code == 0 && writer->whole) {
        *writer->whole = writer->file;
        writer->file = (struct rp_new_file){.fd = -1};
    } else if (code == 0) {
        code = rp_new_file_publish(&writer->file, error);
    }
    rp_sidecar_discard(writer);
    return code;
}

void rp_sidecar_discard(struct rp_sidecar_writer *writer)
{
    rp_new_file_discard(&writer->file);
    for (size_t i = 0; i < RP_SIDECAR_SPILLED; i++)
        rp_new_file_discard(&writer->spills[i]);
    free(writer->path);
    writer->path = NULL;
}
