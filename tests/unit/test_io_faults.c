/* SPDX-License-Identifier: Apache-2.0 */
/* test_io_faults.c — io.c on a disk that misbehaves, through the scripted fake method.
 *
 * Positive controls: the same runs through methods that break one rule each must be found wrong. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../fakes/io_fake.h"
#include "../fakes/io_run.h"
#include "base/bits.h"
#include "base/mem.h"

enum { SAMPLE_BYTES = 1000003, BIG_BYTES = 1 << 19, EVERYTHING_ROUNDS = 40 };

static struct io_sample sample;

static int make_sample(void **state)
{
    (void)state;
    io_sample_make(&sample, SAMPLE_BYTES, 7);
    return 0;
}

static int free_sample(void **state)
{
    (void)state;
    io_sample_free(&sample);
    return 0;
}

static struct io_run run_of(const struct rp_io_method *method, uint64_t seed)
{
    return (struct io_run){.method = method,
                           .sample = &sample,
                           .fd = sample.fd,
                           .depth = 1 + (uint32_t)(seed % 40),
                           .alignment = seed % 3 ? 1 : 512,
                           .bytes_max = 30000,
                           .reads = 200,
                           .seed = seed};
}

static void check_script(struct io_fake_script script, struct rp_io_counts *counts)
{
    io_fake_set(&script);
    struct io_run run = run_of(&io_fake_method, script.seed);
    unsigned wrong = io_run_reads(&run);
    if (wrong)
        print_message("seed %lu: %u of %u reads are wrong\n", (unsigned long)script.seed, wrong,
                      run.reads);
    assert_int_equal(wrong, 0);
    assert_int_equal(run.counts.reads, run.reads);
    assert_int_equal(run.counts.errors, 0);
    *counts = run.counts;
}

static void test_short_reads_are_continued(void **state)
{
    struct rp_io_counts counts;
    (void)state;
    check_script((struct io_fake_script){.seed = 1, .cut = 600}, &counts);
    assert_true(counts.short_reads > 50);
    assert_int_equal(counts.retries, 0);
}

static void test_refusals_are_asked_again(void **state)
{
    struct rp_io_counts counts;
    (void)state;
    check_script((struct io_fake_script){.seed = 2, .again = 300}, &counts);
    assert_true(counts.retries > 50);
    assert_int_equal(counts.short_reads, 0);
}

static void test_passing_eio_is_asked_again(void **state)
{
    struct rp_io_counts counts;
    (void)state;
    check_script((struct io_fake_script){.seed = 4, .broken = 50}, &counts);
    assert_true(counts.retries > 5);
}

static void test_any_order_of_completions(void **state)
{
    struct rp_io_counts counts;
    (void)state;
    check_script((struct io_fake_script){.seed = 5, .reorder = true}, &counts);
}

static void test_everything_at_once(void **state)
{
    struct rp_io_counts counts;
    (void)state;
    for (uint64_t seed = 10; seed < 10 + EVERYTHING_ROUNDS; seed++)
        check_script(
            (struct io_fake_script){
                .seed = seed, .cut = 300, .again = 150, .broken = 20, .lazy = 300, .reorder = true},
            &counts);
}

/* One read of the first BIG_BYTES of the sample; the caller needs `needed` of them. */
static struct rp_io_done read_big(struct io_fake_script script, uint32_t alignment, uint32_t needed,
                                  struct rp_io_counts *counts)
{
    uint8_t *buffer = rp_calloc_aligned(4096, BIG_BYTES);
    struct rp_io_read read = {.object = sample.fd,
                              .bytes = BIG_BYTES,
                              .bytes_needed = needed,
                              .alignment = alignment,
                              .buffer = buffer};
    io_fake_set(&script);
    struct rp_io_done done = io_read_once(&io_fake_method, &read, counts);
    assert_memory_equal(buffer, sample.bytes, done.bytes);
    free(buffer);
    return done;
}

/* One bad sector fails the whole of a direct read: the pieces close in on it. */
static void test_bad_sector_is_located(void **state)
{
    struct io_fake_script script = {.bad_start = 300032, .bad_end = 300544, .bad_error = EIO};
    static const uint32_t alignments[] = {1, 512};
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(alignments); i++) {
        struct rp_io_counts counts;
        struct rp_io_done done = read_big(script, alignments[i], BIG_BYTES, &counts);
        assert_int_equal(done.result, -EIO);
        assert_true(done.bytes <= script.bad_start && script.bad_start - done.bytes < 4096);
        assert_int_equal(counts.errors, 1);
        assert_true(counts.retries >= 3 && counts.retries < 40);
    }
}

