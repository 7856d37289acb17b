/* SPDX-License-Identifier: Apache-2.0 */
/* arrow.c — Arrow IPC: the files of save_to_disk and of the caches of Hugging Face datasets, and
 * Feather. Tokens are stored as in a .bin, so uncompressed bodies are read in place.
 *
 * A stream is a sequence of messages: FFFFFFFF (not in versions before 0.15), u32 bytes of
 * metadata, metadata, body. The first is the schema; zero bytes of metadata end it. A file is
 * "ARROW1\0\0", such a sequence, a footer, u32 its bytes, "ARROW1". The footer has the schema and
 * the place of every batch, in order, and decides.
 *
 * Invariants: a message is inside the file, or the file is refused; a stream without an end was
 * cut short, and so was a file without a footer. Memory is taken for metadata only after its size
 * was compared with the rest of the file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "corpus/readers/arrow.h"

#define CONTINUATION 0xffffffffu
#define METADATA_BYTES_MAX (256u << 20)
/* Read at once: enough for the metadata of most batches. */
#define MESSAGE_BYTES_USUAL 4096u
#define FILE_MAGIC "ARROW1"
#define FILE_HEAD_BYTES 8u
#define FILE_TAIL_BYTES 10u /* u32 bytes of the footer, magic */

/* Fields of Message.fbs and File.fbs, by their slots. */
enum { MESSAGE_VERSION = 0, MESSAGE_HEADER_TYPE, MESSAGE_HEADER, MESSAGE_BODY_BYTES };
enum { HEADER_SCHEMA = 1, HEADER_DICTIONARY_BATCH, HEADER_RECORD_BATCH };
enum { FOOTER_SCHEMA = 1, FOOTER_DICTIONARIES, FOOTER_BATCHES };
#define VERSION_4 3u    /* the number of metadata version 4; 5 has the next one */
#define BLOCK_BYTES 24u /* i64 offset, i32 metadata, 4 bytes, i64 body */

struct message {
    struct rp_flat flat;
    unsigned kind;   /* HEADER_… */
    uint64_t header; /* its table */
    uint64_t body, body_bytes;
    uint64_t end; /* begin of the next message */
    bool is_end;  /* it ends the stream, and has no metadata */
};

struct walking {
    const struct rp_probe *probe;
    uint8_t *bytes; /* metadata of a message */
    size_t capacity;
    struct rp_arrow_schema schema;
    struct rp_arrow_window windows[RP_ARROW_WINDOWS];
    struct rp_span_list spans; /* the newest row's */
    uint64_t batches, rows, mask_bytes_left;
};

static int need_bytes(struct walking *walking, uint64_t bytes, struct rp_error *error)
{
    if (bytes <= walking->capacity)
        return 0;
    uint8_t *grown = bytes <= METADATA_BYTES_MAX ? realloc(walking->bytes, (size_t)bytes) : NULL;
    if (!grown)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for %" PRIu64 " bytes of metadata",
                       walking->probe->path, bytes);
    walking->bytes = grown;
    walking->capacity = (size_t)bytes;
    return 0;
}

/* Read the rest of the message at `at`: `prefix` bytes, which end with the size of the metadata,
 * and the metadata. The first `have` bytes are there. */
static int read_metadata(struct walking *walking, uint64_t at, uint64_t bytes, uint64_t have,
                         uint64_t prefix, struct rp_error *error)
{
    const struct rp_probe *probe = walking->probe;
    if (prefix + bytes <= have)
        return 0;
    int code = need_bytes(walking, prefix + bytes, error);
    return code < 0 ? code
                    : rp_file_read_at(probe->fd, probe->path, walking->bytes + have,
                                      (size_t)(prefix + bytes - have), at + have, error);
}

static int parse_message(struct walking *walking, struct message *message, struct rp_error *error)
{
    struct rp_flat *flat = &message->flat;
    uint64_t root = rp_flat_root(flat);
    uint64_t version = rp_flat_value(flat, root, MESSAGE_VERSION, 2);
    message->kind = (unsigned)rp_flat_value(flat, root, MESSAGE_HEADER_TYPE, 1);
    message->header = rp_flat_table(flat, root, MESSAGE_HEADER);
    message->body_bytes = rp_flat_value(flat, root, MESSAGE_BODY_BYTES, 8);
    if (flat->is_damaged || message->header == 0 ||
        !rp_range_inside(message->body, message->body_bytes, walking->probe->bytes))
        return rp_arrow_damaged(walking->probe, "the message at byte", message->body - flat->count,
                                error);
    if (version != VERSION_4 && version != VERSION_4 + 1)
        return rp_fail(error, -RP_E_VERSION, "write the file again with a version of this decade",
                       "%s: Arrow metadata version: expected 4 or 5, found %" PRIu64,
                       walking->probe->path, version + 1);
    message->end = message->body + message->body_bytes;
    return 0;
}

