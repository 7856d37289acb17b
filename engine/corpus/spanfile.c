/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/spanfile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"

#define MAGIC "\x89RPS\r\n\x1a\n"
#define VERSION 1u
#define BUFFER_BYTES (256u << 10)

enum {
    AT_VERSION = 8,
    AT_RULE = 12,
    AT_NAME = 16,
    AT_DOCUMENTS = 48,
    AT_SPANS = 56,
    AT_CONTENT = 64,
    AT_CHECK = 80,
};

char *rp_spanfile_path(const char *token_path)
{
    size_t stem = rp_text_stem(token_path, ".bin");
    return rp_asprintf("%.*s.spans", (int)stem, token_path);
}

/* ---- writing --------------------------------------------------------------------------------- */

int rp_spanfile_begin(struct rp_spanfile_writer *writer, const char *path,
                      const struct rp_mask_origin *origin, struct rp_error *error)
{
    static const uint8_t no_header[RP_SPANFILE_HEADER_BYTES];
    *writer = (struct rp_spanfile_writer){.file.fd = -1, .origin = *origin};
    rp_hasher_begin(&writer->hasher);
    writer->buffer = malloc(BUFFER_BYTES);
    int code = writer->buffer ? 0 : rp_fail(error, -ENOMEM, NULL, "%s: no memory for spans", path);
    if (code == 0)
        code = rp_new_file_open(&writer->file, path, error);
    return code < 0 ? code
                    : rp_file_write(writer->file.fd, path, no_header, sizeof no_header, error);
}

static int flush(struct rp_spanfile_writer *writer, struct rp_error *error)
{
    rp_hasher_add(&writer->hasher, writer->buffer, writer->buffered);
    int code = rp_file_write(writer->file.fd, writer->file.path, writer->buffer, writer->buffered,
                             error);
    writer->buffered = 0;
    return code;
}

static int put(struct rp_spanfile_writer *writer, const void *data, size_t bytes,
               struct rp_error *error)
{
    int code = 0;
    for (size_t done = 0; code == 0 && done < bytes;) {
        size_t some = (size_t)rp_min_u64(bytes - done, BUFFER_BYTES - writer->buffered);
        memcpy(writer->buffer + writer->buffered, (const uint8_t *)data + done, some);
        writer->buffered += some;
        done += some;
        code = writer->buffered == BUFFER_BYTES ? flush(writer, error) : 0;
    }
    return code;
}

int rp_spanfile_add(struct rp_spanfile_writer *writer, const struct rp_span *spans, uint32_t count,
                    struct rp_error *error)
{
    writer->documents++;
    writer->spans += count;
    int code = put(writer, &count, sizeof count, error); /* little-endian, as the spans */
    return code < 0 ? code : put(writer, spans, count * sizeof *spans, error);
}

int rp_spanfile_finish(struct rp_spanfile_writer *writer, struct rp_error *error)
{
    uint8_t header[RP_SPANFILE_HEADER_BYTES] = MAGIC;
    int code = flush(writer, error);
    rp_store_u32(header + AT_VERSION, VERSION);
    rp_store_u32(header + AT_RULE, rp_mask_rule_bits(&writer->origin.rule));
    memcpy(header + AT_NAME, writer->origin.name, RP_MASK_NAME_BYTES);
    rp_store_u64(header + AT_DOCUMENTS, writer->documents);
    rp_store_u64(header + AT_SPANS, writer->spans);
    rp_hash128_store(header + AT_CONTENT, rp_hasher_finish(&writer->hasher));
    rp_hash128_store(header + AT_CHECK, rp_hash128(header, AT_CHECK));
    return code < 0 ? code
                    : rp_file_write_at(writer->file.fd, writer->file.path, header, sizeof header, 0,
                                       error);
}

void rp_spanfile_discard(struct rp_spanfile_writer *writer)
{
    rp_new_file_discard(&writer->file);
    free(writer->buffer);
    *writer = (struct rp_spanfile_writer){.file.fd = -1};
}

/* ---- reading --------------------------------------------------------------------------------- */

static int damaged(const struct rp_spanfile *file, const char *what, uint64_t expected,
                   uint64_t found, struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT,
                   "convert again: it is the mask of the tokens next to it; or, to train every "
                   "token, remove it",
                   "%s: damaged file of spans: %s: expected %" PRIu64 ", found %" PRIu64,
                   file->path, what, expected, found);
}

