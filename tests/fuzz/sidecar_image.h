/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar_image.h — a small token file with a good sidecar, and a sidecar in memory whose hashes
 * are made right again after edits. */
#ifndef RP_TESTS_SIDECAR_IMAGE_H
#define RP_TESTS_SIDECAR_IMAGE_H

#include "corpus/fingerprint.h"
#include "corpus/shard.h"
#include "corpus/sidecar_layout.h"
#include "fuzz.h"

#define TOKENS 5000u
#define IMAGE_BYTES_MAX 4096u

static uint8_t good[IMAGE_BYTES_MAX], image[IMAGE_BYTES_MAX];
static size_t good_bytes;
static const char *token_path;
static const struct rp_source_spec hints = {.format = RP_FORMAT_RAW, .type = RP_TOKEN_U16};

FUZZ void sidecar_start(void)
{
    uint16_t tokens[TOKENS];
    char path[64];
    for (unsigned i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(i % 97);
    fuzz_enter_scratch();
    snprintf(path, sizeof path, "%s/t.bin", fuzz_scratch);
    fuzz_put(path, tokens, sizeof tokens);
    FUZZ_REQUIRE(rp_index_build(path, &hints, NULL, NULL, NULL, NULL) == 0);
    snprintf(path, sizeof path, "%s/t.bin.rpx", fuzz_scratch);
    FILE *file = fopen(path, "rb");
    FUZZ_REQUIRE(file && (good_bytes = fread(good, 1, sizeof good, file)) > 0 && feof(file));
    fclose(file);
    token_path = fuzz_file("t.bin", tokens, sizeof tokens);
}

FUZZ void mend(uint8_t *header, size_t bytes)
{
    uint64_t blocks, starts = 0;
    if (bytes < RP_SIDECAR_HEADER_BYTES)
        return;
    uint64_t entries = (bytes - RP_SIDECAR_HEADER_BYTES) / 8;
    blocks = rp_min_u64(rp_load_u64(header + AT_BLOCK_COUNT), entries);
    starts = rp_min_u64(rp_load_u64(header + AT_START_COUNT), entries - blocks);
    const uint8_t *table = header + RP_SIDECAR_HEADER_BYTES, *documents = table + 8 * blocks;
    struct rp_hash128 content = rp_hash128(table, 8 * blocks);
    struct rp_hash128 index_content = rp_hash128(documents, 8 * starts);
    struct rp_hash128 index_sample = rp_index_sample(documents, 8 * starts);
    memcpy(header + AT_CONTENT, &content, sizeof content);
    memcpy(header + AT_INDEX_CONTENT, &index_content, sizeof index_content);
    memcpy(header + AT_INDEX_SAMPLE, &index_sample, sizeof index_sample);
    struct rp_hash128 hash = rp_hash128(header, AT_HEADER_HASH);
    memcpy(header + AT_HEADER_HASH, &hash, sizeof hash);
}

#endif
