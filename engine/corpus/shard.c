/* SPDX-License-Identifier: Apache-2.0 */
/* shard.c — opening one shard, whatever its format, and deciding whether it is still the same
 * content.
 *
 * Flow: find its format; check the token file; get the index or the table of its documents;
 * check that the sidecar belongs to it; compare sampled blocks with the sidecar; compute the
 * fingerprint. A sidecar that does not match is refused, never ignored: its user relies on noticing
 * a change. */
#include "corpus/shard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/text.h"
#include "corpus/spanfile.h"

/* The descriptor of the token file, or negative: *code is then the error, or 0 for an object and
 * for a missing file that may be missing. */
static int open_tokens(struct rp_opened *opened, int *code, struct rp_error *error)
{
    struct rp_shard *shard = &opened->shard;
    *code = 0;
    shard->path = opened->found.token_path;
    if (opened->found.remote) {
        shard->bytes = opened->found.remote->bytes;
        shard->url = opened->found.remote->url;
        shard->identity = opened->found.remote->identity;
        return -1;
    }
    if (opened->found.data_missing) {
        shard->bytes = opened->found.record.bytes;
        return -1;
    }
    int fd = rp_file_open_read(shard->path, &shard->bytes, error);
    *code = fd < 0 ? fd : rp_stamp_settle(fd, &shard->stamp);
    if (fd >= 0 && *code < 0)
        *code = rp_fail(error, *code, NULL, "%s: cannot stat: %s", shard->path, rp_strerror(*code));
    return fd;
}

/* The format and its values name a field, and the expected and found values. */
static int __attribute__((format(printf, 3, 4)))
fail_stale(const struct rp_opened *opened, struct rp_error *error, const char *format, ...)
{
    char hint[sizeof error->hint], text[160];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    snprintf(
        hint, sizeof hint,
        "if the change is meant, run `ringpack index %s` again: old runs cannot be resumed then;"
        " if not, restore the file",
        RP_HINT_PATH(opened->shard.path));
    return rp_fail(error, -RP_E_CHANGED, hint, "%s: it differs from its sidecar %s: %s",
                   opened->shard.path, opened->found.sidecar->path, text);
}

static bool is_megatron(const struct rp_opened *opened)
{
    return opened->found.format == RP_FORMAT_MEGATRON;
}

/* Compare the sidecar with the shard and its declaration. For a walked format, the sidecar has the
 * result of the walk; a declared eos counts only if the format uses one. */
static int check_sidecar(const struct rp_opened *opened, struct rp_error *error)
{
    const struct rp_index_record *info = &opened->found.record;
    bool eos_counts = info->eos != RP_EOS_NONE || is_megatron(opened);
    uint64_t eos = (uint64_t)opened->found.eos;
    const struct {
        const char *field;
        uint64_t expected, found;
    } fields[] = {
        {"format number", info->format, opened->found.format},
        {"token type number", info->type,
         is_megatron(opened) ? opened->shard.type : opened->found.type},
        {"bytes", info->bytes, opened->shard.bytes},
        {"eos", (uint64_t)info->eos, eos_counts ? eos : (uint64_t)info->eos},
        {"tokens", info->tokens, is_megatron(opened) ? opened->shard.tokens : info->tokens},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(fields); i++)
        if (fields[i].expected != fields[i].found)
            return fail_stale(opened, error, "%s: expected %" PRId64 ", found %" PRId64,
                              fields[i].field, (int64_t)fields[i].expected,
                              (int64_t)fields[i].found);
    const char *column = opened->found.column;
    return !column || !info->column[0] || !strcmp(column, info->column)
               ? 0
               : fail_stale(opened, error, "column: expected %s, found %s", info->column, column);
}

