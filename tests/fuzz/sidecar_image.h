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
    good_bytes = fuzz_get(path, good, sizeof good);
    token_path = fuzz_file("t.bin", tokens, sizeof tokens);
}

FUZZ void mend(uint8_t *header, size_t bytes)
{
    if (bytes < RP_SIDECAR_HEADER_BYTES)
        return;
    uint64_t left = bytes - RP_SIDECAR_HEADER_BYTES;
    uint64_t blocks = rp_min_u64(rp_load_u64(header + AT_BLOCK_COUNT), left / 8);
    uint8_t *table = header + RP_SIDECAR_HEADER_BYTES + 8 * blocks;
    left -= 8 * blocks;
    uint64_t image_bytes = rp_min_u64(rp_load_u64(header + AT_TABLE_BYTES), left);
    uint64_t pages = rp_table_pages(image_bytes), hashes[IMAGE_BYTES_MAX / RP_BLOCK_BYTES + 1];
    struct rp_hash128 content = rp_hash128(header + RP_SIDECAR_HEADER_BYTES, 8 * blocks);
    struct rp_hash128 root = rp_table_hash(table, image_bytes, hashes);
    memcpy(table + image_bytes, hashes, rp_min_u64(8 * pages, left - image_bytes));
    memcpy(header + AT_CONTENT, &content, sizeof content);
    memcpy(header + AT_TABLE_ROOT, &root, sizeof root);
    struct rp_hash128 hash = rp_hash128(header, AT_HEADER_HASH);
    memcpy(header + AT_HEADER_HASH, &hash, sizeof hash);
}

#endif
