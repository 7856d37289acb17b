/* SPDX-License-Identifier: Apache-2.0 */
/* shard — opening one shard, whatever its format, and deciding whether it is still the same
 * content.
 *
 * Flow: find out what it is; look at the token file; read the layout; check that the sidecar
 * belongs to it; get the document table; compare sampled blocks with the sidecar; compute the
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

/* Returns a descriptor, or -1 when the token file is missing and that was allowed (see *code). */
static int open_tokens(struct rp_opened *opened, int *code, struct rp_error *error)
{
    struct rp_shard *shard = &opened->shard;
    *code = 0;
    shard->path = opened->found.token_path;
    if (opened->found.data_missing) {
        shard->bytes = opened->found.sidecar.info.bytes;
        return -1;
    }
    int fd = rp_file_open_read(shard->path, &shard->bytes, error);
    *code = fd < 0 ? fd : rp_stamp_of(fd, &shard->stamp);
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
        opened->shard.path);
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

static int check_sidecar(const struct rp_opened *opened, struct rp_error *error)
{
    const struct rp_sidecar_info *info = &opened->found.sidecar.info;
    const struct {
        const char *field;
        uint64_t expected, found;
    } fields[] = {
        {"format number", info->format, opened->found.format},
        {"token type number", info->type, opened->shard.type},
        {"bytes", info->bytes, opened->shard.bytes},
        {"offset of the first token", info->token_offset, opened->token_offset},
        {"eos", (uint64_t)info->eos, (uint64_t)opened->found.eos},
        {"tokens", info->tokens, opened->shard.tokens},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(fields); i++)
        if (fields[i].expected != fields[i].found)
            return stale_number(opened, fields[i].field, fields[i].expected, fields[i].found,
                                error);
    return 0;
}

/* The .idx is not in the sidecar, so it may have changed too. */
static int check_index(const struct rp_opened *opened, const struct rp_identity *identity,
                       struct rp_error *error)
{
    const struct rp_sidecar_info *info = &opened->found.sidecar.info;
    if (info->documents != identity->documents)
        return stale_number(opened, "documents", info->documents, identity->documents, error);
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
    if (fd < 0) { /* nothing else would find a wrong hash */
        int code = rp_sidecar_check_blocks(sidecar, opened->shard.path, error);
        if (code < 0)
            return code;
        for (uint32_t i = 0; i < rp_sample_count(sidecar->info.block_count); i++)
            sample[i] = sidecar->block_hashes[rp_sample_block(i, sidecar->info.block_count)];
        return 0;
    }
    int code = rp_sample_read(fd, opened->shard.path, opened->shard.bytes, sample, error);
    return code == 0 && opened->found.has_sidecar ? check_sample(opened, sample, error) : code;
}

static int identify(struct rp_opened *opened, int fd, struct rp_error *error)
{
    bool megatron = opened->found.format == RP_FORMAT_MEGATRON;
    const struct rp_shard *shard = &opened->shard;
    struct rp_identity identity = {
        .format = opened->found.format,
        .type = shard->type,
        .eos = opened->found.eos,
        .bytes = shard->bytes,
        .token_offset = opened->token_offset,
        .documents = shard->documents,
        .tokens = shard->tokens,
        .index_bytes = megatron ? opened->megatron.map.bytes : 8 * (shard->documents + 1),
        .sample_count = rp_sample_count(rp_div_up(shard->bytes, RP_BLOCK_BYTES)),
    };
    identity.index_sample = megatron ? opened->megatron.sample
                                     : rp_index_sample(opened->starts, identity.index_bytes);
    int code = 0;
    if (opened->found.has_sidecar) {
        identity.full = true;
        identity.index_content = opened->found.sidecar.info.index_content;
        identity.content = opened->found.sidecar.info.content;
        code = check_index(opened, &identity, error);
    }
    if (code == 0)
        code = take_sample(opened, fd, identity.sample, error);
    opened->fingerprint = rp_identity_fingerprint(&identity);
    return code;
}