/* Read the message at `at`, which is below `limit`. */
static int read_message(struct walking *walking, uint64_t at, uint64_t limit,
                        struct message *message, struct rp_error *error)
{
    const struct rp_probe *probe = walking->probe;
    uint64_t have = rp_min_u64(MESSAGE_BYTES_USUAL, limit - at), prefix = 4;
    *message = (struct message){0};
    int code = need_bytes(walking, MESSAGE_BYTES_USUAL, error);
    if (code == 0)
        code = rp_file_read_at(probe->fd, probe->path, walking->bytes, (size_t)have, at, error);
    if (code < 0)
        return code;
    if (have >= 8 && rp_load_u32(walking->bytes) == CONTINUATION)
        prefix = 8;
    if (have < prefix)
        return rp_arrow_damaged(probe, "the message at byte", at, error);
    uint64_t bytes = rp_load_u32(walking->bytes + prefix - 4);
    message->is_end = bytes == 0;
    message->end = at + prefix;
    if (message->is_end)
        return 0;
    if (bytes > METADATA_BYTES_MAX || !rp_range_inside(prefix, bytes, limit - at))
        return rp_arrow_damaged(probe, "the message at byte", at, error);
    code = read_metadata(walking, at, bytes, have, prefix, error);
    if (code < 0)
        return code;
    message->flat = (struct rp_flat){.bytes = walking->bytes + prefix, .count = bytes};
    message->body = at + prefix + bytes;
    return parse_message(walking, message, error);
}

static int read_schema(struct walking *walking, struct rp_flat *flat, uint64_t table,
                       const struct rp_reader_options *options, struct rp_sink *sink,
                       struct rp_error *error)
{
    int code = rp_arrow_read_schema(flat, table, walking->probe, options, &walking->schema, error);
    if (code < 0)
        return code;
    struct rp_layout layout = {.type = walking->schema.ids.type,
                               .eos = RP_EOS_NONE,
                               .has_spans = walking->schema.has_trained,
                               .mask = walking->schema.origin};
    memcpy(layout.column, walking->schema.name, sizeof layout.column);
    return rp_sink_begin(sink, &layout, options, error);
}

static int emit_batch(struct walking *walking, struct message *message, struct rp_sink *sink,
                      struct rp_error *error)
{
    struct rp_arrow_batch batch = {.schema = &walking->schema,
                                   .flat = &message->flat,
                                   .table = message->header,
                                   .body = message->body,
                                   .body_bytes = message->body_bytes,
                                   .number = walking->batches++,
                                   .first_row = walking->rows,
                                   .windows = walking->windows,
                                   .spans = &walking->spans,
                                   .mask_bytes_left = &walking->mask_bytes_left};
    uint64_t rows;
    int code = rp_arrow_emit_batch(&batch, sink, &rows, error);
    walking->rows += code < 0 ? 0 : rows;
    return code;
}

/* ---- streams --------------------------------------------------------------------------------- */

static int fail_cut(const struct rp_probe *probe, const char *what, struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                   "%s: %s: the file was cut short, or is still being written", probe->path, what);
}