static void test_bad_sector_in_the_slack_is_left_alone(void **state)
{
    struct io_fake_script script = {
        .bad_start = BIG_BYTES - 512, .bad_end = BIG_BYTES, .bad_error = EIO};
    (void)state;
    struct rp_io_done done = read_big(script, 512, BIG_BYTES - 4096, NULL);
    assert_int_equal(done.result, 0);
    assert_true(done.bytes >= BIG_BYTES - 4096);
}

static void test_bad_sector_that_recovers(void **state)
{
    struct io_fake_script script = {
        .bad_start = 0, .bad_end = 512, .bad_error = EIO, .bad_times = 9};
    (void)state; /* 7 halvings and 2 retries at the bad place */
    assert_int_equal(read_big(script, 512, BIG_BYTES, NULL).result, 0);
    script.bad_times = 12;
    assert_int_equal(read_big(script, 512, BIG_BYTES, NULL).result, -EIO);
}

/* Three failures in a row end a read; failures with progress between them do not, however many. */
static void test_progress_renews_patience(void **state)
{
    struct rp_io_counts counts;
    (void)state;
    struct rp_io_done done = read_big((struct io_fake_script){.seed = 29, .broken = 300}, 512,
                                      BIG_BYTES, &counts);
    assert_int_equal(done.result, 0);
    assert_true(counts.retries > 8);
}

/* The fake's close asserts that no read is in flight any more. */
static void test_close_waits(void **state)
{
    struct io_fake_script script = {.seed = 6, .again = 500, .lazy = 500};
    struct rp_io_options options = {.depth = 100};
    static uint8_t buffer[100][64];
    struct rp_io *io;
    (void)state;
    io_fake_set(&script);
    assert_int_equal(rp_io_open(&io, &io_fake_method, &options, NULL), 0);
    for (size_t i = 0; i < 100; i++) {
        struct rp_io_read read = {.object = sample.fd,
                                  .bytes = 64,
                                  .bytes_needed = 64,
                                  .alignment = 1,
                                  .buffer = buffer[i]};
        rp_io_submit(io, &read, 1);
    }
    rp_io_close(io);
}

static void test_other_errors_are_final(void **state)
{
    struct io_fake_script script = {.bad_start = 0, .bad_end = 1, .bad_error = EINVAL};
    struct rp_io_counts counts;
    (void)state;
    assert_int_equal(read_big(script, 512, BIG_BYTES, &counts).result, -EINVAL);
    assert_int_equal(counts.retries, 0);
}

static void test_the_end_of_the_file(void **state)
{
    static const uint64_t ends[] = {1, 511, 512, 4096, 5000, BIG_BYTES - 1};
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(ends); i++)
        for (uint32_t alignment = 1; alignment <= 512; alignment += 511) {
            struct io_fake_script script = {
                .seed = i, .ends_at = ends[i], .cut = 500, .again = 200};
            struct rp_io_done done = read_big(script, alignment, BIG_BYTES, NULL);
            assert_int_equal(done.result, -ENODATA);
            assert_int_equal(done.bytes, ends[i]);
            done = read_big(script, alignment, (uint32_t)ends[i], NULL);
            assert_int_equal(done.result, 0);
            assert_int_equal(done.bytes, ends[i]);
        }
}

/* No wait may hang: a disk that refuses for ever is given up. */
static void test_endless_refusal_is_given_up(void **state)
{
    (void)state;
    struct rp_io_done done = read_big((struct io_fake_script){.again = 1000}, 1, BIG_BYTES, NULL);
    assert_true(done.result == -EAGAIN || done.result == -EINTR || done.result == -EBUSY ||
                done.result == -ENOMEM);
    done = read_big((struct io_fake_script){.takes_none = true}, 1, BIG_BYTES, NULL);
    assert_int_equal(done.result, -EAGAIN);
}

/* A method that takes one read, and then breaks down with the others still queued. */
static bool is_broken_down;

static int fragile_submit(void *self, const struct rp_io_read *reads, unsigned count)
{
    (void)count;
    if (is_broken_down)
        return -EPERM;
    is_broken_down = true;
    return io_fake_method.submit(self, reads, 1);
}