static int read_header(struct rp_spanfile *file, struct rp_error *error)
{
    const uint8_t *header;
    if (file->file.file_bytes < RP_SPANFILE_HEADER_BYTES)
        return damaged(file, "bytes, at least", RP_SPANFILE_HEADER_BYTES, file->file.file_bytes,
                       error);
    int code = rp_buffered_view(&file->file, 0, RP_SPANFILE_HEADER_BYTES, &header, error);
    if (code < 0)
        return code;
    struct rp_hash128 found = rp_hash128(header, AT_CHECK),
                      expected = rp_hash128_load(header + AT_CHECK);
    if (memcmp(header, MAGIC, 8) != 0)
        return damaged(file, "magic", rp_load_u64(MAGIC), rp_load_u64(header), error);
    if (rp_load_u32(header + AT_VERSION) != VERSION)
        return damaged(file, "version", VERSION, rp_load_u32(header + AT_VERSION), error);
    if (!rp_hash128_equal(found, expected))
        return damaged(file, "hash of the header", expected.low, found.low, error);
    file->origin.rule = rp_mask_rule_of(rp_load_u32(header + AT_RULE));
    memcpy(file->origin.name, header + AT_NAME, RP_MASK_NAME_BYTES);
    file->documents = rp_load_u64(header + AT_DOCUMENTS);
    file->spans = rp_load_u64(header + AT_SPANS);
    file->content = rp_hash128_load(header + AT_CONTENT);
    file->at = RP_SPANFILE_HEADER_BYTES;
    if (!memchr(file->origin.name, 0, RP_MASK_NAME_BYTES))
        return damaged(file, "bytes of the name, below", RP_MASK_NAME_BYTES, RP_MASK_NAME_BYTES,
                       error);
    return 1;
}

int rp_spanfile_open(struct rp_spanfile *file, const char *path, struct rp_error *error)
{
    *file = (struct rp_spanfile){.file.fd = -1};
    if (access(path, F_OK) < 0 && errno == ENOENT)
        return 0;
    rp_hasher_begin(&file->hasher);
    file->path = strdup(path);
    if (!file->path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    file->file.path = file->path;
    file->file.fd = rp_file_open_read(path, &file->file.file_bytes, error);
    return file->file.fd < 0 ? file->file.fd : read_header(file, error);
}

/* The next bytes of the content. */
static int take(struct rp_spanfile *file, uint64_t bytes, const uint8_t **out,
                struct rp_error *error)
{
    if (!rp_range_inside(file->at, bytes, file->file.file_bytes))
        return damaged(file, "bytes, at least", file->at + bytes, file->file.file_bytes, error);
    int code = rp_buffered_view(&file->file, file->at, bytes, out, error);
    if (code == 0)
        rp_hasher_add(&file->hasher, *out, (size_t)bytes);
    file->at += bytes;
    return code;
}

int rp_spanfile_next(struct rp_spanfile *file, uint64_t tokens, const struct rp_span **spans,
                     uint32_t *count, struct rp_error *error)
{
    const uint8_t *bytes;
    if (file->read == file->documents)
        return damaged(file, "documents, at least", file->read + 1, file->documents, error);
    int code = take(file, 4, &bytes, error);
    if (code < 0)
        return code;
    *count = rp_load_u32(bytes);
    code = take(file, 8 * (uint64_t)*count, &bytes, error);
    if (code < 0)
        return code;
    /* Entries are at multiples of 4, in a buffer that malloc aligned. */
    RP_STATIC_ASSERT(sizeof(struct rp_span) == 8 && RP_SPANFILE_HEADER_BYTES % 4 == 0, "the file");
    *spans = (const struct rp_span *)(const void *)bytes;
    uint64_t previous_end = 0;
    for (uint32_t i = 0; i < *count; i++) {
        const struct rp_span *span = &(*spans)[i];
        if (span->begin <= previous_end || span->begin >= span->end || span->end > tokens)
            return damaged(file, "tokens of a document, at least", span->end, tokens, error);
        previous_end = span->end;
    }
    file->read++;
    file->read_spans += *count;
    return 0;
}

int rp_spanfile_end(struct rp_spanfile *file, struct rp_error *error)
{
    struct rp_hash128 found = rp_hasher_finish(&file->hasher);
    if (file->read != file->documents)
        return damaged(file, "documents", file->read, file->documents, error);
    if (file->read_spans != file->spans)
        return damaged(file, "spans", file->read_spans, file->spans, error);
    if (file->at != file->file.file_bytes)
        return damaged(file, "bytes", file->at, file->file.file_bytes, error);
    return rp_hash128_equal(found, file->content)
               ? 0
               : damaged(file, "hash of the spans", file->content.low, found.low, error);
}

void rp_spanfile_close(struct rp_spanfile *file)
{
    if (file->file.fd >= 0)
        close(file->file.fd);
    rp_buffered_release(&file->file);
    free(file->path);
    *file = (struct rp_spanfile){.file.fd = -1};
}
