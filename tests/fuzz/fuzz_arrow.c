/* SPDX-License-Identifier: Apache-2.0 */
/* An Arrow stream or file: u8 (1: the format is declared; 2: the column `labels` is), the file.
 *
 * Accepted: every document is inside the file; a stream's follow each other as its batches do,
 * without an overlap; and they are the same when the table is made again. */
#include "corpus/shard.h"
#include "fuzz.h"

static void check_documents(const struct rp_opened *opened, const struct rp_opened *again)
{
    const struct rp_shard *shard = &opened->shard;
    uint64_t width = rp_token_width(shard->type), end = 0, total = 0;
    bool is_stream = strstr(opened->found.why, "stream") != NULL;
    FUZZ_REQUIRE(width > 0 && again->shard.documents == shard->documents);
    for (uint64_t d = 0; d < shard->documents; d++) {
        uint64_t tokens, byte, tokens_again, byte_again;
        FUZZ_REQUIRE(rp_shard_locate(opened, d, &tokens, &byte) == NULL);
        FUZZ_REQUIRE(rp_shard_locate(again, d, &tokens_again, &byte_again) == NULL);
        FUZZ_REQUIRE(tokens == tokens_again && byte == byte_again);
        FUZZ_REQUIRE(rp_range_inside(byte, tokens * width, shard->bytes));
        FUZZ_REQUIRE(!is_stream || tokens == 0 || byte >= end);
        end = tokens ? byte + tokens * width : end;
        total += tokens;
    }
    FUZZ_REQUIRE(total == shard->tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    unsigned flags = (unsigned)fuzz_number(&input, 1);
    struct rp_source_spec hints = {.format = flags & 1 ? RP_FORMAT_ARROW : RP_FORMAT_AUTO,
                                   .eos = RP_EOS_NONE,
                                   .column = flags & 2 ? "labels" : NULL};
    struct rp_open_options options = {.find.hints = &hints, .scan_bytes_max = RP_SCAN_AT_OPEN_MAX};
    const char *path = fuzz_file("rows.arrow", input.at, input.left);
    struct rp_opened opened, again;
    if (!fuzz_accepted(rp_shard_open(&opened, path, 0, &options, &error), &error))
        return 0;
    if (opened.found.format == RP_FORMAT_ARROW) {
        FUZZ_REQUIRE(rp_shard_open(&again, path, 0, &options, &error) == 0);
        check_documents(&opened, &again);
        rp_shard_close(&again);
    }
    rp_shard_close(&opened);
    return 0;
}
