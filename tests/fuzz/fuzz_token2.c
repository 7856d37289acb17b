/* SPDX-License-Identifier: Apache-2.0 */
/* A state token of version 2: u8 kind of stream, u8 mode (1: the bytes are the token, 0: edits of a
 * good one; 2: length and hash made right again), u8 row of the good one, then the bytes.
 *
 * Accepted token: writing gives the same bytes, its listing agrees, and the stream continues from
 * it with rows of existing documents. Refused token: a message, and nothing is left. Hash not
 * mended: accepted if and only if it is the good one. */
#include "../unit/v2_token_kit.h"

#include "fuzz.h"
#include "plan/v2/unseen.h"

#define ROWS_KEPT 24u

static struct variant {
    struct kit_stream kit;
    uint32_t rows;
    size_t bytes[ROWS_KEPT];
    uint8_t *tokens[ROWS_KEPT];
} variants[KIT_VARIANTS];
static uint8_t token[KIT_TOKEN_BYTES], after[KIT_TOKEN_BYTES];

static struct variant *variant_at(unsigned number)
{
    struct variant *v = &variants[number % KIT_VARIANTS];
    if (v->rows > 0)
        return v;
    kit_make(&v->kit, number % KIT_VARIANTS);
    struct kit_run run = kit_open(&v->kit.spec);
    struct rp_stream_row row;
    do {
        v->bytes[v->rows] = kit_save(&run, token);
        v->tokens[v->rows] = malloc(v->bytes[v->rows]);
        memcpy(v->tokens[v->rows], token, v->bytes[v->rows]);
    } while (++v->rows < ROWS_KEPT && kit_next(&run, &row));
    kit_close(&run);
    return v;
}

/* Values that are taken on trust, because this side does not know them, or has its own at row 0:
 * the written token has this side's. */
static size_t forget_trusted(size_t bytes, const struct rp_stream_fixed *fixed)
{
    struct rp_token2 decoded;
    struct rp_error error = {0};
    FUZZ_REQUIRE(rp_token2_decode(&decoded, token, bytes, &error) == 0);
    decoded.header.tokenizer = fixed->tokenizer;
    for (uint32_t j = 0; j < decoded.header.source_count; j++) {
        decoded.sources[j].prints.full = 0;
        if (decoded.header.next_row == 0)
            decoded.sources[j].limits = (struct rp_limits){.max_epochs = 2};
    }
    bytes = rp_token2_encode(&decoded, token);
    rp_token2_free(&decoded);
    return bytes;
}

static void check_unseen(const struct variant *v, const void *read, size_t bytes)
{
    struct rp_unseen *unseen;
    struct rp_error error = {0};
    const struct rp_stream_source *own = &v->kit.sources[0];
    const struct rp_unseen_source source = {own->name, 0, &own->view, own->documents};
    if (!fuzz_accepted(rp_unseen_open(&unseen, read, bytes, &source, &error), &error))
        return;
    uint64_t documents[] = {0, 7, own->documents - 1};
    bool used[3];
    rp_planner_token_used(unseen, documents, 3, used);
    rp_unseen_close(unseen);
}

static void check_taken(const struct variant *v, struct kit_run *run, size_t bytes)
{
    struct rp_error error = {0};
    struct rp_planner_token_info info;
    bytes = forget_trusted(bytes, &v->kit.spec.fixed);
    FUZZ_REQUIRE(kit_save(run, after) == bytes && memcmp(after, token, bytes) == 0);
    FUZZ_REQUIRE(rp_planner_token_info(fuzz_at_edge(token, bytes), bytes, &info, &error) == 0);
    FUZZ_REQUIRE(info.position.next_row == rp_planner_row(run->plan) && info.bytes == bytes);
    struct rp_stream_row row;
    int planned = 1;
    for (unsigned i = 0; i < 6 && planned > 0; i++) {
        uint64_t tokens = 0;
        planned = rp_planner_next(run->plan, &row, &error);
        for (uint32_t f = 0; planned > 0 && f < row.count; f++) {
            const struct rp_fragment *fragment = &row.fragments[f];
            FUZZ_REQUIRE(fragment->source < KIT_SOURCES);
            FUZZ_REQUIRE(fragment->document < v->kit.sources[fragment->source].documents);
            tokens += fragment->length;
        }
        FUZZ_REQUIRE(planned <= 0 || (row.row == info.position.next_row + i &&
                                      tokens == row.tokens && tokens <= 32));
    }
    /* Limits and credits of a forged token may forbid a row, by name. */
    FUZZ_REQUIRE(planned >= 0 || error.message[0] != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    struct kit_run run;
    const struct rp_stream_resume with = {.grow = true};
    struct variant *v = variant_at((unsigned)fuzz_number(&input, 1));
    unsigned mode = (unsigned)fuzz_number(&input, 1);
    uint32_t row = (uint32_t)fuzz_number(&input, 1) % v->rows;
    size_t bytes = mode & 1 ? rp_min_u64(input.left, sizeof token) : v->bytes[row];
    memcpy(token, mode & 1 && bytes ? input.at : v->tokens[row], bytes);
    if (!(mode & 1))
        fuzz_edit(&input, token, bytes);
    if ((mode & 2) && bytes >= sizeof(struct rp_token2_header) + sizeof(struct rp_hash128))
        kit_rehash(token, bytes);
    bool same = bytes == v->bytes[row] && memcmp(token, v->tokens[row], bytes) == 0;
    const void *read = fuzz_at_edge(token, bytes);
    check_unseen(v, read, bytes);
    int code = rp_planner_token_resume(&run.calendar, &run.plan, &v->kit.spec, read, bytes, &with,
                                       &error);
    bool accepted = fuzz_accepted(code, &error);
    FUZZ_REQUIRE(accepted || !same);
    FUZZ_REQUIRE((mode & 3) || accepted == same);
    if (accepted)
        check_taken(v, &run, bytes);
    else
        FUZZ_REQUIRE(!run.plan && !run.calendar && error.hint[0] != 0);
    kit_close(&run);
    return 0;
}
