/* SPDX-License-Identifier: Apache-2.0 */
/* A Megatron index: u32 length of the .bin, then the bytes of the .idx.
 *
 * Accepted index: every document is where its entry says, on a token boundary and inside the .bin,
 * the documents' tokens add up to the shard's, and a check ahead of documents changes no length.
 */
#include "corpus/shard.h"
#include "fuzz.h"

static void check_documents(struct rp_opened *opened)
{
    struct rp_index_segment *segment = opened->segment;
    uint64_t total = 0, width = rp_token_width(opened->shard.type);
    FUZZ_REQUIRE(width > 0);
    for (uint64_t d = 0; d < opened->shard.documents; d++) {
        uint64_t tokens, offset, bytes;
        rp_documents_prefetch(segment, d);
        rp_documents_prefetch_extent(segment, d);
        FUZZ_REQUIRE(rp_shard_locate(opened, d, &tokens, &offset) == NULL);
        FUZZ_REQUIRE(rp_documents_length(segment, d) == tokens);
        rp_documents_check_ahead(segment, d);
        FUZZ_REQUIRE(rp_documents_length(segment, d) == tokens);
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
    struct rp_opened opened = {.shard = {.bytes = fuzz_number(&input, 4)}, .segment = &opened.own};
    struct rp_megatron *megatron = &opened.megatron;
    char index_path[32];
    uint64_t plain;
    snprintf(index_path, sizeof index_path, "%s", fuzz_file("tokens.idx", input.at, input.left));
    *megatron = (struct rp_megatron){
        .path = index_path, .token_path = "tokens.bin", .token_bytes = opened.shard.bytes};
    int code = rp_megatron_open(megatron, RP_TOKEN_NONE, &plain, &error);
    if (fuzz_accepted(code, &error)) {
        opened.own.megatron = megatron;
        opened.own.lengths = megatron->lengths;
        rp_a64_store_relaxed(&opened.own.plain, plain);
        opened.shard.type = megatron->type;
        opened.shard.documents = megatron->documents;
        opened.shard.tokens = megatron->tokens;
        check_documents(&opened);
    }
    rp_megatron_close(megatron);
    return 0;
}
