/* SPDX-License-Identifier: Apache-2.0 */
/* A plan that announces which lengths it will ask for plans the same rows as one that does not,
 * also from the middle on; and what it announces is what it asks for. */
#include "plan_corpus.h"

enum { RECENT = 512 };

/* A source that remembers what was announced last. */
struct listener {
    const uint64_t *lengths;
    uint64_t announced[RECENT];
    uint64_t announced_count, asked, unannounced;
};

static struct listener listeners[CORPUS_SOURCES_MAX];

static void listen_expect(const void *context, const uint64_t *documents, uint32_t count)
{
    struct listener *listener = &listeners[(const struct listener *)context - listeners];
    assert_true(count >= 1);
    for (uint32_t i = 0; i < count; i++)
        listener->announced[listener->announced_count++ % RECENT] = documents[i];
}

static uint64_t listen_length(const void *context, uint64_t document)
{
    struct listener *listener = &listeners[(const struct listener *)context - listeners];
    bool known = false;
    for (uint64_t i = 0; i < rp_min_u64(listener->announced_count, RECENT) && !known; i++)
        known = listener->announced[i] == document;
    listener->asked++;
    listener->unannounced += !known;
    return listener->lengths[document];
}

static struct rp_plan *open_listening(const struct rp_plan_config *config,
                                      const struct corpus *corpus)
{
    struct corpus copy = *corpus;
    for (uint32_t s = 0; s < corpus->source_count; s++) {
        listeners[s] = (struct listener){.lengths = corpus->lengths[s]};
        copy.sources[s].lengths = &listeners[s];
        copy.sources[s].length = listen_length;
        copy.sources[s].expect = listen_expect;
    }
    return plan_open(config, &copy);
}

static bool rows_equal(const struct rp_row *a, const struct rp_row *b)
{
    return a->row == b->row && a->count == b->count && a->tokens == b->tokens &&
           !memcmp(a->fragments, b->fragments, a->count * sizeof *a->fragments);
}

/* Every so often the listening plan goes on from its own token: what it had announced is void. */
static uint64_t compare(struct rp_plan *plain, struct rp_plan *listening, uint64_t reload_every)
{
    static uint8_t token[1 << 20];
    struct rp_row expected, found;
    uint64_t rows = 0;
    for (; plan_next(plain, &expected); rows++) {
        assert_true(plan_next(listening, &found));
        assert_true(rows_equal(&expected, &found));
        if (rows % reload_every == 0) {
            struct rp_error error;
            assert_true(rp_plan_state_bytes_max(listening) <= sizeof token);
            size_t bytes = rp_plan_save(listening, token);
            assert_int_equal(rp_plan_load(listening, token, bytes, false, &error), 0);
        }
    }
    assert_false(plan_next(listening, &found));
    return rows;
}

static void announcing_changes_nothing(void **state)
{
    (void)state;
    static struct corpus corpus;
    uint64_t random = 77, rows = 0, asked = 0, unannounced = 0;
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        struct rp_plan_config config = plan_variant(variant);
        corpus_make(&corpus, 1 + variant % 3, 300, config.seq_len, &random);
        struct rp_plan *plain = plan_open(&config, &corpus);
        struct rp_plan *listening = open_listening(&config, &corpus);
        rows += compare(plain, listening, variant % 2 ? 17 : UINT64_MAX);
        for (uint32_t s = 0; s < corpus.source_count; s++) {
            asked += listeners[s].asked;
            unannounced += listeners[s].unannounced;
        }
        rp_plan_close(plain);
        rp_plan_close(listening);
    }
    /* checks of a token, and the search for an end, announce nothing */
    print_message("%" PRIu64 " rows, %" PRIu64 " lengths, %" PRIu64 " not announced\n", rows, asked,
                  unannounced);
    assert_true(rows > 10000 && unannounced < asked / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(announcing_changes_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
