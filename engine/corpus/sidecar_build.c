/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar_build.c — the sidecar of one shard (`ringpack index`): all that needs every token, in one
 * pass.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "corpus/staged_shard.h"
#include "corpus/collector.h"
#include "corpus/index/write.h"
#include "corpus/max_token_id.h"
#include "corpus/mask_megatron.h"
#include "corpus/shard.h"
#include "object/url.h"

static int add_blocks(struct rp_collector *collector, const uint8_t *bytes, size_t byte_count,
                      struct rp_error *error)
{
    uint64_t hashes[RP_DOCUMENT_SCAN_BYTES / RP_BLOCK_BYTES];
    size_t blocks = 0;
    for (size_t at = 0; at < byte_count; at += RP_BLOCK_BYTES)
        hashes[blocks++] = rp_hash64(bytes + at,
                                     (size_t)rp_min_u64(RP_BLOCK_BYTES, byte_count - at));
    return rp_collector_add_blocks(collector, hashes, blocks, error);
}

/* A piece of a file whose documents are known. */
static int add_piece(void *context, const uint8_t *bytes, size_t byte_count, const uint64_t *starts,
                     size_t start_count, struct rp_error *error)
{
    (void)starts, (void)start_count;
    return add_blocks(context, bytes, byte_count, error);
}

/* A walk of a reader. If the reader reads every token, the sink gets the largest one; otherwise
 * each document is searched for it. */
struct walking {
    struct rp_collector *collector;
    const struct rp_probe *probe;
    struct rp_sink *sink;
    struct rp_max_token_id largest;
    bool finds_largest;
};

static int add_walked_piece(void *context, const uint8_t *bytes, size_t byte_count,
                            struct rp_error *error)
{
    struct walking *walking = context;
    return add_blocks(walking->collector, bytes, byte_count, error);
}

static int keep(void *context, uint64_t byte, uint32_t tokens, const struct rp_span *spans,
                size_t span_count, struct rp_error *error)
{
    struct walking *walking = context;
    enum rp_token_type type = walking->sink->layout.type;
    int code = 0;
    if (walking->finds_largest && walking->sink->documents == 1)
        code = rp_max_token_id_begin(&walking->largest, walking->probe, type, error);
    if (code == 0 && walking->finds_largest)
        code = rp_max_token_id_add(&walking->largest, byte, tokens, error);
    if (code < 0)
        return code;
    walking->collector->shape.has_spans = walking->sink->layout.has_spans;
    return rp_collector_add_document(walking->collector, byte, tokens, spans, span_count, error);
}

/* The result of a scan. */
struct scanned {
    struct rp_index_record record;
    struct rp_tokenizer_id tokenizer;
    struct rp_collector collector;
};

/* Scan a shard whose format has a reader: a walk gives its documents. */
static int add_documents(struct rp_opened *opened, const struct rp_token_pass *pass,
                         struct scanned *scanned, struct rp_error *error)
{
    const struct rp_probe *probe = pass->probe;
    const struct rp_reader *reader = rp_readers_find(opened->found.format);
    struct rp_reader_options options = rp_found_options(&opened->found);
    struct rp_index_record *record = &scanned->record;
    struct rp_sink sink = {.path = probe->path,
                           .file_bytes = probe->bytes,
                           .keep = keep,
                           .piece = reader->reads_tokens ? add_walked_piece : NULL};
    struct walking walking = {.collector = &scanned->collector,
                              .probe = probe,
                              .sink = &sink,
                              .finds_largest = !reader->reads_tokens};
    sink.context = &walking;
    scanned->collector.shape.has_extents = true;
    if (reader->reads_tokens)
        options.progress = pass->progress;
    int code = reader->walk(probe, &options, &sink, error);
    if (code == 0 && walking.largest.buffer)
        code = rp_max_token_id_finish(&walking.largest, &sink.token_max, error);
    rp_max_token_id_close(&walking.largest);
    if (code == 0 && !reader->reads_tokens)
        code = rp_tokens_read(pass, error);
    record->type = sink.layout.type;
    record->eos = sink.layout.eos;
    record->token_offset = sink.layout.token_offset;
    record->tokens = sink.tokens;
    record->token_max = sink.token_max;
    scanned->collector.shape.has_spans = sink.layout.has_spans;
    memcpy(record->column, sink.layout.column, sizeof record->column);
    record->mask = sink.layout.mask;
    return code < 0 ? code
                    : rp_readers_check_mask(record->format, &opened->found.mask,
                                            sink.layout.has_spans ? &record->mask : NULL,
                                            probe->path, error);
}

/* Scan a Megatron shard: the .idx has its documents, so only the hashes of blocks and the largest
 * id are needed. */
