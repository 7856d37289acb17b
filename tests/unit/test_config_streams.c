/* SPDX-License-Identifier: Apache-2.0 */
/* `streams`: a chosen stream is the config that its keys at the top would make, options win over
 * both, and mistakes are refused at their place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

static const char text[] = "run: r\nseed: 1\nseq_len: 8\nbatch_size: 2\ncheckpoint_dir: /c\n"
                           "checkpoint_mirror_dir: /m\nindex: /all.rpi\ncorpus: /web\n"
                           "streams:\n"
                           "  first: {seed: 5}\n"
                           "  train:\n"
                           "  eval:\n"
                           "    corpus: [held-out]\n"
                           "    num_epochs: 3\n"
                           "    deal: auto\n"
                           "    batch_size: 8\n";

static struct rp_config config;
static struct rp_error error;

static int choose(const char *of, const char *stream, const char *key, const char *value)
{
    rp_config_free(&config);
    rp_config_init(&config);
    error = (struct rp_error){0};
    int code = rp_config_read_text(&config, of, strlen(of), "dir/c.yaml", &error);
    if (code == 0 && stream)
        code = rp_config_set(&config, "stream", stream, &error);
    if (code == 0 && key)
        code = rp_config_set(&config, key, value, &error);
    return code == 0 ? rp_config_choose_stream(&config, &error) : code;
}

static void a_stream_has_its_own_keys(void **state)
{
    (void)state;
    assert_int_equal(choose(text, "eval", NULL, NULL), 0);
    assert_string_equal(config.run, "r.eval");
    assert_string_equal(rp_config_stream_name(&config), "eval");
    assert_true(config.is_repeated);
    assert_int_equal(config.seed, 1);
    assert_int_equal(config.batch_size, 8);
    assert_int_equal(config.num_epochs, 3);
    assert_int_equal(config.deal.mode, RP_DEAL_AUTO);
    assert_int_equal(config.source_count, 1);
    assert_string_equal(config.sources[0].shards[0], "dir/held-out");
    assert_null(config.index); /* it is of the sources at the top */
    assert_string_equal(config.checkpoint_dir, "none");
    assert_int_equal(rp_config_choose_stream(&config, &error), 0); /* once */
    assert_string_equal(config.run, "r.eval");
}

static void the_main_stream_is_the_run(void **state)
{
    (void)state;
    for (int named = 0; named < 2; named++) {
        assert_int_equal(choose(text, named ? "train" : NULL, NULL, NULL), 0);
        assert_string_equal(config.run, "r");
        assert_string_equal(rp_config_stream_name(&config), "train");
        assert_false(config.is_repeated);
        assert_int_equal(config.seed, 1);
        assert_string_equal(config.checkpoint_dir, "/c");
        assert_string_equal(config.index, "/all.rpi");
        assert_string_equal(config.sources[0].shards[0], "/web");
    }
    static const char one[] = "streams: {a: {seed: 4}, b: {}}\nseed: 2\n";
    assert_int_equal(choose(one, NULL, NULL, NULL), 0);
    assert_string_equal(rp_config_stream_name(&config), "a");
    assert_int_equal(config.seed, 4);
}

static void options_win(void **state)
{
    (void)state;
    assert_int_equal(choose(text, "eval", "batch_size", "3"), 0);
    assert_int_equal(config.batch_size, 3);
    assert_int_equal(choose(text, "first", "seed", "9"), 0);
    assert_int_equal(config.seed, 9);
    assert_int_equal(choose(text, "eval", "sources", "/other"), 0);
    assert_int_equal(config.source_count, 1);
    assert_string_equal(config.sources[0].shards[0], "/other");
    assert_int_equal(choose("seed: 2\n", NULL, "streams", "{train: {seed: 3}}"), 0);
    assert_int_equal(config.seed, 3);
}

static void a_kept_config_chooses_again(void **state)
{
    (void)state;
    assert_int_equal(choose(text, "eval", NULL, NULL), 0);
    char *kept = rp_config_kept_text(&config);
    assert_non_null(kept);
    struct rp_config again;
    rp_config_init(&again);
    assert_int_equal(rp_config_read_kept(&again, kept, strlen(kept), "x", &error), 0);
    assert_int_equal(rp_config_choose_stream(&again, &error), 0);
    assert_string_equal(again.run, "r.eval");
    assert_int_equal(again.batch_size, 8);
    rp_config_free(&again);
    free(kept);
}

static void mistakes_have_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *stream, *said;
    } bad[] = {
        {text, "evla",
         "there is no stream `evla` (did you mean `eval`?); the streams are first, "
         "train, eval"},
        {"seed: 1\n", "eval", "stream: `eval`: the config has no `streams`"},
        {"streams: {}\n", NULL, "dir/c.yaml:1:10: streams: expected a stream"},
        {"streams: [a]\n", NULL, "dir/c.yaml:1:10: streams: expected a mapping"},
        {"streams:\n  a/b: {}\n", NULL, "dir/c.yaml:2:3: streams: expected a name"},
        {"streams: {'': {}}\n", NULL, "dir/c.yaml:1:11: streams: expected a name"},
        {"streams: {-a: {}}\n", NULL, "streams: expected a name"},
        {"streams: {\xc3\xa9: {}}\n", NULL, "streams: expected a name"},
        {"streams: {a.b: {}}\n", NULL, "streams: expected a name"},
        {"streams: {a: {}, a: {}}\n", NULL, "dir/c.yaml:1:18: streams: stream a is given twice"},
        {"streams: {a: 5}\n", NULL, "stream a: expected a mapping of keys, found a value"},
        {"streams: {a: {seeds: 5}}\n", NULL, "dir/c.yaml:1:15: seeds: unknown key; did you mean"},
        {"streams: {a: {seed: x}}\n", NULL, "dir/c.yaml:1:21: seed: expected a whole number"},
        {"streams: {a: {run: x}}\n", NULL, "dir/c.yaml:1:20: run: all streams have it in common"},
        {"streams: {a: {consumers_per_rank: 2}}\n", NULL,
         "consumers_per_rank: all streams have it in common"},
        {"streams: {a: {streams: {b: {}}}}\n", NULL, "streams: all streams have it in common"},
        {"streams: {a: {}, b: {checkpoint_dir: /c}}\n", NULL,
         "dir/c.yaml:1:18: streams: stream b has a checkpoint_dir"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(choose(bad[i].text, bad[i].stream, NULL, NULL) < 0);
        if (!strstr(error.message, bad[i].said))
            print_error("found: %s\n", error.message);
        assert_non_null(strstr(error.message, bad[i].said));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_has_its_own_keys),
        cmocka_unit_test(the_main_stream_is_the_run),
        cmocka_unit_test(options_win),
        cmocka_unit_test(a_kept_config_chooses_again),
        cmocka_unit_test(mistakes_have_their_place),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rp_config_free(&config);
    return failed;
}
