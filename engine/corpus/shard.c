/* SPDX-License-Identifier: Apache-2.0 */
/* shard — opening one shard, whatever its format, and deciding whether it is still the same
 * content.
 *
 * Flow: find out what it is; check the token file; get the index or the table of its documents;
 * check that the sidecar belongs to it; compare sampled blocks with the sidecar; compute the
 * fingerprint. A sidecar that does not match is refused, never ignored: somebody relies on noticing
 * a change. */
#include "corpus/shard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/defect.h"
#include "base/text.h"
#include "corpus/corpus_struct.h"
#include "corpus/spanfile.h"

/* Returns a descriptor, or -1 when the token file is missing and that was allowed, or no file (see
 * *code). */
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
        shard->bytes = opened->found.sidecar.info.bytes;
        return -1;
    }
    int fd = rp_file_open_read(shard->path, &shard->bytes, error);
    *code = fd < 0 ? fd : rp_stamp_settle(fd, &shard->stamp);
    if (fd >= 0 && *code < 0)
        *code = rp_fail(error, *code, NULL, "%s: cannot stat: %s", shard->path, rp_strerror(*code));
    return fd;
}

static int stale(const struct rp_opened *opened, const char *field, const char *expected,
                 const char *found, struct rp_error *error)
{
    char hint[sizeof error->hint];
    snprintf(
        hint, sizeof hint,
        "if the change is meant, run `ringpack index %s` again: old runs cannot be resumed then;"
        " if not, restore the file",
        RP_HINT_PATH(opened->shard.path));
    return rp_fail(error, -RP_E_CHANGED, hint,
                   "%s: it is not what its sidecar %s describes: %s: expected %s, found %s",
                   opened->shard.path, opened->found.sidecar.path, field, expected, found);
}

static int stale_number(const struct rp_opened *opened, const char *field, uint64_t expected,
                        uint64_t found, struct rp_error *error)
{
    char expected_text[24], found_text[24];
    snprintf(expected_text, sizeof expected_text, "%" PRId64, (int64_t)expected); /* eos: -1 */
    snprintf(found_text, sizeof found_text, "%" PRId64, (int64_t)found);
    return stale(opened, field, expected_text, found_text, error);
}

static int stale_hash(const struct rp_opened *opened, const char *field, uint64_t expected,
                      uint64_t found, struct rp_error *error)
{
    char expected_text[24], found_text[24];
    snprintf(expected_text, sizeof expected_text, "%016" PRIx64, expected);
    snprintf(found_text, sizeof found_text, "%016" PRIx64, found);
    return stale(opened, field, expected_text, found_text, error);
}

static bool is_megatron(const struct rp_opened *opened)
{
    return opened->found.format == RP_FORMAT_MEGATRON;
}

/* Of a format that is walked, the sidecar knows what a walk would find. What was declared must
 * agree with it, where the format uses that at all. */
static int check_sidecar(const struct rp_opened *opened, struct rp_error *error)
{
    const struct rp_sidecar_info *info = &opened->found.sidecar.info;
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
            return stale_number(opened, fields[i].field, fields[i].expected, fields[i].found,
                                error);
    const char *column = opened->found.column;
    return !column || !info->column[0] || !strcmp(column, info->column)
               ? 0
               : stale(opened, "column", info->column, column, error);
}

/* The .idx is not in the sidecar, so it may have changed too. */
static int check_index(const struct rp_opened *opened, const struct rp_identity *identity,
                       struct rp_error *error)
{
    const struct rp_sidecar_info *info = &opened->found.sidecar.info;
    if (info->table.documents != identity->documents)
        return stale_number(opened, "documents", info->table.documents, identity->documents, error);
    if (info->index_bytes != identity->index_bytes)
        return stale_number(opened, "bytes of the index", info->index_bytes, identity->index_bytes,
                            error);
    if (!rp_hash128_equal(info->index_sample, identity->index_sample))
        return stale_hash(opened, "hash of the index", info->index_sample.low,
                          identity->index_sample.low, error);
    return 0;
}

