/* SPDX-License-Identifier: Apache-2.0 */
/* token_image.h — one plan of every kind with the state tokens of its first rows, and a token in
 * memory whose length and hash are made right again after edits. */
#ifndef RP_TESTS_TOKEN_IMAGE_H
#define RP_TESTS_TOKEN_IMAGE_H

#include "../unit/plan_corpus.h"

#include "fuzz.h"
#include "plan/token_records.h"

#define ROWS_KEPT 48u
#define TOKEN_BYTES_MAX 65536u

static struct variant {
    struct rp_plan *plan;
    uint32_t rows;
    size_t bytes[ROWS_KEPT];
    uint8_t *tokens[ROWS_KEPT];
} variants[PLAN_VARIANTS];
static struct corpus corpus;
static uint8_t token[TOKEN_BYTES_MAX];

FUZZ struct variant *variant_at(unsigned number)
{
    struct variant *v = &variants[number % PLAN_VARIANTS];
    if (v->plan)
        return v;
    struct rp_plan_config config = plan_variant(number % PLAN_VARIANTS);
    uint64_t seed = 1;
    if (corpus.source_count == 0)
        corpus_make(&corpus, CORPUS_SOURCES_MAX, 40, config.seq_len, &seed);
    v->plan = plan_open(&config, &corpus);
    struct rp_row row;
    do {
        FUZZ_REQUIRE(rp_plan_state_bytes_max(v->plan) <= TOKEN_BYTES_MAX);
        v->bytes[v->rows] = rp_plan_save(v->plan, token);
        v->tokens[v->rows] = malloc(v->bytes[v->rows]);
        memcpy(v->tokens[v->rows], token, v->bytes[v->rows]);
    } while (++v->rows < ROWS_KEPT && plan_next(v->plan, &row));
    return v;
}

FUZZ void mend(size_t bytes)
{
    if (bytes < sizeof(struct rp_state_header) + sizeof(struct rp_hash128))
        return;
    rp_store_u32(token + offsetof(struct rp_state_header, bytes), (uint32_t)bytes);
    struct rp_hash128 hash = rp_hash128(token, bytes - sizeof hash);
    memcpy(token + bytes - sizeof hash, &hash, sizeof hash);
}

#endif
