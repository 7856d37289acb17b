/* SPDX-License-Identifier: Apache-2.0 */
/* A sidecar: u8 (1: the bytes are the file, 0: edits of a good one; 2: hashes made right again),
 * then the bytes. The token file beside it stays the same.
 *
 * Hashes not mended: accepted if and only if it is the good one. Mended: what is accepted has both
 * tables inside the file, and each document lies inside the token file or is named as damaged. */
#include "corpus/fingerprint.h"
#include "corpus/shard.h"
#include "corpus/sidecar_layout.h"
#include "fuzz.h"

#define TOKENS 5000u
#define IMAGE_BYTES_MAX 4096u

static uint8_t good[IMAGE_BYTES_MAX], image[IMAGE_BYTES_MAX];
static size_t good_bytes;
static char token_path[64], sidecar_path[64];
static const struct rp_source_spec hints = {.format = RP_FORMAT_RAW, .type = RP_TOKEN_U16};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    uint16_t tokens[TOKENS];
    for (unsigned i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(i % 97);
    fuzz_enter_scratch();
    snprintf(token_path, sizeof token_path, "%s/t.bin", fuzz_scratch);
    snprintf(sidecar_path, sizeof sidecar_path, "%s/t.bin.rpx", fuzz_scratch);
    fuzz_put(token_path, tokens, sizeof tokens);
    FUZZ_REQUIRE(rp_index_build(token_path, &hints, NULL, NULL, NULL, NULL) == 0);
    FILE *file = fopen(sidecar_path, "rb");
    FUZZ_REQUIRE(file && (good_bytes = fread(good, 1, sizeof good, file)) > 0 && feof(file));
    return fclose(file);
}

static void mend(uint8_t *header, size_t bytes)
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

static void check_tables(const struct rp_opened *opened)
{
    const struct rp_sidecar *sidecar = &opened->found.sidecar;
    uint64_t entries = (sidecar->map.bytes - RP_SIDECAR_HEADER_BYTES) / 8;
    FUZZ_REQUIRE(sidecar->info.block_count + sidecar->info.start_count == entries);
    FUZZ_REQUIRE(opened->shard.documents + 1 == sidecar->info.start_count);
    for (uint64_t d = 0; d < opened->shard.documents; d++) {
        uint64_t tokens, offset;
        if (rp_shard_locate(opened, d, &tokens, &offset) == NULL)
            FUZZ_REQUIRE(rp_range_inside(offset, 2 * tokens, 2 * TOKENS));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned mode = (unsigned)fuzz_number(&input, 1);
    size_t bytes = mode & 1 ? rp_min_u64(input.left, sizeof image) : good_bytes;
    memcpy(image, mode & 1 && bytes ? input.at : good, bytes);
    if (!(mode & 1))
        fuzz_edit(&input, image, bytes);
    if (mode & 2)
        mend(image, bytes);
    fuzz_put(sidecar_path, image, bytes);
    struct rp_open_options options = {.find.hints = &hints};
    struct rp_error error = {0};
    struct rp_opened opened;
    bool accepted = fuzz_accepted(rp_shard_open(&opened, token_path, 0, &options, &error), &error);
    bool same = bytes == good_bytes && memcmp(image, good, bytes) == 0;
    FUZZ_REQUIRE(mode & 2 ? accepted || !same : accepted == same);
    if (accepted) {
        check_tables(&opened);
        rp_shard_close(&opened);
    }
    return 0;
}
