/* SPDX-License-Identifier: Apache-2.0 */
/* A file of a side column: u8 (1: the bytes are the file, 0: edits of a good one; 2: hashes made
 * right again), then the bytes. It is opened and all of its blocks are compared.
 *
 * Hashes not mended: accepted if and only if it is the good one. Mended: an accepted file has all
 * of the entries that it says, of a type that a column may have, and the hashes after them. */
#include "corpus/side_file.h"
#include "base/dtype.h"
#include "fuzz.h"

#define ENTRIES 700u
#define IMAGE_BYTES_MAX 24576u
#define BLOCK_AND_HASH (RP_BLOCK_BYTES + 8u)
#define AT_CONTENT 40u
#define AT_CHECK (RP_BLOCK_BYTES - 16u)

static uint8_t good[IMAGE_BYTES_MAX], image[IMAGE_BYTES_MAX];
static size_t good_bytes;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    char path[64];
    struct rp_side_writer writer;
    const struct rp_side_type type = {RP_DTYPE_F32, 2, 8};
    fuzz_enter_scratch();
    snprintf(path, sizeof path, "%s/good.col", fuzz_scratch);
    FUZZ_REQUIRE(rp_sidefile_begin(&writer, path, &type, NULL) == 0);
    for (uint64_t i = 0; i < ENTRIES; i++)
        FUZZ_REQUIRE(rp_sidefile_add(&writer, &i, sizeof i, NULL) == 0);
    FUZZ_REQUIRE(rp_sidefile_finish(&writer, NULL) == 0);
    rp_sidefile_discard(&writer);
    good_bytes = fuzz_get(path, good, sizeof good);
    return 0;
}

static void mend(uint8_t *bytes, size_t count)
{
    size_t blocks = count / BLOCK_AND_HASH;
    if (blocks == 0)
        return;
    uint8_t *hashes = bytes + blocks * RP_BLOCK_BYTES;
    memset(hashes, 0, 8);
    for (size_t b = 1; b < blocks; b++) {
        uint64_t hash = rp_hash64(bytes + b * RP_BLOCK_BYTES, RP_BLOCK_BYTES);
        memcpy(hashes + 8 * b, &hash, sizeof hash);
    }
    rp_hash128_store(bytes + AT_CONTENT, rp_hash128(hashes, 8 * blocks));
    rp_hash128_store(bytes + AT_CHECK, rp_hash128(bytes, AT_CHECK));
}

static void check(const struct rp_side_file *file, size_t bytes)
{
    const struct rp_side_type *type = &file->type;
    uint64_t data = file->entries * type->bytes, blocks = file->shard.block_count;
    FUZZ_REQUIRE(type->count > 0 && type->bytes == type->count * rp_dtype_bytes(type->dtype));
    FUZZ_REQUIRE(type->bytes > 0 && type->bytes <= RP_SIDE_ENTRY_BYTES);
    FUZZ_REQUIRE(file->map.bytes == bytes);
    FUZZ_REQUIRE(file->shard.bytes == blocks * RP_BLOCK_BYTES &&
                 data / type->bytes == file->entries);
    FUZZ_REQUIRE(data <= file->shard.bytes - RP_SIDE_DATA_OFFSET);
    FUZZ_REQUIRE(data + RP_BLOCK_BYTES > file->shard.bytes - RP_SIDE_DATA_OFFSET);
    FUZZ_REQUIRE(memchr(file->tokenizer.name, 0, sizeof file->tokenizer.name));
    FUZZ_REQUIRE(file->shard.kind == RP_SHARD_SIDE && file->shard.path == file->path &&
                 !file->shard.url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned mode;
    size_t bytes = fuzz_image(&input, &mode, image, sizeof image, good, good_bytes);
    if (mode & FUZZ_MENDED)
        mend(image, bytes);
    struct rp_side_file file;
    struct rp_error error = {0};
    fuzz_file("m.weight.col", image, bytes);
    int code = rp_sidefile_open(&file, FUZZ_FOLDER "/m.bin", "weight", &error);
    FUZZ_REQUIRE(code < 0 || bytes == file.shard.block_count * BLOCK_AND_HASH); /* it is read */
    if (code == 0)
        code = rp_sidefile_verify(&file, &error);
    bool same = bytes == good_bytes && memcmp(image, good, bytes) == 0;
    if (fuzz_accepted_image(code, &error, same, mode))
        check(&file, bytes);
    rp_sidefile_close(&file);
    return 0;
}