static int open_layout(struct rp_opened *opened, int *fd, struct rp_error *error)
{
    int code;
    *fd = open_tokens(opened, &code, error);
    if (code < 0)
        return code;
    return opened->found.format == RP_FORMAT_MEGATRON ? rp_megatron_open(opened, error)
                                                      : rp_raw_layout(opened, *fd, error);
}

static int open_found(struct rp_opened *opened, const struct rp_open_options *options,
                      struct rp_error *error)
{
    int fd;
    int code = open_layout(opened, &fd, error);
    if (code == 0 && opened->found.has_sidecar)
        code = check_sidecar(opened, error);
    if (code == 0 && opened->found.format != RP_FORMAT_MEGATRON)
        code = rp_raw_documents(opened, fd, options->scan_bytes_max, error);
    if (code == 0)
        code = identify(opened, fd, error);
    if (fd >= 0)
        close(fd);
    opened->shard.block_count = rp_div_up(opened->shard.bytes, RP_BLOCK_BYTES);
    opened->shard.block_hashes = opened->found.has_sidecar ? opened->found.sidecar.block_hashes
                                                           : NULL;
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
        code = open_layout(opened, fd_out, error);
    if (code < 0) {
        if (*fd_out >= 0)
            close(*fd_out);
        rp_shard_close(opened);
    }
    return code;
}

void rp_shard_close(struct rp_opened *opened)
{
    rp_map_close(&opened->megatron.map);
    free(opened->starts_scanned);
    rp_found_release(&opened->found);
    *opened = (struct rp_opened){0};
}

const char *rp_shard_locate(const struct rp_opened *opened, uint64_t document, uint64_t *tokens,
                            uint64_t *byte_offset)
{
    if (opened->found.format == RP_FORMAT_MEGATRON)
        return rp_megatron_locate(opened, document, tokens, byte_offset);
    return rp_raw_locate(opened, document, tokens, byte_offset);
}

void rp_shard_expect_extent(const struct rp_opened *opened, uint64_t document)
{
    if (opened->found.format == RP_FORMAT_MEGATRON) /* of another, the length is where it lies */
        rp_megatron_expect_extent(opened, document);
}

void rp_shard_learn(struct rp_opened *opened, uint64_t document)
{
    if (opened->found.format == RP_FORMAT_MEGATRON)
        rp_megatron_learn(opened, document);
}

int rp_shard_check(const struct rp_shard *shard, struct rp_stamp *known, int fd,
                   struct rp_error *error)
{
    struct rp_stamp found;
    uint64_t expected_value, found_value;
    int code = rp_stamp_of(fd, &found);
    if (code < 0)
        return rp_fail(error, code, NULL, "%s: cannot stat: %s", shard->path, rp_strerror(code));
    if (known->ctime_ns == 0) { /* it was missing at open: the size is all that is known */
        *known = found;
        known->bytes = shard->bytes;
    }
    if (known->links != found.links && known->mtime_ns == found.mtime_ns) {
        known->links = found.links;
        known->ctime_ns = found.ctime_ns;
    }
    const char *what = rp_stamp_difference(known, &found, &expected_value, &found_value);
    if (!what)
        return 0;
    return rp_fail(error, -RP_E_CHANGED,
                   "restore the file and restart from a state before the change; with a sidecar "
                   "(`ringpack index`) only changed tokens count, and none is delivered",
                   "%s: changed while it was in use: %s: expected %" PRIu64 ", found %" PRIu64,
                   shard->path, what, expected_value, found_value);
}

int rp_shard_check_sidecar(const struct rp_shard *shard, struct rp_error *error)
{
    const struct rp_opened *opened = (const struct rp_opened *)(const void *)shard;
    RP_STATIC_ASSERT(offsetof(struct rp_opened, shard) == 0,
                     "a shard is the head of what was opened");
    return opened->found.has_sidecar
               ? rp_sidecar_check_blocks(&opened->found.sidecar, shard->path, error)
               : 0;
}
