/* SPDX-License-Identifier: Apache-2.0 */
/* shard_oracle.h — requirements on a shard whose documents are separated by EOS: they follow each
 * other without a gap from the first token to the last, and EOS stands at each end and nowhere
 * else, checked token by token. */
#ifndef RP_TESTS_SHARD_ORACLE_H
#define RP_TESTS_SHARD_ORACLE_H

#include "corpus/shard.h"
#include "fuzz.h"

FUZZ uint64_t oracle_token(const uint8_t *bytes, uint64_t width)
{
    uint64_t token = 0;
    memcpy(&token, bytes, width);
    return token;
}

FUZZ void oracle_check(const struct rp_opened *opened, const uint8_t *file, uint64_t file_bytes)
{
    const struct rp_shard *shard = &opened->shard;
    uint64_t width = rp_token_width(shard->type), next = opened->layout.token_offset, total = 0;
    bool leads = opened->found.format == RP_FORMAT_LLMC;
    FUZZ_REQUIRE(width > 0 && shard->bytes == file_bytes && shard->documents > 0);
    for (uint64_t d = 0; d < shard->documents; d++) {
        uint64_t tokens, offset;
        bool first = d == 0, last = d + 1 == shard->documents;
        FUZZ_REQUIRE(rp_shard_locate(opened, d, &tokens, &offset) == NULL);
        FUZZ_REQUIRE(offset == next && tokens > 0 && tokens <= (file_bytes - offset) / width);
        for (uint64_t t = 0; t < tokens; t++) {
            bool is_eos = oracle_token(file + offset + t * width, width) ==
                          (uint64_t)opened->found.eos;
            bool may_be = leads ? t == 0 : t + 1 == tokens;
            bool must_be = leads ? t == 0 && !first : t + 1 == tokens && !last;
            FUZZ_REQUIRE(is_eos ? may_be : !must_be);
        }
        next += tokens * width;
        total += tokens;
    }
    FUZZ_REQUIRE(next == file_bytes && total == shard->tokens);
}

#endif