static int check_sample(const struct rp_opened *opened, const uint64_t sample[RP_SAMPLE_BLOCKS],
                        struct rp_error *error)
{
    const struct rp_sidecar *sidecar = &opened->found.sidecar;
    for (uint32_t i = 0; i < rp_sample_count(sidecar->info.block_count); i++) {
        uint64_t block = rp_sample_block(i, sidecar->info.block_count);
        if (sample[i] == sidecar->block_hashes[block])
            continue;
        int code = rp_sidecar_check_blocks(sidecar, opened->shard.path, error);
        if (code < 0)
            return code;
        char field[80];
        snprintf(field, sizeof field, "hash of the block at byte %" PRIu64, block * RP_BLOCK_BYTES);
        return stale_hash(opened, field, sidecar->block_hashes[block], sample[i], error);
    }
    return 0;
}

static int take_sample(struct rp_opened *opened, int fd, uint64_t sample[RP_SAMPLE_BLOCKS],
                       struct rp_error *error)
{
    const struct rp_sidecar *sidecar = &opened->found.sidecar;
    if (fd < 0) {
        /* of a file that is gone, nothing else would find a wrong hash */
        int code = opened->found.remote
                       ? 0
                       : rp_sidecar_check_blocks(sidecar, opened->shard.path, error);
        if (code < 0)
            return code;
        for (uint32_t i = 0; i < rp_sample_count(sidecar->info.block_count); i++)
            sample[i] = sidecar->block_hashes[rp_sample_block(i, sidecar->info.block_count)];
        return 0;
    }
    int code = rp_sample_read(fd, opened->shard.path, opened->shard.bytes, sample, error);
    return code == 0 && opened->found.has_sidecar ? check_sample(opened, sample, error) : code;
}

/* Use the spans of the table, if there are any and they are what was declared. */
static int take_mask(struct rp_opened *opened, const struct rp_find_options *options,
                     struct rp_error *error)
{
    bool has_spans = opened->table && opened->table->shape.has_spans;
    const struct rp_mask_origin *origin = opened->found.has_sidecar
                                              ? &opened->found.sidecar.info.mask
                                              : &opened->layout.mask;
    opened->uses_spans = has_spans && !rp_mask_is_none(&opened->found.mask);
    opened->drops_unmasked = opened->uses_spans && options->hints && options->hints->drop_unmasked;
    opened->mask = has_spans ? origin : NULL;
    return rp_readers_check_mask(opened->found.format, &opened->found.mask, opened->mask,
                                 opened->shard.path, error);
}

