/* SPDX-License-Identifier: Apache-2.0 */
/* Raw tokens and llm.c files: u8 format and declared type (from 128 on: it is named as a .bin; from
 * 224 on: the same bytes are its .idx), u16 eos, the file.
 *
 * Accepted file: its documents equal shard_oracle.h's, so the fast scan finds what a scan of every
 * token finds; and a declared type is the one that is used. With an index: every document is inside
 * the file. */
#include "shard_oracle.h"

static const char *put_file(unsigned kind, const struct fuzz_input *input)
{
    if (kind < 224)
        return fuzz_file(kind < 128 ? "tokens" : "tokens.bin", input->at, input->left);
    (void)fuzz_file("pair.idx", input->at, input->left);
    return fuzz_file("pair.bin", input->at, input->left);
}

static void check_inside(const struct rp_opened *opened)
{
    uint64_t tokens, offset, width = rp_token_width(opened->shard.type);
    for (uint64_t d = 0; d < opened->shard.documents; d++) {
        FUZZ_REQUIRE(rp_shard_locate(opened, d, &tokens, &offset) == NULL);
        FUZZ_REQUIRE(tokens <= opened->shard.tokens && offset % width == 0);
        FUZZ_REQUIRE(rp_range_inside(offset, tokens * width, opened->shard.bytes));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum rp_format formats[] = {RP_FORMAT_RAW, RP_FORMAT_LLMC, RP_FORMAT_AUTO};
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    unsigned kind = (unsigned)fuzz_number(&input, 1);
    struct rp_source_spec hints = {.format = formats[kind % 128 / 8 % RP_ARRAY_COUNT(formats)],
                                   .type = (enum rp_token_type)(kind % 8 % 7)};
    hints.eos = (int16_t)fuzz_number(&input, 2);
    struct rp_open_options options = {.find.hints = &hints, .scan_bytes_max = RP_SCAN_AT_OPEN_MAX};
    const char *path = put_file(kind, &input);
    struct rp_opened opened;
    if (!fuzz_accepted(rp_shard_open(&opened, path, 0, &options, &error), &error))
        return 0;
    FUZZ_REQUIRE(hints.type == RP_TOKEN_NONE || hints.type == opened.shard.type);
    if (opened.found.format == RP_FORMAT_MEGATRON) {
        check_inside(&opened);
    } else {
        oracle_check(&opened, input.at, input.left);
        FUZZ_REQUIRE(hints.eos == RP_EOS_NONE || hints.eos == opened.found.eos);
    }
    rp_shard_close(&opened);
    return 0;
}
