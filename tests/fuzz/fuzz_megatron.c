/* SPDX-License-Identifier: Apache-2.0 */
/* A Megatron index: u32 length of the .bin, then the bytes of the .idx.
 *
 * Accepted index: every document is where its entry says, on a token boundary and inside the .bin,
 * the documents' tokens add up to the shard's, and what is learnt of a document changes no length.
 */
#include "corpus/shard.h"
#include "fuzz.h"

static void check_documents(struct rp_opened *opened)
{
    uint64_t total = 0, width = rp_token_width(opened->shard.type);
    FUZZ_REQUIRE(width > 0);
    for (uint64_t d = 0; d < opened->shard.documents; d++) {
        uint64_t tokens, offset, bytes;
        rp_shard_expect(opened, d);
        rp_shard_expect_extent(opened, d);
        FUZZ_REQUIRE(rp_shard_locate(opened, d, &tokens, &offset) == NULL);
        FUZZ_REQUIRE(rp_shard_length(opened, d) == tokens);
        rp_shard_learn(opened, d);
        FUZZ_REQUIRE(rp_shard_length(opened, d) == tokens);
        FUZZ_REQUIRE(rp_mul_u64(tokens, width, &bytes));
        FUZZ_REQUIRE(rp_range_inside(offset, bytes, opened->shard.bytes));
        FUZZ_REQUIRE(offset % width == 0);
        total += tokens;
    }
    FUZZ_REQUIRE(total == opened->shard.tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    static char token_path[] = "tokens.bin";
    struct rp_opened opened = {
        .shard = {.path = token_path, .bytes = fuzz_number(&input, 4)},
        .found = {.format = RP_FORMAT_MEGATRON, .eos = RP_EOS_NONE, .token_path = token_path},
    };
    char index_path[32];
    snprintf(index_path, sizeof index_path, "%s", fuzz_file("tokens.idx", input.at, input.left));
    opened.found.index_path = index_path;
    if (fuzz_accepted(rp_megatron_open(&opened, &error), &error))
        check_documents(&opened);
    rp_map_close(&opened.megatron.map);
    return 0;
}
