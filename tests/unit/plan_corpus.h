/* SPDX-License-Identifier: Apache-2.0 */
/* plan_corpus.h — small corpora of document lengths, and every kind of plan over them. */
#ifndef RP_TESTS_PLAN_CORPUS_H
#define RP_TESTS_PLAN_CORPUS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

#define CORPUS_DOCUMENTS_MAX 400
#define CORPUS_SOURCES_MAX 3

/* xorshift64*: the tests' own generator, so that a printed seed repeats a run anywhere. */
static inline uint64_t draw(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545F4914F6CDD1D);
}

static inline uint64_t draw_below(uint64_t *state, uint64_t n)
{
    return draw(state) % n;
}

/* RP_TEST_SEED repeats a run; otherwise the seed is fixed, and printed either way. */
static inline uint64_t test_seed(const char *test)
{
    const char *text = getenv("RP_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : UINT64_C(0x5EED5EED5EED);
    printf("%s: RP_TEST_SEED=0x%" PRIx64 "\n", test, seed);
    return seed ? seed : 1;
}

struct corpus {
    uint32_t source_count;
    uint64_t lengths[CORPUS_SOURCES_MAX][CORPUS_DOCUMENTS_MAX];
    struct rp_plan_source sources[CORPUS_SOURCES_MAX];
};

static inline uint64_t corpus_length(const void *lengths, uint64_t document)
{
    return ((const uint64_t *)lengths)[document];
}

/* Lengths 0 … about 3 * seq_len, most of them short, some equal, some exactly a row. */
static inline void corpus_make(struct corpus *corpus, uint32_t source_count, uint64_t documents,
                               uint32_t seq_len, uint64_t *state)
{
    corpus->source_count = source_count;
    for (uint32_t s = 0; s < source_count; s++) {
        uint64_t n = documents - 7 * s;
        for (uint64_t d = 0; d < n; d++) {
            uint64_t most = draw_below(state, 8) ? seq_len / 2 + 1 : 3 * seq_len;
            uint64_t length = draw_below(state, most + 1);
            if (draw_below(state, 12) == 0)
                length = seq_len;
            corpus->lengths[s][d] = length;
        }
        corpus->sources[s] = (struct rp_plan_source){
            .documents = n,
            .weight = s + 1 + s * s,
            .lengths = corpus->lengths[s],
            .length = corpus_length,
        };
    }
}

/* Every packing, fill, long_doc, shuffle and 1 or 3 lanes, with W, B and V small and odd. */
#define PLAN_VARIANTS (3 * 2 * 3 * 3 * 2)
static inline struct rp_plan_config plan_variant(uint32_t number)
{
    struct rp_plan_config config = {
        .seed = UINT64_C(0x9E3779B97F4A7C15) + number,
        .num_epochs = 2,
        .seq_len = 61,
        .block_documents = 7,
        .window_blocks = 3,
        .window = 9,
        .max_docs_per_row = 61,
        .corpus_sampled = {1, 2},
    };
    config.packing = (enum rp_packing)(number % 3);
    config.row_gap = (enum rp_row_gap)(number / 3 % 2);
    config.long_doc = (enum rp_long_doc)(number / 6 % 3);
    config.shuffle = (enum rp_shuffle)(number / 18 % 3);
    config.lanes = number / 54 % 2 ? 3 : 1;
    if (number % 5 == 0)
        config.max_docs_per_row = 1 + number % 4;
    return config;
}

static inline const char *plan_describe(const struct rp_plan_config *config)
{
    static char text[160];
    snprintf(text, sizeof text, "%s fill %s long_doc %s shuffle %s lanes %" PRIu32 " D %" PRIu32,
             rp_packing_name(config->packing), rp_plan_row_gap_name(config->row_gap),
             rp_long_doc_name(config->long_doc), rp_shuffle_name(config->shuffle), config->lanes,
             config->max_docs_per_row);
    return text;
}

static inline struct rp_plan *plan_open(const struct rp_plan_config *config,
                                        const struct corpus *corpus)
{
    struct rp_error error = {0};
    struct rp_plan *plan = NULL;
    if (rp_plan_open(&plan, config, corpus->sources, corpus->source_count, &error) != 0)
        fail_msg("%s: %s", plan_describe(config), error.message);
    return plan;
}

/* ---- one corpus for tests of blocks ---------------------------------------------------------- */

enum { BLOCKS_DOCUMENTS = 997, BLOCKS_SEQ_LEN = 64 };

static inline uint64_t blocks_length(const void *lengths, uint64_t document)
{
    (void)lengths;
    return 1 + document % 40;
}

/* A plan of sources alike, in blocks of 10 documents. */
static inline struct rp_plan *plan_open_blocks(enum rp_shuffle shuffle, uint32_t lanes,
                                               uint32_t epochs, const uint64_t *weights,
                                               uint32_t sources)
{
    struct rp_plan_config config = {.seed = 7,
                                    .num_epochs = epochs,
                                    .seq_len = BLOCKS_SEQ_LEN,
                                    .shuffle = shuffle,
                                    .block_documents = 10,
                                    .window_blocks = 4,
                                    .packing = RP_PACKING_CONCAT,
                                    .max_docs_per_row = BLOCKS_SEQ_LEN,
                                    .lanes = lanes};
    struct corpus corpus = {.source_count = sources};
    for (uint32_t s = 0; s < sources; s++)
        corpus.sources[s] = (struct rp_plan_source){
            .documents = BLOCKS_DOCUMENTS, .weight = weights[s], .length = blocks_length};
    return plan_open(&config, &corpus);
}

/* Next row; false at the end of the stream. */
static inline bool plan_next(struct rp_plan *plan, struct rp_row *row)
{
    struct rp_error error = {0};
    int planned = rp_plan_next(plan, row, &error);
    if (planned < 0)
        fail_msg("rp_plan_next: %s", error.message);
    return planned > 0;
}

#endif
