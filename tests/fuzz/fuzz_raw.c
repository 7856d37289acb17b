/* SPDX-License-Identifier: Apache-2.0 */
/* Raw tokens and llm.c files: u8 format and declared type (128: named as the .bin of an index that
 * is not there), u16 eos, the file.
 *
 * Accepted file: its documents are those of shard_oracle.h, so the fast scan finds what a look at
 * every token finds; and a declared type is the one that is used. */
#include "shard_oracle.h"

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
    const char *path = fuzz_file(kind & 128 ? "tokens.bin" : "tokens", input.at, input.left);
    struct rp_opened opened;
    if (!fuzz_accepted(rp_shard_open(&opened, path, 0, &options, &error), &error))
        return 0;
    oracle_check(&opened, input.at, input.left);
    FUZZ_REQUIRE(hints.type == RP_TOKEN_NONE || hints.type == opened.shard.type);
    FUZZ_REQUIRE(hints.eos == RP_EOS_NONE || hints.eos == opened.found.eos);
    rp_shard_close(&opened);
    return 0;
}