static void test_a_method_that_breaks_down_loses_no_completion(void **state)
{
    struct io_fake_script script = {0};
    struct rp_io_options options = {.depth = 3};
    struct rp_io_method fragile = io_fake_method;
    struct rp_io_read reads[3];
    struct rp_io_done done[3];
    static uint8_t buffer[3][64];
    struct rp_io *io;
    (void)state;
    fragile.submit = fragile_submit;
    io_fake_set(&script);
    assert_int_equal(rp_io_open(&io, &fragile, &options, NULL), 0);
    for (uint64_t i = 0; i < 3; i++)
        reads[i] = (struct rp_io_read){.object = sample.fd,
                                       .bytes = 64,
                                       .bytes_needed = 64,
                                       .alignment = 1,
                                       .buffer = buffer[i],
                                       .tag = i};
    rp_io_submit(io, reads, 3);
    assert_int_equal(rp_io_wait(io, done, 2, 2), 2); /* and not more than there is room for */
    assert_int_equal(rp_io_wait(io, done + 2, 1, 1), 1);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(done[i].tag, i);
        assert_int_equal(done[i].result, i == 0 ? 0 : -EPERM);
    }
    rp_io_close(io);
}

/* ---- positive controls: a fake that breaks one rule ------------------------------------------ */

enum rule { TAKES_SHORT_AS_WHOLE, SWALLOWS_ERRORS, WRITES_BEHIND, SPEAKS_TOO_EARLY };
static enum rule broken_rule;
static struct rp_io_read asked[64]; /* by tag: the numbers that io.c gives to flights */

static int careless_submit(void *self, const struct rp_io_read *reads, unsigned count)
{
    int taken = io_fake_method.submit(self, reads, count);
    for (int i = 0; i < taken; i++)
        asked[reads[i].tag] = reads[i];
    return taken;
}

static int careless_reap(void *self, uint64_t *tags, int64_t *results, unsigned max,
                         unsigned wait_min)
{
    int count = io_fake_method.reap(self, tags, results, max, wait_min);
    if (broken_rule == SPEAKS_TOO_EARLY)
        for (int i = 0; i < count; i++)
            memset(asked[tags[i]].buffer, 0, asked[tags[i]].bytes);
    for (int i = 0; i < count; i++) {
        const struct rp_io_read *read = &asked[tags[i]];
        bool failed = results[i] < 0;
        if ((broken_rule == TAKES_SHORT_AS_WHOLE && !failed) ||
            (broken_rule == SWALLOWS_ERRORS && failed))
            results[i] = read->bytes;
        if (broken_rule == WRITES_BEHIND)
            ((uint8_t *)read->buffer)[read->bytes] = 0;
    }
    return count;
}

static void check_control(enum rule rule, struct io_fake_script script)
{
    struct rp_io_method careless = io_fake_method;
    careless.submit = careless_submit;
    careless.reap = careless_reap;
    broken_rule = rule;
    io_fake_set(&script);
    struct io_run run = run_of(&careless, script.seed);
    assert_true(run.depth <= RP_ARRAY_COUNT(asked));
    assert_true(io_run_reads(&run) > 0);
}

static void test_controls_are_caught(void **state)
{
    (void)state;
    check_control(TAKES_SHORT_AS_WHOLE, (struct io_fake_script){.seed = 1, .cut = 600});
    check_control(SWALLOWS_ERRORS, (struct io_fake_script){.seed = 2, .again = 300});
    check_control(SPEAKS_TOO_EARLY, (struct io_fake_script){.seed = 5, .reorder = true});
    check_control(WRITES_BEHIND, (struct io_fake_script){.seed = 4});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_reads_are_continued),
        cmocka_unit_test(test_refusals_are_asked_again),
        cmocka_unit_test(test_passing_eio_is_asked_again),
        cmocka_unit_test(test_any_order_of_completions),
        cmocka_unit_test(test_everything_at_once),
        cmocka_unit_test(test_bad_sector_is_located),
        cmocka_unit_test(test_bad_sector_in_the_slack_is_left_alone),
        cmocka_unit_test(test_bad_sector_that_recovers),
        cmocka_unit_test(test_progress_renews_patience),
        cmocka_unit_test(test_close_waits),
        cmocka_unit_test(test_other_errors_are_final),
        cmocka_unit_test(test_the_end_of_the_file),
        cmocka_unit_test(test_endless_refusal_is_given_up),
        cmocka_unit_test(test_a_method_that_breaks_down_loses_no_completion),
        cmocka_unit_test(test_controls_are_caught),
    };
    return cmocka_run_group_tests(tests, make_sample, free_sample);
}
