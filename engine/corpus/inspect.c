/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.c — `ringpack inspect`: the format of a shard and the figures of its index. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "corpus/staged_shard.h"
#include "corpus/max_token_id.h"
#include "corpus/shard.h"
#include "object/url.h"

/* The part of a document whose spans are counted at a time. */
#define PART_TOKENS 4096u

/* The trained tokens of a document; 0 if its spans are damaged. */
static uint64_t count_trained(const struct rp_opened *opened, uint64_t document, uint64_t tokens)
{
    struct rp_span spans[PART_TOKENS / 2 + 1];
    uint64_t trained = 0;
    for (uint64_t at = 0; at < tokens; at += PART_TOKENS) {
        const struct rp_part part = {document, tokens, at,
                                     (uint32_t)rp_min_u64(PART_TOKENS, tokens - at)};
        uint32_t count;
        if (rp_documents_spans(opened->segment, &part, spans, &count))
            return 0;
        for (uint32_t i = 0; i < count; i++)
            trained += spans[i].end - spans[i].begin;
    }
    return trained;
}

static void count_lengths(const struct rp_opened *opened, struct rp_inspection *inspection)
{
    inspection->length_min = UINT64_MAX;
    for (uint64_t d = 0; d < opened->shard.documents; d++) {
        uint64_t tokens, offset;
        if (rp_shard_locate(opened, d, &tokens, &offset)) {
            inspection->damaged_documents++;
            continue;
        }
        unsigned bits = tokens ? 64 - (unsigned)__builtin_clzll(tokens) : 0;
        inspection->length_histogram[bits]++;
        inspection->empty_documents += tokens == 0;
        uint64_t trained = rp_opened_uses_spans(opened) ? count_trained(opened, d, tokens) : tokens;
        inspection->trained_tokens += trained;
        inspection->untrained_documents += tokens > 0 && trained == 0;
        inspection->length_min = rp_min_u64(inspection->length_min, tokens);
        inspection->length_max = rp_max_u64(inspection->length_max, tokens);
    }
    if (inspection->length_min > inspection->length_max)
        inspection->length_min = inspection->length_max; /* no good document at all */
}

/* Damaged documents are counted by count_lengths, and left out here. */
static int scan_documents(const struct rp_opened *opened, const struct rp_probe *probe,
                          const struct rp_progress *progress, uint64_t *token_max,
                          struct rp_error *error)
{
    struct rp_max_token_id largest;
    uint64_t done = 0;
    int code = rp_max_token_id_begin(&largest, probe, opened->shard.type, error);
    for (uint64_t d = 0; code == 0 && d < opened->shard.documents; d++) {
        uint64_t tokens, byte;
        if (rp_shard_locate(opened, d, &tokens, &byte))
            continue;
        code = rp_max_token_id_add(&largest, byte, tokens, error);
        done += tokens;
        if (d % 1024 == 0)
            rp_progress_report(progress, done, opened->shard.tokens);
    }
    if (code == 0)
        return rp_max_token_id_finish(&largest, token_max, error);
    rp_max_token_id_close(&largest);
    return code;
}

/* `path`: the token file, or the staged copy of an object. */
static int scan_file(const struct rp_opened *opened, const char *path,
                     const struct rp_progress *progress, uint64_t *token_max,
                     struct rp_error *error)
{
    int fd = rp_file_open_read(path, NULL, error);
    if (fd < 0)
        return fd;
    struct rp_stamp known = opened->shard.stamp;
    struct rp_probe probe;
    int code = rp_shard_check(&opened->shard, &known, fd, error);
    if (code == 0)
        code = rp_shard_probe(opened, fd, &probe, error);
    if (code == 0)
        code = scan_documents(opened, &probe, progress, token_max, error);
    close(fd);
    return code;
}

static int scan_largest(const struct rp_opened *opened, const char *place,
                        const struct rp_progress *progress, uint64_t *token_max,
                        struct rp_error *error)
{
    if (!opened->found.remote)
        return scan_file(opened, opened->shard.path, progress, token_max, error);
    const char *temporary = getenv("TMPDIR");
    struct rp_staged_shard staged;
    place = place ? place : temporary && *temporary ? temporary : "/tmp";
    int code = rp_staged_shard_open(&staged, opened->shard.url, opened->shard.identity, place,
                                    progress, error);
    if (code < 0)
        return code;
    code = scan_file(opened, staged.path, progress, token_max, error);
    rp_staged_shard_close(&staged);
    return code;
}

int rp_inspect(const char *path, const struct rp_inspect_options *options,
               struct rp_inspection *inspection, struct rp_error *error)
{
    static const struct rp_inspect_options none;
    options = options ? options : &none;
    struct rp_remote *remote = NULL;
    int code = 0;
    if (rp_url_is(path))
        code = rp_remotes_open(&remote, &path, 1, NULL, error);
    if (code < 0)
        return code;
    const struct rp_open_options opening = {
        .find = {.hints = options->hints, .remote = remote, .index_dir = options->index_dir},
        .scan_bytes_max = options->scan_tokens ? UINT64_MAX : RP_SCAN_AT_OPEN_MAX,
    };
    struct rp_opened opened;
    code = rp_shard_open(&opened, path, 0, &opening, error);
    if (code < 0) {
        code = rp_remote_context(remote, code, error);
        rp_remotes_close(remote, 1);
        return code;
    }
    const struct rp_shard *shard = &opened.shard;
    *inspection = (struct rp_inspection){
        .format = opened.found.format,
        .type = shard->type,
        .eos = opened.found.eos,
        .bytes = shard->bytes,
        .tokens = shard->tokens,
        .documents = shard->documents,
        .token_max = opened.found.sidecar ? opened.found.record.token_max : UINT64_MAX,
        .has_sidecar = opened.found.sidecar != NULL,
        .fingerprint = opened.fingerprint,
    };
    memcpy(inspection->why, opened.found.why, sizeof inspection->why);
    memcpy(inspection->column, opened.layout.column, sizeof inspection->column);
    if (shard->tokenizer)
        inspection->tokenizer = *shard->tokenizer;
    if (rp_opened_uses_spans(&opened))
        rp_mask_text(opened.mask, inspection->mask, sizeof inspection->mask);
    count_lengths(&opened, inspection);
    if (options->scan_tokens)
        code = scan_largest(&opened, options->index_dir, options->progress, &inspection->token_max,
                            error);
    rp_shard_close(&opened);
    rp_remotes_close(remote, 1);
    return code;
}
