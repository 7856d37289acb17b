/* SPDX-License-Identifier: Apache-2.0 */
/* inspect — `ringpack inspect`: what a shard is and what its index says about it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "corpus/document_scan.h"
#include "corpus/shard.h"

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
        inspection->length_min = rp_min_u64(inspection->length_min, tokens);
        inspection->length_max = rp_max_u64(inspection->length_max, tokens);
    }
    if (inspection->length_min > inspection->length_max)
        inspection->length_min = inspection->length_max; /* no good document at all */
}

static int ignore_piece(void *context, const uint8_t *bytes, size_t byte_count,
                        const uint64_t *starts, size_t start_count, struct rp_error *error)
{
    (void)context, (void)bytes, (void)byte_count, (void)starts, (void)start_count, (void)error;
    return 0;
}

static int scan_largest(const struct rp_opened *opened, const struct rp_progress *progress,
                        uint64_t *token_max, struct rp_error *error)
{
    struct rp_document_scan scan;
    rp_document_scan_begin(&scan, opened->shard.type, RP_EOS_NONE, false);
    int fd = rp_file_open_read(opened->shard.path, NULL, error);
    if (fd < 0)
        return fd;
    struct rp_stamp known = opened->shard.stamp;
    const struct rp_layout layout = {.type = opened->shard.type,
                                     .token_offset = opened->layout.token_offset};
    struct rp_probe probe;
    int code = rp_shard_check(&opened->shard, &known, fd, error);
    if (code == 0)
        code = rp_shard_probe(opened, fd, &probe, error);
    if (code == 0)
        code = rp_tokens_read(&probe, &layout, &scan, ignore_piece, NULL, progress, error);
    close(fd);
    *token_max = scan.token_max;
    return code;
}

int rp_inspect(const char *path, const struct rp_source_spec *hints, const char *index_dir,
               bool scan_tokens, void (*progress)(void *context, uint64_t done, uint64_t total),
               void *context, struct rp_inspection *inspection, struct rp_error *error)
{
    const struct rp_open_options options = {
        .find = {.hints = hints, .index_dir = index_dir},
        .scan_bytes_max = scan_tokens ? UINT64_MAX : RP_SCAN_AT_OPEN_MAX,
    };
    const struct rp_progress report = {progress, context};
    struct rp_opened opened;
    int code = rp_shard_open(&opened, path, 0, &options, error);
    if (code < 0)
        return code;
    const struct rp_shard *shard = &opened.shard;
    *inspection = (struct rp_inspection){
        .format = opened.found.format,
        .type = shard->type,
        .eos = opened.found.eos,
        .bytes = shard->bytes,
        .tokens = shard->tokens,
        .documents = shard->documents,
        .token_max = opened.found.has_sidecar ? opened.found.sidecar.info.token_max : UINT64_MAX,
        .has_sidecar = opened.found.has_sidecar,
        .fingerprint = opened.fingerprint,
    };
    memcpy(inspection->why, opened.found.why, sizeof inspection->why);
    memcpy(inspection->column, opened.layout.column, sizeof inspection->column);
    count_lengths(&opened, inspection);
    if (scan_tokens)
        code = scan_largest(&opened, &report, &inspection->token_max, error);
    rp_shard_close(&opened);
    return code;
}
