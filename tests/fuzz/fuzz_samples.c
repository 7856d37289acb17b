/* SPDX-License-Identifier: Apache-2.0 */
/* A shard of MDS or a chunk of litData: u8 (1: litData; 2: the format is declared; 4: the dtype u16
 * is; 8: the column `b` is), in litData u16 bytes of the index.json and these, the file.
 *
 * Accepted: the offsets in the file ascend to its last byte; every document is in its sample, and
 * fills it in litData; the tokens add up; and the documents are the same when the table is made
 * again. */
#include "corpus/shard.h"
#include "fuzz.h"

enum { IS_LITDATA = 1, DECLARES_FORMAT = 2, DECLARES_TYPE = 4, DECLARES_COLUMN = 8 };

static void check_documents(const struct rp_opened *opened, const struct rp_opened *again,
                            const uint8_t *file)
{
    const struct rp_shard *shard = &opened->shard;
    uint64_t width = rp_token_width(shard->type), end = rp_load_u32(file + 4), total = 0;
    FUZZ_REQUIRE(width > 0 && again->shard.documents == shard->documents);
    FUZZ_REQUIRE(shard->documents == rp_load_u32(file));
    for (uint64_t d = 0; d < shard->documents; d++) {
        uint64_t tokens, byte, tokens_again, byte_again, begin = end;
        end = rp_load_u32(file + 8 + 4 * d);
        FUZZ_REQUIRE(rp_shard_locate(opened, d, &tokens, &byte) == NULL);
        FUZZ_REQUIRE(rp_shard_locate(again, d, &tokens_again, &byte_again) == NULL);
        FUZZ_REQUIRE(tokens == tokens_again && byte == byte_again);
        FUZZ_REQUIRE(begin <= byte && byte + tokens * width <= end && end <= shard->bytes);
        FUZZ_REQUIRE(opened->found.format == RP_FORMAT_MDS || tokens * width == end - begin);
        total += tokens;
    }
    FUZZ_REQUIRE(total == shard->tokens && end == shard->bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    unsigned flags = (unsigned)fuzz_number(&input, 1);
    enum rp_format format = flags & IS_LITDATA ? RP_FORMAT_LITDATA : RP_FORMAT_MDS;
    if (flags & IS_LITDATA) {
        size_t bytes = rp_min_u64(fuzz_number(&input, 2), input.left);
        fuzz_file("index.json", input.at, bytes);
        input.at += bytes;
        input.left -= bytes;
    }
    struct rp_source_spec hints = {.format = flags & DECLARES_FORMAT ? format : RP_FORMAT_AUTO,
                                   .type = flags & DECLARES_TYPE ? RP_TOKEN_U16 : RP_TOKEN_NONE,
                                   .eos = RP_EOS_NONE,
                                   .column = flags & DECLARES_COLUMN ? "b" : NULL};
    struct rp_open_options options = {.find.hints = &hints, .scan_bytes_max = RP_SCAN_AT_OPEN_MAX};
    const char *name = flags & IS_LITDATA ? "chunk-0-0.bin" : "shard.mds";
    const char *path = fuzz_file(name, input.at, input.left);
    struct rp_opened opened, again;
    if (!fuzz_accepted(rp_shard_open(&opened, path, 0, &options, &error), &error))
        return 0;
    if (opened.found.format == format) {
        FUZZ_REQUIRE(rp_shard_open(&again, path, 0, &options, &error) == 0);
        check_documents(&opened, &again, input.at);
        rp_shard_close(&again);
    }
    rp_shard_close(&opened);
    return 0;
}
