/* SPDX-License-Identifier: Apache-2.0 */
/* The spans of parts of documents, against a flag for each token; and false tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "../fakes/io_fake.h"
#include "base/bits.h"
#include "corpus/spans.h"

#define DOCUMENTS 40u
#define TOKENS_MAX 30u
#define ROUNDS 200u

struct tables {
    uint32_t length[DOCUMENTS];
    bool trained[DOCUMENTS][TOKENS_MAX];
    uint64_t ends[DOCUMENTS + 1];
    struct rp_span table[DOCUMENTS * TOKENS_MAX];
    struct rp_spans spans;
};

static void make_tables(struct tables *t, uint64_t *seed)
{
    *t = (struct tables){.spans = {.documents = DOCUMENTS}};
    for (uint32_t d = 0; d < DOCUMENTS; d++) {
        uint64_t rarity = 1 + io_fake_random(seed) % 4;
        t->length[d] = (uint32_t)(io_fake_random(seed) % (TOKENS_MAX + 1));
        t->ends[d] = t->spans.count;
        for (uint32_t i = 1; i < t->length[d]; i++) { /* token 0 is in no span */
            t->trained[d][i] = io_fake_random(seed) % rarity == 0;
            if (!t->trained[d][i])
                continue;
            if (!t->trained[d][i - 1])
                t->table[t->spans.count++].begin = i;
            t->table[t->spans.count - 1].end = i + 1;
        }
    }
    t->ends[DOCUMENTS] = t->spans.count;
    t->spans.ends = t->ends;
    t->spans.table = t->table;
}

static struct rp_part random_part(const struct tables *t, uint64_t *seed)
{
    uint64_t document = io_fake_random(seed) % DOCUMENTS;
    uint64_t length = t->length[document], first = io_fake_random(seed) % (length + 1);
    uint32_t tokens = (uint32_t)(io_fake_random(seed) % (length - first + 1));
    return (struct rp_part){document, length, first, tokens};
}

static void parts_have_the_spans_of_their_tokens(void **state)
{
    (void)state;
    static struct tables t;
    uint64_t seed = 1;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        make_tables(&t, &seed);
        for (uint32_t n = 0; n < 100; n++) {
            struct rp_part part = random_part(&t, &seed);
            struct rp_span out[TOKENS_MAX];
            uint32_t count = 0;
            bool found[TOKENS_MAX] = {false};
            assert_null(rp_spans_cut(&t.spans, &part, out, &count));
            assert_true(count <= rp_spans_max(part.tokens));
            for (uint32_t i = 0; i < count; i++)
                for (uint32_t k = out[i].begin; k < out[i].end; k++)
                    found[k] = true;
            assert_int_equal(rp_spans_overlap(&t.spans, &part), count > 0);
            for (uint32_t k = 0; k < part.tokens; k++)
                assert_int_equal(found[k], t.trained[part.document][part.first + k]);
            bool any = t.ends[part.document] < t.ends[part.document + 1];
            assert_int_equal(rp_spans_any(&t.spans, part.document), any);
        }
    }
}

/* Whatever the tables say, a look-up is refused, or its spans ascend within the part. */
static void lying_tables_are_refused_or_harmless(void **state)
{
    (void)state;
    static struct tables t;
    uint64_t seed = 2, refused = 0;
    for (uint32_t round = 0; round < 100 * ROUNDS; round++) {
        if (round % 100 == 0)
            make_tables(&t, &seed);
        static struct tables lie;
        lie = t;
        lie.spans.ends = lie.ends;
        lie.spans.table = lie.table;
        uint64_t bit = 1ull << io_fake_random(&seed) % 64;
        struct rp_part part = random_part(&t, &seed);
        if (io_fake_random(&seed) % 2 && t.spans.count)
            lie.table[io_fake_random(&seed) % t.spans.count].end ^= (uint32_t)bit;
        else
            lie.ends[part.document + io_fake_random(&seed) % 2] ^= bit;
        struct rp_span out[TOKENS_MAX];
        uint32_t count = 0, end = 0;
        (void)rp_spans_overlap(&lie.spans, &part);
        if (rp_spans_cut(&lie.spans, &part, out, &count)) {
            refused++;
            continue;
        }
        assert_true(count <= rp_spans_max(part.tokens));
        for (uint32_t i = 0; i < count; i++) {
            assert_true(out[i].begin < out[i].end && (i == 0 || out[i].begin > end));
            end = out[i].end;
        }
        assert_true(end <= part.tokens);
    }
    assert_true(refused > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_have_the_spans_of_their_tokens),
        cmocka_unit_test(lying_tables_are_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