/* A mask that nobody has indexed would be ignored, and prompts would be trained. */
static int check_indexed_mask(const struct rp_opened *opened, struct rp_error *error)
{
    char hint[sizeof error->hint];
    const struct rp_remote *remote = opened->found.remote;
    if (opened->found.has_sidecar || opened->found.format != RP_FORMAT_MEGATRON ||
        rp_mask_is_none(&opened->found.mask))
        return 0;
    char *path = rp_spanfile_path(opened->shard.path);
    if (!path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", opened->shard.path);
    snprintf(hint, sizeof hint,
             remote ? "run `ringpack index --index-dir DIR %s` and set index_dir: DIR, or set "
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
    struct rp_identity identity = {
        .format = opened->found.format,
        .type = shard->type,
        .eos = opened->found.eos,
        .bytes = shard->bytes,
        .token_offset = opened->layout.token_offset,
        .documents = shard->documents,
        .tokens = shard->tokens,
        .index_bytes = opened->megatron.map.bytes,
        .index_sample = opened->megatron.sample,
        .has_table = opened->table != NULL,
        .sample_count = rp_sample_count(rp_div_up(shard->bytes, RP_BLOCK_BYTES)),
    };
    if (opened->table)
        identity.table_root = opened->table->root;
    if (opened->mask && !opened->uses_spans)
        identity.spans_use = RP_SPANS_UNUSED;
    if (opened->drops_unmasked)
        identity.spans_use = RP_SPANS_DROP_UNMASKED;
    int code = 0;
    if (opened->found.has_sidecar) {
        identity.full = true;
        identity.index_content = opened->found.sidecar.info.index_content;
        identity.content = opened->found.sidecar.info.content;
        code = check_index(opened, &identity, error);
    }
    if (opened->found.remote && !opened->found.has_sidecar) {
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

static void take_layout(struct rp_opened *opened, const struct rp_table *table, uint64_t tokens)
{
    opened->table = table;
    opened->shard.type = opened->layout.type;
    opened->shard.documents = table->shape.documents;
    opened->shard.tokens = tokens;
    opened->found.eos = opened->layout.eos;
    opened->lengths = (const uint8_t *)table->lengths;
    if (!table->page_hashes)
        rp_a64_store_relaxed(&opened->plain, table->shape.documents);
}

static void open_table_of_sidecar(struct rp_opened *opened)
{
    const struct rp_sidecar_info *info = &opened->found.sidecar.info;
    opened->layout = (struct rp_layout){.type = info->type,
                                        .eos = info->eos,
                                        .token_offset = info->token_offset,
                                        .has_spans = info->table.has_spans};
    memcpy(opened->layout.column, info->column, sizeof opened->layout.column);
    take_layout(opened, &opened->found.sidecar.table, info->tokens);
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
    const struct rp_reader *reader = rp_readers_of(opened->found.format);
    struct rp_reader_options declared = rp_found_options(&opened->found);
    struct rp_probe probe;
    uint64_t tokens;
    declared.read_bytes_max = options->scan_bytes_max;
    if (reader->reads_tokens && opened->shard.bytes > options->scan_bytes_max)
        return fail_no_sidecar(opened, error);
    int code = rp_shard_probe(opened, fd, &probe, error);
    if (code == 0)
        code = rp_table_build(&opened->built, &opened->layout, reader, &probe, &declared, &tokens,
                              error);
    if (code == 0)
        take_layout(opened, &opened->built, tokens);
    return code;
}

static int open_found(struct rp_opened *opened, const struct rp_open_options *options,
                      struct rp_error *error)
{
    const struct rp_sidecar *sidecar = &opened->found.sidecar;
    int code, fd = open_tokens(opened, &code, error);
    if (code == 0 && is_megatron(opened))
        code = rp_megatron_open(opened, error);
    if (code == 0 && opened->found.has_sidecar)
        code = check_sidecar(opened, error);
    if (code == 0 && is_megatron(opened))
        opened->table = sidecar->table.shape.has_spans ? &sidecar->table : NULL;
    else if (code == 0 && opened->found.has_sidecar)
        open_table_of_sidecar(opened);
    else if (code == 0 && (code = rp_corpus_gate_pass(options->gate, error)) == 0)
        code = build_table(opened, options, fd, error);
    if (code == 0)
        code = check_indexed_mask(opened, error);
    if (code == 0)
        code = take_mask(opened, &options->find, error);
    if (code == 0)
        code = identify(opened, fd, error);
    if (fd >= 0)
        close(fd);
    opened->shard.block_count = rp_div_up(opened->shard.bytes, RP_BLOCK_BYTES);
    opened->shard.block_hashes = opened->found.has_sidecar ? sidecar->block_hashes : NULL;
    if (opened->found.has_sidecar && rp_ids_know_tokenizer(&sidecar->info.tokenizer))
        opened->shard.tokenizer = &sidecar->info.tokenizer;
    return code;
}

int rp_shard_open(struct rp_opened *opened, const char *path, uint32_t source,
                  const struct rp_open_options *options, struct rp_error *error)
{
    *opened = (struct rp_opened){.shard.source = source};
    int code = rp_find(&opened->found, path, &options->find, error);
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
    int code = rp_find(&opened->found, path, options, error);
    if (code == 0)
        *fd_out = open_tokens(opened, &code, error);
    if (code == 0 && is_megatron(opened))
        code = rp_megatron_open(opened, error);
    if (code < 0) {
        if (*fd_out >= 0)
            close(*fd_out);
        rp_shard_close(opened);
    } else {
        rp_shard_read_through(opened);
    }
    return code;
}

void rp_shard_close(struct rp_opened *opened)
{
    rp_map_close(&opened->megatron.map);
    rp_table_close(&opened->built);
    rp_found_release(&opened->found);
    *opened = (struct rp_opened){0};
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Documents that are checked while the misses of some 64 others are under way: so few that a caller
 * that wants some thousand rows need not wait for them, and many once so many are known that the
 * stream is read from end to end. */
#define LEARN_DOCUMENTS_FEW 1024u
#define LEARN_DOCUMENTS_MANY (1u << 20)

const char *rp_shard_locate(const struct rp_opened *opened, uint64_t document, uint64_t *tokens,
                            uint64_t *byte_offset)
{
    if (is_megatron(opened))
        return rp_megatron_locate(opened, document, tokens, byte_offset);
    return rp_table_locate(opened->table, document, rp_token_width(opened->shard.type),
                           opened->shard.bytes, tokens, byte_offset);
}

const char *rp_shard_spans(const struct rp_opened *opened, const struct rp_part *part,
                           struct rp_span *out, uint32_t *count_out)
{
    RP_ASSERT(opened->uses_spans);
    if (!rp_table_verify_spans(opened->table, part->document))
        return "the page of the sidecar that has its spans differs from its hash";
    return rp_spans_cut(&opened->table->spans, part, out, count_out);
}

int rp_shard_has_span(const struct rp_opened *opened, uint64_t document)
{
    RP_DASSERT(opened->uses_spans);
    if (!rp_table_verify_ends(opened->table, document))
        return -RP_E_CORRUPT;
    return rp_spans_any(&opened->table->spans, document);
}

uint64_t rp_shard_find_length(const struct rp_opened *opened, uint64_t document)
{
    uint64_t tokens, offset;
    if (!is_megatron(opened))
        return rp_table_length(opened->table, document);
    return rp_megatron_locate(opened, document, &tokens, &offset) ? UINT64_MAX : tokens;
}

void rp_shard_expect_extent(const struct rp_opened *opened, uint64_t document)
{
    if (is_megatron(opened))
        rp_megatron_expect_extent(opened, document);
    else
        __builtin_prefetch(&opened->table->bytes[document]);
}

void rp_shard_learn(struct rp_opened *opened, uint64_t document)
{
    if (rp_shard_is_known(opened, document))
        return;
    uint64_t plain = rp_a64_load_relaxed(&opened->plain);
    uint64_t count = plain < LEARN_DOCUMENTS_MANY ? LEARN_DOCUMENTS_FEW : LEARN_DOCUMENTS_MANY;
    if (is_megatron(opened))
        rp_megatron_learn(opened, count);
    else
        rp_a64_store_relaxed(&opened->plain, rp_table_learn(opened->table, plain, count));
}

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
        if (shard->in_manifest && !RP_DEFECT(forget_shard_stamp))
            known->mtime_ns = shard->stamp.mtime_ns;
    }
    if (known->links != found.links && known->mtime_ns == found.mtime_ns) {
        known->links = found.links;
        known->ctime_ns = found.ctime_ns;
    }
    const char *what = rp_stamp_difference(known, &found, &expected_value, &found_value);
    if (!what)
        return was_missing && shard->index_mtime_ns ? rp_megatron_check_time(shard, error) : 0;
    if (was_missing && shard->in_manifest)
        return rp_fail(error, -RP_E_CHANGED,
                       "restore the file, and its times with it (`cp -p`, `rsync -t`); or run "
                       "`ringpack index -c CONFIG`, which reads it again: if its tokens are the "
                       "same, old runs can be resumed",
                       "%s: it is not what the manifest describes: %s: expected %" PRIu64
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
    RP_ASSERT(!shard->in_manifest);
    const struct rp_opened *opened = (const struct rp_opened *)(const void *)shard;
    return opened->uses_spans ? opened->mask : NULL;
}

int rp_shard_check_sidecar(const struct rp_shard *shard, struct rp_error *error)
{
    if (shard->in_manifest)
        return rp_corpus_check_blocks(shard, error);
    const struct rp_opened *opened = (const struct rp_opened *)(const void *)shard;
    RP_STATIC_ASSERT(offsetof(struct rp_opened, shard) == 0,
                     "a shard is the head of what was opened");
    return opened->found.has_sidecar
               ? rp_sidecar_check_blocks(&opened->found.sidecar, shard->path, error)
               : 0;
}
