/* SPDX-License-Identifier: Apache-2.0 */
/* A sidecar: u8 (1: the bytes are the file, 0: edits of a good one; 2: hashes made right again),
 * then the bytes. The token file beside it stays the same.
 *
 * Hashes not mended: accepted if and only if it is the good one. Mended: what is accepted has both
 * tables inside the file, and each document lies inside the token file or is named as damaged. */
#include "sidecar_image.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    sidecar_start();
    return 0;
}

static void check_tables(const struct rp_opened *opened)
{
    const struct rp_sidecar *sidecar = &opened->found.sidecar;
    uint64_t table_bytes = opened->table->image_bytes;
    FUZZ_REQUIRE(RP_SIDECAR_HEADER_BYTES + 8 * sidecar->info.block_count + table_bytes +
                     8 * rp_table_pages(table_bytes) ==
                 sidecar->map.bytes);
    FUZZ_REQUIRE(opened->shard.documents <= table_bytes / 12);
    for (uint64_t d = 0; d < opened->shard.documents; d++) {
        uint64_t tokens, offset;
        if (rp_shard_locate(opened, d, &tokens, &offset) == NULL)
            FUZZ_REQUIRE(rp_range_inside(offset, 2 * tokens, 2 * TOKENS));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned mode;
    size_t bytes = fuzz_image(&input, &mode, image, sizeof image, good, good_bytes);
    if (mode & FUZZ_MENDED)
        mend(image, bytes);
    (void)fuzz_file("t.bin.rpx", image, bytes);
    struct rp_open_options options = {.find.hints = &hints};
    struct rp_error error = {0};
    struct rp_opened opened;
    bool accepted = fuzz_accepted(rp_shard_open(&opened, token_path, 0, &options, &error), &error);
    bool same = bytes == good_bytes && memcmp(image, good, bytes) == 0;
    FUZZ_REQUIRE(mode & FUZZ_MENDED ? accepted || !same : accepted == same);
    if (accepted) {
        check_tables(&opened);
        rp_shard_close(&opened);
    }
    return 0;
}
