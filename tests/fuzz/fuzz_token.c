/* SPDX-License-Identifier: Apache-2.0 */
/* A state token: u8 kind of plan, u8 mode (1: the bytes are the token, 0: edits of a good one; 2:
 * length and hash made right again), u8 row of the good one, then the bytes.
 *
 * Accepted token: saving gives the same bytes, its listing agrees, and the plan continues from it
 * without running past a row. Refused token: the plan is as it was. Hash not mended: accepted if
 * and only if it is the good one. The readable form of any token is a record. */
#include "token_image.h"

static uint8_t before[TOKEN_BYTES_MAX], after[TOKEN_BYTES_MAX];

/* The token loses its tokenizer, which the plan does not know. Returns the bytes of the token. */
static size_t forget_tokenizer(size_t bytes)
{
    uint8_t *version = token + offsetof(struct rp_state_header, version);
    size_t hash = sizeof(struct rp_hash128);
    if (rp_load_u32(version) == RP_TOKEN_VERSION_TOKENIZER) {
        rp_store_u32(version, RP_TOKEN_VERSION_PLAIN);
        bytes -= hash;
    } else if (rp_load_u32(version) == RP_TOKEN_VERSION_DIGEST) {
        memset(token + bytes - 3 * hash, 0, hash);
    }
    mend(bytes);
    return bytes;
}

static void check_taken(struct variant *v, size_t bytes)
{
    struct rp_error error = {0};
    struct rp_state_info info;
    bytes = forget_tokenizer(bytes);
    FUZZ_REQUIRE(rp_plan_save(v->plan, after) == bytes);
    memset(token + offsetof(struct rp_state_header, corpus_full), 0, sizeof(struct rp_hash128));
    mend(bytes); /* a full fingerprint is taken on trust where the plan has none */
    FUZZ_REQUIRE(memcmp(after, token, bytes) == 0);
    FUZZ_REQUIRE(rp_state_info(fuzz_at_edge(token, bytes), bytes, &info, &error) == 0);
    FUZZ_REQUIRE(info.next_row == rp_plan_row(v->plan) && info.bytes == bytes);
    struct rp_row row;
    for (unsigned i = 0; i < 4 && rp_plan_next(v->plan, &row, &error) == 1; i++) {
        uint64_t tokens = 0;
        for (uint32_t f = 0; f < row.count; f++)
            tokens += row.fragments[f].length;
        FUZZ_REQUIRE(row.row == info.next_row + i && tokens == row.tokens);
        FUZZ_REQUIRE(row.tokens <= info.config.seq_len);
        FUZZ_REQUIRE(row.count <= info.config.max_docs_per_row);
    }
    FUZZ_REQUIRE(error.code == 0); /* with an undamaged index, every row can be planned */
}

static void check_record(const void *read, size_t bytes)
{
    struct rp_error error = {0};
    struct rp_record_writer writer = {0};
    struct rp_record record;
    if (fuzz_accepted(rp_state_contract(read, bytes, &writer, &error), &error))
        FUZZ_REQUIRE(rp_record_open(&record, writer.text, writer.bytes, NULL) == 0);
    free(writer.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    struct variant *v = variant_at((unsigned)fuzz_number(&input, 1));
    unsigned mode = (unsigned)fuzz_number(&input, 1);
    uint32_t row = (uint32_t)fuzz_number(&input, 1) % v->rows;
    size_t bytes = mode & 1 ? rp_min_u64(input.left, sizeof token) : v->bytes[row];
    memcpy(token, mode & 1 && bytes ? input.at : v->tokens[row], bytes);
    if (!(mode & 1))
        fuzz_edit(&input, token, bytes);
    if (mode & 2)
        mend(bytes);
    size_t before_bytes = rp_plan_save(v->plan, before);
    bool same = bytes == v->bytes[row] && memcmp(token, v->tokens[row], bytes) == 0;
    const void *read = fuzz_at_edge(token, bytes);
    check_record(read, bytes);
    bool accepted = fuzz_accepted(rp_plan_load(v->plan, read, bytes, false, &error), &error);
    FUZZ_REQUIRE(accepted || !same);
    FUZZ_REQUIRE(mode || accepted == same);
    if (accepted)
        check_taken(v, bytes);
    else
        FUZZ_REQUIRE(rp_plan_save(v->plan, after) == before_bytes &&
                     memcmp(after, before, before_bytes) == 0);
    return 0;
}