static int add_tokens(struct rp_opened *opened, struct rp_token_pass pass, struct scanned *scanned,
                      struct rp_error *error)
{
    const struct rp_layout layout = {.type = opened->shard.type};
    const struct rp_map *idx = &opened->megatron.map;
    struct rp_index_record *record = &scanned->record;
    struct rp_document_scan scan;
    rp_document_scan_begin(&scan, layout.type, RP_EOS_NONE, false);
    pass.layout = &layout;
    pass.scan = &scan;
    int code = rp_tokens_read(&pass, error);
    record->type = opened->shard.type;
    record->eos = RP_EOS_NONE;
    record->tokens = opened->shard.tokens;
    record->token_max = scan.token_max;
    record->idx_bytes = idx->bytes;
    record->idx_sample = opened->megatron.sample;
    if (code == 0)
        code = rp_map_hash(idx, &record->idx_content, error);
    if (code == 0)
        code = rp_megatron_mask(opened, pass.probe->fd, &scanned->collector, &record->mask, error);
    scanned->collector.shape.documents = opened->shard.documents;
    scanned->collector.shape.has_spans = code == 1;
    return code < 0 ? code : 0;
}

static int scan(struct rp_opened *opened, int fd, const struct rp_progress *progress,
                struct scanned *scanned, struct rp_error *error)
{
    struct rp_probe probe;
    const struct rp_token_pass pass = {
        .probe = &probe, .piece = add_piece, .context = &scanned->collector, .progress = progress};
    int code = rp_shard_probe(opened, fd, &probe, error);
    if (code == 0)
        code = rp_ids_read_tokenizer(&scanned->tokenizer, opened->shard.path, error);
    if (code == 0)
        code = opened->found.format == RP_FORMAT_MEGATRON
                   ? add_tokens(opened, pass, scanned, error)
                   : add_documents(opened, &pass, scanned, error);
    if (code == 0) /* the sidecar will be compared with the hashed bytes */
        code = rp_shard_check(&opened->shard, &opened->shard.stamp, fd, error);
    return code;
}

static int write_sidecar(struct rp_opened *opened, int fd, const char *path,
                         const struct rp_sidecar_build_options *options, struct rp_error *error)
{
    struct scanned scanned = {
        .record = {.format = opened->found.format, .bytes = opened->shard.bytes}};
    struct rp_new_file file;
    int code = options->scratch_path ? rp_new_file_open_scratch(&file, path, error)
                                     : rp_new_file_open(&file, path, error);
    if (code < 0)
        return code;
    rp_collector_begin(&scanned.collector, opened->shard.path, path);
    code = scan(opened, fd, options->progress, &scanned, error);
    if (code == 0)
        code = rp_sidecar_write(&file, &scanned.record, &scanned.tokenizer, &scanned.collector,
                                error);
    rp_collector_discard(&scanned.collector);
    if (code == 0 && !options->unpublished)
        return rp_new_file_publish(&file, error);
    if (code == 0)
        *options->unpublished = file;
    else
        rp_new_file_discard(&file);
    return code;
}

/* `id`: rp_url_id of an object that was fetched to `path`; NULL: it is a file. */
static int build(const char *path, const char *id, const struct rp_sidecar_build_options *options,
                 struct rp_error *error)
{
    const char *index_dir = options->index_dir, *scratch_path = options->scratch_path;
    const struct rp_find_options find = {
        .hints = options->hints, .index_dir = index_dir, .replacing_sidecar = true};
    struct rp_opened opened;
    int fd;
    int code = rp_shard_open_for_index(&opened, path, &find, &fd, error);
    if (code < 0)
        return code;
    char *sidecar_path = scratch_path ? strdup(scratch_path)
                                      : rp_sidecar_path(id ? id : opened.shard.path, index_dir);
    if (!sidecar_path)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    if (code == 0 && index_dir && !scratch_path)
        code = rp_dir_make(index_dir, error);
    if (code == 0)
        code = write_sidecar(&opened, fd, sidecar_path, options, error);
    free(sidecar_path);
    close(fd);
    rp_shard_close(&opened);
    return code;
}

/* Stores are never written to: the sidecar stays on this machine. */
static int build_remote(const char *url, const struct rp_sidecar_build_options *options,
                        struct rp_error *error)
{
    struct rp_staged_shard staged;
    char *name = rp_url_name(url), *id = rp_url_id(url);
    int code = 0;
    if (!name || !id)
        code = rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
    else if (!options->index_dir)
        code = rp_fail(error, -RP_E_USAGE,
                       "name a directory for the sidecar with --index-dir, and in the config with "
                       "`index:`; or index the file on a disk, and copy its " RP_INDEX_SUFFIX
                       " next to it",
                       "%s: ringpack does not write to stores", name);
    if (code == 0)
        code = rp_staged_shard_open(&staged, url, NULL, options->index_dir, options->progress,
                                    error);
    if (code == 0) {
        code = build(staged.path, id, options, error);
        if (code < 0)
            code = rp_fail_context(error, code, "%s", name);
        rp_staged_shard_close(&staged);
    }
    free(name);
    free(id);
    return code;
}

int rp_sidecar_build(const char *path, const struct rp_sidecar_build_options *options,
                     struct rp_error *error)
{
    static const struct rp_sidecar_build_options none;
    options = options ? options : &none;
    return rp_url_is(path) ? build_remote(path, options, error) : build(path, NULL, options, error);
}