/* The .idx is not in the sidecar, so it may have changed too. */
static int check_idx(const struct rp_opened *opened, const struct rp_identity *identity,
                     struct rp_error *error)
{
    const struct rp_index_record *record = &opened->found.record;
    if (record->documents != identity->documents)
        return fail_stale(opened, error, "documents: expected %" PRIu64 ", found %" PRIu64,
                          record->documents, identity->documents);
    if (record->idx_bytes != identity->idx_bytes)
        return fail_stale(opened, error, "bytes of the index: expected %" PRIu64 ", found %" PRIu64,
                          record->idx_bytes, identity->idx_bytes);
    if (!rp_hash128_equal(record->idx_sample, identity->idx_sample))
        return fail_stale(opened, error,
                          "hash of the index: expected %016" PRIx64 ", found %016" PRIx64,
                          record->idx_sample.low, identity->idx_sample.low);
    return 0;
}

static int check_sample(const struct rp_opened *opened, const uint64_t sample[RP_SAMPLE_BLOCKS],
                        struct rp_error *error)
{
    const struct rp_shard *shard = &opened->shard;
    for (uint32_t i = 0; i < rp_sample_count(shard->block_count); i++) {
        uint64_t block = rp_sample_block(i, shard->block_count);
        if (sample[i] == shard->block_hashes[block])
            continue;
        int code = rp_shard_check_sidecar(shard, error);
        return code < 0 ? code
                        : fail_stale(opened, error,
                                     "hash of the block at byte %" PRIu64 ": expected %016" PRIx64
                                     ", found %016" PRIx64,
                                     block * RP_BLOCK_BYTES, shard->block_hashes[block], sample[i]);
    }
    return 0;
}

static int take_sample(struct rp_opened *opened, int fd, uint64_t sample[RP_SAMPLE_BLOCKS],
                       struct rp_error *error)
{
    const struct rp_shard *shard = &opened->shard;
    if (fd < 0) {
        /* for a missing file, no later check would find a wrong hash */
        int code = opened->found.remote ? 0 : rp_shard_check_sidecar(shard, error);
        for (uint32_t i = 0; code == 0 && i < rp_sample_count(shard->block_count); i++)
            sample[i] = shard->block_hashes[rp_sample_block(i, shard->block_count)];
        return code;
    }
    int code = rp_sample_read(fd, shard->path, shard->bytes, sample, error);
    return code == 0 && opened->found.sidecar ? check_sample(opened, sample, error) : code;
}

/* Use the spans of the table, if it has any and they agree with the declaration. */
static int take_mask(struct rp_opened *opened, const struct rp_find_options *options,
                     struct rp_error *error)
{
    bool has_spans = opened->segment->table.shape.has_spans;
    const struct rp_mask_origin *origin = opened->found.sidecar ? &opened->found.record.mask
                                                                : &opened->layout.mask;
    bool is_wanted = !rp_mask_is_none(&opened->found.mask);
    bool drops_untrained = options->hints && options->hints->drop_untrained;
    opened->mask = has_spans ? origin : NULL;
    opened->spans_use = !has_spans        ? RP_SPANS_USED
                        : !is_wanted      ? RP_SPANS_UNUSED
                        : drops_untrained ? RP_SPANS_DROP_UNTRAINED
                                          : RP_SPANS_USED;
    return rp_readers_check_mask(opened->found.format, &opened->found.mask, opened->mask,
                                 opened->shard.path, error);
}

/* Refuse a .spans file without a sidecar: its mask would be ignored, and prompts would be trained.
 */
