/* SPDX-License-Identifier: Apache-2.0 */
/* A sidecar: u8 (1: the bytes are the file, 0: edits of a good one; 2: hashes made right again),
 * then the bytes. Its token file stays the same.
 *
 * Hashes not mended: accepted if and only if it is the good one, with anything after it. Mended: an
 * accepted one has its segment inside the file, and each document is inside the token file or is
 * named as damaged. */
#include "sidecar_image.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    sidecar_start();
    return 0;
}

static void check_tables(const struct rp_opened *opened)
{
    const struct rp_index_segment *segment = opened->segment;
    FUZZ_REQUIRE(rp_range_inside(segment->offset, rp_index_parts_bytes(&segment->parts),
                                 opened->found.sidecar->map.bytes));
    FUZZ_REQUIRE(opened->shard.documents <= segment->table.image_bytes / 12);
    FUZZ_REQUIRE(opened->shard.block_count <= segment->shape.blocks);
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
        image_mend(image, bytes);
    (void)fuzz_file("t.bin.rpi", image, bytes);
    struct rp_open_options options = {.find.hints = &hints};
    struct rp_error error = {0};
    struct rp_opened opened;
    bool same = bytes >= good_bytes && memcmp(image, good, good_bytes) == 0;
    int code = rp_shard_open(&opened, token_path, 0, &options, &error);
    if (fuzz_accepted_image(code, &error, same, mode)) {
        check_tables(&opened);
        rp_shard_close(&opened);
    }
    return 0;
}
