/* SPDX-License-Identifier: Apache-2.0 */
/* A .npy of OLMo with the rows of its documents: u8 (1: the rows are compressed; 2: the format is
 * declared; 4: the dtype is u32, else u16), u8 tokens of the .npy, and the rows.
 *
 * Accepted: the documents are end to end, from the first byte of the file to its last; and they are
 * the same when the table is made again. */
#include "corpus/shard.h"
#include "fuzz.h"

enum { IS_COMPRESSED = 1, DECLARES_FORMAT = 2, IS_WIDE = 4 };

static void check_documents(const struct rp_opened *opened, const struct rp_opened *again)
{
    const struct rp_shard *shard = &opened->shard;
    uint64_t end = 0, width = rp_token_width(shard->type);
    FUZZ_REQUIRE(again->shard.documents == shard->documents);
    for (uint64_t d = 0; d < shard->documents; d++) {
        uint64_t tokens, byte, tokens_again, byte_again;
        FUZZ_REQUIRE(rp_shard_locate(opened, d, &tokens, &byte) == NULL);
        FUZZ_REQUIRE(rp_shard_locate(again, d, &tokens_again, &byte_again) == NULL);
        FUZZ_REQUIRE(tokens == tokens_again && byte == byte_again);
        FUZZ_REQUIRE(byte == end);
        end += tokens * width;
    }
    FUZZ_REQUIRE(end == shard->bytes && shard->tokens * width == end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t tokens[4 * 255];
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    unsigned flags = (unsigned)fuzz_number(&input, 1);
    bool is_compressed = flags & IS_COMPRESSED;
    struct rp_source_spec hints = {.format = flags & DECLARES_FORMAT ? RP_FORMAT_OLMO
                                                                     : RP_FORMAT_AUTO,
                                   .type = flags & IS_WIDE ? RP_TOKEN_U32 : RP_TOKEN_U16,
                                   .eos = RP_EOS_NONE};
    struct rp_open_options options = {.find.hints = &hints, .scan_bytes_max = RP_SCAN_AT_OPEN_MAX};
    size_t bytes = fuzz_number(&input, 1) * rp_token_width(hints.type);
    const char *path = fuzz_file(is_compressed ? "b.npy" : "a.npy", tokens, bytes);
    (void)fuzz_file(is_compressed ? "b.csv.gz" : "a.csv", input.at, input.left);
    struct rp_opened opened, again;
    if (!fuzz_accepted(rp_shard_open(&opened, path, 0, &options, &error), &error))
        return 0;
    FUZZ_REQUIRE(opened.found.format == RP_FORMAT_OLMO);
    FUZZ_REQUIRE(rp_shard_open(&again, path, 0, &options, &error) == 0);
    check_documents(&opened, &again);
    rp_shard_close(&again);
    rp_shard_close(&opened);
    return 0;
}