static int check_indexed_mask(const struct rp_opened *opened, struct rp_error *error)
{
    char hint[sizeof error->hint];
    const struct rp_remote *remote = opened->found.remote;
    if (opened->found.sidecar || opened->found.format != RP_FORMAT_MEGATRON ||
        rp_mask_is_none(&opened->found.mask))
        return 0;
    char *path = rp_spanfile_path(opened->shard.path);
    if (!path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", opened->shard.path);
    snprintf(hint, sizeof hint,
             remote ? "run `ringpack index --index-dir DIR %s` and set index: DIR, or set "
                      "mask: none"
                    : "run `ringpack index %s`, or set mask: none",
             RP_HINT_PATH(opened->shard.path));
    bool is_there = remote ? remote->has_spans : access(path, F_OK) == 0;
    int code = !is_there
                   ? 0
                   : rp_fail(error, -RP_E_FORMAT, hint, "%s: its mask (%s) is not in an index",
                             opened->shard.path, path);
    free(path);
    return code;
}

static int identify(struct rp_opened *opened, int fd, struct rp_error *error)
{
    const struct rp_shard *shard = &opened->shard;
    const struct rp_table *table = &opened->segment->table;
    struct rp_identity identity = {
        .format = opened->found.format,
        .type = shard->type,
        .eos = opened->found.eos,
        .bytes = shard->bytes,
        .token_offset = opened->layout.token_offset,
        .documents = shard->documents,
        .tokens = shard->tokens,
        .idx_bytes = opened->megatron.map.bytes,
        .idx_sample = opened->megatron.sample,
        .has_table = table->shape.has_extents || table->shape.has_spans,
        .sample_count = rp_sample_count(rp_div_up(shard->bytes, RP_BLOCK_BYTES)),
        .spans_use = opened->spans_use,
    };
    if (identity.has_table)
        identity.table_root = opened->found.sidecar ? opened->found.record.table_root
                                                    : rp_table_root(table);
    int code = 0;
    if (opened->found.sidecar) {
        identity.full = true;
        identity.idx_content = opened->found.record.idx_content;
        identity.content = opened->found.record.content;
        code = check_idx(opened, &identity, error);
    }
    if (opened->found.remote && !opened->found.sidecar) {
        identity.sample[0] = rp_hash64(shard->identity, strlen(shard->identity));
        identity.sample_count = 1;
    } else if (code == 0) {
        code = take_sample(opened, fd, identity.sample, error);
    }
    opened->fingerprint = rp_identity_fingerprint(&identity);
    return code;
}

/* ---- opening --------------------------------------------------------------------------------- */

int rp_shard_probe(const struct rp_opened *opened, int fd, struct rp_probe *probe,
                   struct rp_error *error)
{
    *probe = (struct rp_probe){
        .path = opened->shard.path, .fd = fd, .bytes = opened->shard.bytes, .is_declared = true};
    return rp_file_read_at(fd, probe->path, probe->head,
                           (size_t)rp_min_u64(probe->bytes, sizeof probe->head), 0, error);
}

/* The facts that a walk found, or the sidecar has from one. */
static void take_layout(struct rp_opened *opened, uint64_t tokens)
{
    opened->shard.type = opened->layout.type;
    opened->shard.documents = opened->segment->table.shape.documents;
    opened->shard.tokens = tokens;
    opened->found.eos = opened->layout.eos;
}

static void take_sidecar(struct rp_opened *opened)
{
    const struct rp_index_record *record = &opened->found.record;
    opened->layout = (struct rp_layout){.type = record->type,
                                        .eos = record->eos,
                                        .token_offset = record->token_offset,
                                        .has_spans = opened->segment->table.shape.has_spans};
    memcpy(opened->layout.column, record->column, sizeof opened->layout.column);
    take_layout(opened, record->tokens);
}

static int fail_no_sidecar(const struct rp_opened *opened, struct rp_error *error)
{
    char hint[sizeof error->hint], dtype[24] = "", eos[32] = "";
    if (opened->found.type != RP_TOKEN_NONE)
        snprintf(dtype, sizeof dtype, " --dtype %s", rp_token_type_name(opened->found.type));
    if (opened->found.eos != RP_EOS_NONE)
        snprintf(eos, sizeof eos, " --eos %" PRId64, opened->found.eos);
    snprintf(hint, sizeof hint, "run `ringpack index --format %s%s%s %s` once",
             rp_format_name(opened->found.format), dtype, eos, RP_HINT_PATH(opened->shard.path));
    return rp_fail(error, -RP_E_FORMAT, hint,
                   "%s: %" PRIu64
                   " bytes without an index of their documents: expected a sidecar, found none",
                   opened->shard.path, opened->shard.bytes);
}

static int build_table(struct rp_opened *opened, const struct rp_open_options *options, int fd,
                       struct rp_error *error)
{
    const struct rp_reader *reader = rp_readers_find(opened->found.format);
    struct rp_reader_options declared = rp_found_options(&opened->found);
    struct rp_probe probe;
    declared.read_bytes_max = options->scan_bytes_max;
    if (reader->reads_tokens && opened->shard.bytes > options->scan_bytes_max)
        return fail_no_sidecar(opened, error);
    int code = rp_shard_probe(opened, fd, &probe, error);
    if (code < 0)
        return code;
    int64_t tokens = rp_table_build(&opened->own.table, &opened->layout, reader, &probe, &declared,
                                    error);
    if (tokens < 0)
        return (int)tokens;
    opened->own.lengths = (const uint8_t *)opened->own.table.lengths;
    rp_a64_store_relaxed(&opened->own.plain, opened->own.table.shape.documents);
    take_layout(opened, (uint64_t)tokens);
    return 0;
}

static int open_idx(struct rp_opened *opened, struct rp_error *error)
{
    struct rp_megatron *megatron = &opened->megatron;
    uint64_t plain;
    *megatron = (struct rp_megatron){.path = opened->found.index_path,
                                     .token_path = opened->found.token_path,
                                     .token_bytes = opened->shard.bytes};
    int code = rp_megatron_open(megatron, opened->found.type, &plain, error);
    if (code < 0)
        return code;
    opened->segment->megatron = megatron;
    opened->segment->lengths = megatron->lengths;
    rp_a64_store_relaxed(&opened->segment->plain, plain);
    opened->shard.type = megatron->type;
    opened->shard.documents = megatron->documents;
    opened->shard.tokens = megatron->tokens;
    if (megatron->has_modes) {
        size_t used = strlen(opened->found.why);
        snprintf(opened->found.why + used, sizeof opened->found.why - used,
                 "; it has sequence modes (multimodal), which are not used");
    }
    /* An .idx needs no eos, and a declared one must not change the identity. */
    opened->found.eos = RP_EOS_NONE;
    return 0;
}

/* Set the fields that queries of a corpus need, whether the segment is the sidecar's or in memory.
 */
static void complete_segment(struct rp_opened *opened)
{
    struct rp_index_segment *segment = opened->segment;
    segment->opened = opened;
    segment->tokens = opened->shard.tokens;
    segment->shape.shards = 1;
    segment->shape.objects = opened->found.remote != NULL;
    segment->shape.table.documents = opened->shard.documents;
}

static void begin_segment(struct rp_opened *opened)
{
    struct rp_index *sidecar = opened->found.sidecar;
    opened->segment = sidecar ? &sidecar->segments[0] : &opened->own;
    opened->shard.segment = opened->segment;
    opened->shard.block_count = rp_div_up(opened->shard.bytes, RP_BLOCK_BYTES);
    if (!sidecar)
        return;
    opened->shard.block_hashes = rp_index_blocks(opened->segment, &opened->found.record);
    if (rp_ids_know_tokenizer(&sidecar->sources[0].tokenizer))
        opened->shard.tokenizer = &sidecar->sources[0].tokenizer;
}

/* Find the documents of a format without an index of its own: in the sidecar, or by a walk. */
static int find_documents(struct rp_opened *opened, const struct rp_open_options *options, int fd,
                          struct rp_error *error)
{
    if (opened->found.sidecar) {
        take_sidecar(opened);
        return 0;
    }
    int code = rp_corpus_gate_pass(options->gate, error);
    return code < 0 ? code : build_table(opened, options, fd, error);
}

static int open_found(struct rp_opened *opened, const struct rp_open_options *options,
                      struct rp_error *error)
{
    int code, fd = open_tokens(opened, &code, error);
    begin_segment(opened);
    if (code == 0 && is_megatron(opened))
        code = open_idx(opened, error);
    if (code == 0 && opened->found.sidecar)
        code = check_sidecar(opened, error);
    if (code == 0 && !is_megatron(opened))
        code = find_documents(opened, options, fd, error);
    if (code == 0)
        code = check_indexed_mask(opened, error);
    if (code == 0)
        code = take_mask(opened, &options->find, error);
    if (code == 0)
        code = identify(opened, fd, error);
    if (fd >= 0)
        close(fd);
    complete_segment(opened);
    return code;
}

int rp_shard_open(struct rp_opened *opened, const char *path, uint32_t source,
                  const struct rp_open_options *options, struct rp_error *error)
{
    *opened = (struct rp_opened){.shard.source = source};
    int code = rp_find_shard(&opened->found, path, &options->find, error);
    if (code == 0)
        code = open_found(opened, options, error);
    if (code < 0)
        rp_shard_close(opened);
    return code;
}

int rp_shard_open_for_index(struct rp_opened *opened, const char *path,
                            const struct rp_find_options *options, int *fd_out,
                            struct rp_error *error)
{
    *opened = (struct rp_opened){0};
    *fd_out = -1;
    int code = rp_find_shard(&opened->found, path, options, error);
    if (code == 0)
        *fd_out = open_tokens(opened, &code, error);
    begin_segment(opened);
    if (code == 0 && is_megatron(opened))
        code = open_idx(opened, error);
    if (code < 0) {
        if (*fd_out >= 0)
            close(*fd_out);
        rp_shard_close(opened);
    } else {
        rp_megatron_read_through(&opened->megatron);
    }
    return code;
}

void rp_shard_close(struct rp_opened *opened)
{
    rp_megatron_close(&opened->megatron);
    rp_table_close(&opened->own.table);
    rp_found_release(&opened->found);
    *opened = (struct rp_opened){0};
}

/* ---- in use ---------------------------------------------------------------------------------- */

int rp_shard_check(const struct rp_shard *shard, struct rp_stamp *known, int fd,
                   struct rp_error *error)
{
    struct rp_stamp found;
    uint64_t expected_value, found_value;
    bool was_missing = known->ctime_ns == 0;
    int code = was_missing ? rp_stamp_settle(fd, &found) : rp_stamp_of(fd, &found);
    if (code < 0)
        return rp_fail(error, code, NULL, "%s: cannot stat: %s", shard->path, rp_strerror(code));
    if (was_missing) { /* at open: its size is all that is known */
        *known = found;
        known->bytes = shard->bytes;
        if (shard->kind == RP_SHARD_LISTED)
            known->mtime_ns = shard->stamp.mtime_ns;
    }
    if (known->links != found.links && known->mtime_ns == found.mtime_ns) {
        known->links = found.links;
        known->ctime_ns = found.ctime_ns;
    }
    const char *what = rp_stamp_difference(known, &found, &expected_value, &found_value);
    if (!what)
        return was_missing && shard->idx_mtime_ns
                   ? rp_megatron_check_time(shard->path, shard->idx_mtime_ns, error)
                   : 0;
    if (was_missing && shard->kind == RP_SHARD_LISTED)
        return rp_fail(error, -RP_E_CHANGED,
                       "restore the file, and its times with it (`cp -p`, `rsync -t`); or run "
                       "`ringpack index -c CONFIG`, which reads it again: if its tokens are the "
                       "same, old runs can be resumed",
                       "%s: it differs from the corpus index: %s: expected %" PRIu64
                       ", found %" PRIu64,
                       shard->path, what, expected_value, found_value);
    return rp_fail(error, -RP_E_CHANGED,
                   "restore the file and restart from a state before the change; with a sidecar "
                   "(`ringpack index`) only changed tokens count, and none is delivered",
                   "%s: changed while it was in use: %s: expected %" PRIu64 ", found %" PRIu64,
                   shard->path, what, expected_value, found_value);
}

const struct rp_mask_origin *rp_shard_mask(const struct rp_shard *shard)
{
    RP_ASSERT(shard->kind == RP_SHARD_OPENED);
    const struct rp_opened *opened = (const struct rp_opened *)(const void *)shard;
    RP_STATIC_ASSERT(offsetof(struct rp_opened, shard) == 0,
                     "a shard is the head of struct rp_opened");
    return rp_opened_uses_spans(opened) ? opened->mask : NULL;
}

int rp_shard_check_sidecar(const struct rp_shard *shard, struct rp_error *error)
{
    const struct rp_index_segment *segment = shard->segment;
    bool is_good = !shard->block_hashes || shard->kind == RP_SHARD_SIDE ||
                   rp_index_verify_blocks(segment, shard->block_hashes, shard->block_count);
    return is_good ? 0 : rp_index_fail_damaged(segment->index, "block hashes", error);
}
