/* SPDX-License-Identifier: Apache-2.0 */
/* token_kit.h — plans in mid-stream and their state tokens, for tests that change the bytes. */
#ifndef RP_TESTS_TOKEN_KIT_H
#define RP_TESTS_TOKEN_KIT_H

#include "plan/token_records.h"
#include "plan_corpus.h"

enum { TOKEN_BYTES_MAX = 1 << 16, HASH_BYTES = 16 };

static inline size_t save(const struct rp_plan *plan, uint8_t *token)
{
    assert_true(rp_plan_state_bytes_max(plan) <= TOKEN_BYTES_MAX);
    size_t bytes = rp_plan_save(plan, token);
    assert_true(bytes <= rp_plan_state_bytes_max(plan));
    return bytes;
}

static inline void load(struct rp_plan *plan, const uint8_t *token, size_t bytes)
{
    struct rp_error error = {0};
    if (rp_plan_load(plan, token, bytes, false, &error) != 0)
        fail_msg("rp_plan_load: %s", error.message);
}

static inline void rehash(uint8_t *token, size_t bytes)
{
    struct rp_hash128 hash = rp_hash128(token, bytes - HASH_BYTES);
    memcpy(token + bytes - HASH_BYTES, &hash, sizeof hash);
}

/* A plan in mid-stream and its token; the caller closes the plan. */
static inline struct rp_plan *open_in_midstream(uint32_t variant, struct corpus *corpus,
                                                uint8_t *token, size_t *bytes)
{
    struct rp_plan_config config = plan_variant(variant);
    uint64_t random = variant + 1;
    config.corpus_full = (struct rp_hash128){3, 4};
    config.tokenizer = (struct rp_hash128){5, 6};
    corpus_make(corpus, 1 + variant % CORPUS_SOURCES_MAX, 50, config.seq_len, &random);
    struct rp_plan *plan = plan_open(&config, corpus);
    struct rp_error error;
    assert_int_equal(rp_plan_seek(plan, 13, &error), 0);
    *bytes = save(plan, token);
    return plan;
}

#endif
