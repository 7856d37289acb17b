/* SPDX-License-Identifier: Apache-2.0 */
/* A numpy file: u8 declared type (0 = none), u8 whether the format is declared, u8 eos, the file.
 *
 * Accepted file: its documents equal shard_oracle.h's, after a header that is text and names the
 * size of the rest of the file. */
#include "shard_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    struct rp_source_spec hints = {.type = (enum rp_token_type)(fuzz_number(&input, 1) % 7)};
    hints.format = fuzz_number(&input, 1) & 1 ? RP_FORMAT_NPY : RP_FORMAT_AUTO;
    hints.eos = (int64_t)fuzz_number(&input, 1);
    struct rp_open_options options = {.find.hints = &hints, .scan_bytes_max = RP_SCAN_AT_OPEN_MAX};
    const char *path = fuzz_file("tokens", input.at, input.left);
    struct rp_opened opened;
    if (!fuzz_accepted(rp_shard_open(&opened, path, 0, &options, &error), &error))
        return 0;
    oracle_check(&opened, input.at, input.left);
    if (opened.found.format == RP_FORMAT_NPY) {
        FUZZ_REQUIRE(hints.type == RP_TOKEN_NONE || hints.type == opened.shard.type);
        FUZZ_REQUIRE(opened.layout.token_offset >= 10 && input.at[0] == 0x93);
    }
    rp_shard_close(&opened);
    return 0;
}
