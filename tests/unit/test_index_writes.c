/* SPDX-License-Identifier: Apache-2.0 */
/* A corpus index that is written to while it is in use: an append and a link change nothing; after
 * a write in place the check fails on every thread, and each time. */
#include "index_kit.h"

#include <fcntl.h>
#include <pthread.h>

#define CHECKERS 4

struct checker {
    pthread_t thread;
    pthread_barrier_t *begin;
    const struct rp_corpus *corpus;
    int code;
};

static void *check_in_thread(void *argument)
{
    struct checker *checker = argument;
    pthread_barrier_wait(checker->begin);
    checker->code = rp_corpus_revalidate(checker->corpus, NULL);
    return NULL;
}

/* Each flow has a thread that checks: none may hand on plans of a changed index. */
static void check_on_threads(const struct rp_corpus *corpus)
{
    struct checker checkers[CHECKERS];
    pthread_barrier_t begin;
    assert_int_equal(pthread_barrier_init(&begin, NULL, CHECKERS), 0);
    for (int i = 0; i < CHECKERS; i++) {
        checkers[i] = (struct checker){.begin = &begin, .corpus = corpus};
        assert_int_equal(pthread_create(&checkers[i].thread, NULL, check_in_thread, &checkers[i]),
                         0);
    }
    for (int i = 0; i < CHECKERS; i++)
        assert_int_equal(pthread_join(checkers[i].thread, NULL), 0);
    for (int i = 0; i < CHECKERS; i++)
        assert_int_equal(checkers[i].code, -RP_E_CHANGED);
    pthread_barrier_destroy(&begin);
}

static void test_a_write_while_it_is_used_is_noticed(void **state)
{
    (void)state;
    struct rp_error error = {0};
    struct rp_corpus *corpus;
    static uint16_t many[60000];
    for (size_t t = 0; t < RP_ARRAY_COUNT(many); t++)
        many[t] = t % 5 == 4 ? EOS : 20;
    put_shards();
    put_file(paths[1], many, sizeof many); /* so that the index is mapped */
    unlink(INDEX);
    make(SHARDS - 1);
    static const char *const patterns[] = {"*.bin"};
    struct rp_source_spec source = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    source.shards = patterns;
    source.shard_count = 1;
    const struct rp_corpus_spec spec = {.sources = &source, .source_count = 1, .index = INDEX};
    assert_int_equal(rp_corpus_open(&corpus, &spec, &error), 0);
    assert_int_equal(rp_source_length(rp_corpus_source(corpus, 0), 100), 5);
    assert_int_equal(rp_corpus_revalidate(corpus, &error), 0);
    make(SHARDS); /* appends: no byte in use changes */
    assert_int_equal(rp_corpus_revalidate(corpus, &error), 0);
    assert_int_equal(rp_source_documents(rp_corpus_source(corpus, 0)), 12028);
    assert_int_equal(rp_source_length(rp_corpus_source(corpus, 0), 100), 5);
    assert_int_equal(link(INDEX, "kept.rpi"), 0);
    assert_int_equal(make(1).outcome, RP_INDEXED_REWRITTEN); /* a smaller file of that name */
    assert_int_equal(rp_corpus_revalidate(corpus, &error), 0);
    assert_int_equal(rename("kept.rpi", INDEX), 0);
    assert_int_equal(rp_corpus_revalidate(corpus, &error), 0);
    int fd = open(INDEX, O_RDWR | O_CLOEXEC);
    uint32_t wrong = 77;
    assert_int_equal(pwrite(fd, &wrong, 4, 4096 + 8 * 12028 + 4 * 100), 4);
    close(fd);
    (void)rp_source_length(rp_corpus_source(corpus, 0), 200);
    check_on_threads(corpus);
    assert_int_equal(rp_corpus_revalidate(corpus, &error), -RP_E_CHANGED);
    assert_says(&error, INDEX "|changed while it was in use|ringpack index -c");
    rp_corpus_close(corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_write_while_it_is_used_is_noticed),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