static int walk_stream(struct walking *walking, const struct rp_reader_options *options,
                       struct rp_sink *sink, struct rp_error *error)
{
    const struct rp_probe *probe = walking->probe;
    struct message message;
    int code = read_message(walking, 0, probe->bytes, &message, error);
    if (code == 0 && (message.is_end || message.kind != HEADER_SCHEMA))
        code = rp_arrow_damaged(probe, "the message at byte", 0, error);
    if (code == 0)
        code = read_schema(walking, &message.flat, message.header, options, sink, error);
    while (code == 0) {
        if (message.end == probe->bytes)
            return fail_cut(probe, "expected the end of an Arrow stream, found none", error);
        code = read_message(walking, message.end, probe->bytes, &message, error);
        if (code < 0 || message.is_end)
            break;
        if (message.kind == HEADER_RECORD_BATCH)
            code = emit_batch(walking, &message, sink, error);
        else if (message.kind != HEADER_DICTIONARY_BATCH)
            code = rp_arrow_damaged(probe, "the message at byte", message.body, error);
    }
    if (code == 0 && message.end != probe->bytes)
        return rp_fail(error, -RP_E_FORMAT, "if it is several files in one, keep them apart",
                       "%s: %" PRIu64 " bytes after the end of an Arrow stream", probe->path,
                       probe->bytes - message.end);
    return code;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int emit_block(struct walking *walking, struct rp_flat *footer, uint64_t block,
                      uint64_t limit, struct rp_sink *sink, struct rp_error *error)
{
    const struct rp_probe *probe = walking->probe;
    uint64_t at = rp_flat_number(footer, block, 8);
    uint64_t metadata = rp_flat_number(footer, block + 8, 4);
    uint64_t body = rp_flat_number(footer, block + 16, 8);
    struct message message;
    if (at < FILE_HEAD_BYTES || at >= limit)
        return rp_arrow_damaged(probe, "record batch", walking->batches, error);
    int code = read_message(walking, at, limit, &message, error);
    if (code < 0)
        return code;
    if (message.is_end || message.kind != HEADER_RECORD_BATCH || message.body != at + metadata ||
        message.body_bytes != body)
        return rp_arrow_damaged(probe, "record batch", walking->batches, error);
    return emit_batch(walking, &message, sink, error);
}

/* Walk the batches that a footer lists. Messages are read into another buffer than the footer's. */
static int walk_footer(struct walking *walking, struct rp_flat *footer, uint64_t limit,
                       const struct rp_reader_options *options, struct rp_sink *sink,
                       struct rp_error *error)
{
    uint64_t root = rp_flat_root(footer);
    uint64_t schema = rp_flat_table(footer, root, FOOTER_SCHEMA);
    struct rp_flat_vector blocks = rp_flat_vector(footer, root, FOOTER_BATCHES, BLOCK_BYTES);
    if (footer->is_damaged || schema == 0)
        return rp_arrow_damaged(walking->probe, "the footer at byte", limit, error);
    int code = read_schema(walking, footer, schema, options, sink, error);
    for (uint32_t i = 0; code == 0 && i < blocks.count; i++)
        code = emit_block(walking, footer, blocks.at + BLOCK_BYTES * (uint64_t)i, limit, sink,
                          error);
    return code;
}

static int walk_file(struct walking *walking, const struct rp_reader_options *options,
                     struct rp_sink *sink, struct rp_error *error)
{
    const struct rp_probe *probe = walking->probe;
    uint8_t tail[FILE_TAIL_BYTES];
    if (probe->bytes < FILE_HEAD_BYTES + FILE_TAIL_BYTES)
        return fail_cut(probe, "expected the footer of an Arrow file, found none", error);
    int code = rp_file_read_at(probe->fd, probe->path, tail, sizeof tail,
                               probe->bytes - FILE_TAIL_BYTES, error);
    if (code < 0)
        return code;
    uint64_t bytes = rp_load_u32(tail), room = probe->bytes - FILE_HEAD_BYTES - FILE_TAIL_BYTES;
    if (memcmp(tail + 4, FILE_MAGIC, 6))
        return fail_cut(probe, "expected the footer of an Arrow file, found none", error);
    if (bytes == 0 || bytes > room || bytes > METADATA_BYTES_MAX)
        return rp_arrow_damaged(probe, "the footer at byte", probe->bytes - FILE_TAIL_BYTES, error);
    uint64_t first = probe->bytes - FILE_TAIL_BYTES - bytes;
    uint8_t *copy = malloc((size_t)bytes);
    if (!copy)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its footer", probe->path);
    code = rp_file_read_at(probe->fd, probe->path, copy, (size_t)bytes, first, error);
    struct rp_flat footer = {.bytes = copy, .count = bytes};
    if (code == 0)
        code = walk_footer(walking, &footer, first, options, sink, error);
    free(copy);
    return code;
}

/* ---- the reader ------------------------------------------------------------------------------ */

static bool is_file(const struct rp_probe *probe)
{
    return !memcmp(probe->head, FILE_MAGIC, sizeof FILE_MAGIC - 1);
}

static int walk(const struct rp_probe *probe, const struct rp_reader_options *options,
                struct rp_sink *sink, struct rp_error *error)
{
    struct walking *walking = rp_calloc(1, sizeof *walking);
    uint8_t *windows = malloc(RP_ARROW_WINDOWS * RP_ARROW_WINDOW_BYTES);
    int code = walking && windows
                   ? 0
                   : rp_fail(error, -ENOMEM, NULL, "%s: no memory to read it", probe->path);
    if (code == 0) {
        walking->probe = probe;
        walking->mask_bytes_left = options->read_bytes_max;
        for (size_t i = 0; i < RP_ARROW_WINDOWS; i++)
            walking->windows[i] = (struct rp_arrow_window){
                .probe = probe, .bytes = windows + i * RP_ARROW_WINDOW_BYTES};
        code = is_file(probe) ? walk_file(walking, options, sink, error)
                              : walk_stream(walking, options, sink, error);
        for (size_t i = 0; i < RP_ARROW_WINDOWS; i++)
            free(walking->windows[i].row);
        rp_span_list_release(&walking->spans);
        free(walking->bytes);
    }
    free(windows);
    free(walking);
    return code;
}

/* A stream begins with FFFFFFFF, as raw tokens may, and an old one without it: a file is a stream
 * if its first message is a schema. */
static int claim(const struct rp_probe *probe, char why[256], struct rp_error *error)
{
    struct walking walking = {.probe = probe};
    struct message message;
    struct rp_error ignored;
    (void)error;
    snprintf(why, 256, "it begins with the magic of an Arrow IPC file");
    if (probe->is_declared || is_file(probe))
        return 1;
    uint32_t first = rp_load_u32(probe->head);
    if (probe->bytes < 16 || (first != CONTINUATION && first >= probe->bytes))
        return 0;
    int code = read_message(&walking, 0, probe->bytes, &message, &ignored);
    free(walking.bytes);
    snprintf(why, 256, "it begins with the schema of an Arrow IPC stream");
    return code == 0 && !message.is_end && message.kind == HEADER_SCHEMA;
}

const struct rp_reader rp_reader_arrow = {
    .format = RP_FORMAT_ARROW,
    .title = "an Arrow IPC stream or file",
    .folders = "state.json with *.arrow (datasets)",
    .claim = claim,
    .expand = rp_arrow_expand,
    .walk = walk,
};
