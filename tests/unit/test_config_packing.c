/* SPDX-License-Identifier: Apache-2.0 */
/* The size of each packing: `packing_buffer`, `open_bins`, and `window`, the older name of both. */
#include "config_files.h"
#include "log_kit.h"

#define STAGES MINIMAL "stages:\n"

static struct rp_config_stage *stage(uint32_t number)
{
    return &config.stages.stages[number];
}

static void each_packing_has_its_own_key(void **state)
{
    (void)state;
    must(finish_text(MINIMAL "packing_buffer: 8\n"));
    assert_int_equal(rp_config_window(&config), 8);
    must(finish_text(MINIMAL "packing: best_fit\nopen_bins: 9\n"));
    assert_int_equal(rp_config_window(&config), 9);
    must(finish_text(MINIMAL "packing: best_fit\n"));
    assert_int_equal(rp_config_window(&config), 64);
}

static const struct {
    const char *text, *message, *hint;
} refused[] = {
    {MINIMAL "open_bins: 9\n",
     "c.yaml:4: open_bins: it is the size of packing: best_fit, and packing is lookahead",
     "give `packing_buffer`, or choose packing: best_fit"},
    {MINIMAL "stream_version: 1\npacking: best_fit\npacking_buffer: 9\n",
     "c.yaml:6: packing_buffer: it is the size of packing: lookahead, and packing is best_fit",
     "give `open_bins`, or choose packing: lookahead"},
    {MINIMAL "packing: concat\nopen_bins: 9\n",
     "c.yaml:5: open_bins: it is the size of packing: best_fit, and packing is concat",
     "leave it out, or choose packing: best_fit"},
    {STAGES "- {until: 5 steps}\n- {open_bins: 5}\n",
     "c.yaml:6:15: open_bins: it is the size of packing: best_fit, and packing is lookahead",
     "give `packing_buffer`"},
    {STAGES "- {until: 5 steps, packing: best_fit}\n- {packing_buffer: 5}\n",
     "c.yaml:6:20: packing_buffer: it is the size of packing: lookahead, and packing is best_fit",
     "give `open_bins`"},
    {STAGES "- {packing: concat, window: 5}\n",
     "c.yaml:5:29: packing_buffer: packing is concat in stage 0, which has none", "leave it out"},
    {STAGES "- {until: 5 steps, packing: concat}\n- {packing: best_fit, row_gap: pad}\n",
     "c.yaml:6:13: packing: stage 1 follows packing: concat, which has neither of them",
     "add `open_bins` and `row_gap` to the stage"},
    {MINIMAL "packing_buffer: 8\nwindow: 8\n", "c.yaml:5:1: window: the key is given twice", NULL},
    {MINIMAL "window: 8\nopen_bins: 8\n", "c.yaml:5:1: open_bins: the key is given twice", NULL},
    {STAGES "- {open_bins: 5, window: 5}\n", "c.yaml:5:18: window: the key is given twice", NULL},
};

static void a_size_of_another_packing_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(refused); i++) {
        assert_int_equal(finish_text(refused[i].text), -RP_E_CONFIG);
        assert_non_null(strstr(error.message, refused[i].message));
        assert_true(!refused[i].hint || strstr(error.hint, refused[i].hint));
    }
}

/* The sizes are independent: no stage packs with the size of another packing. */
static void a_stage_has_the_newest_value_of_its_own_key(void **state)
{
    (void)state;
    must(finish_text(MINIMAL "packing_buffer: 8\nstages:\n"
                             "- {until: 5 steps}\n"
                             "- {until: 6 steps, packing: best_fit}\n"
                             "- {until: 7 steps, open_bins: 3}\n"
                             "- {until: 8 steps, packing: lookahead}\n"
                             "- {until: 9 steps, packing: best_fit}\n"
                             "- {seq_len: 64}\n"));
    static const uint32_t windows[] = {0, 64, 3, 8, 3, 0}; /* 0: as before */
    for (uint32_t i = 0; i < RP_ARRAY_COUNT(windows); i++)
        assert_int_equal(stage(i)->window, windows[i]);
    must(finish_text(MINIMAL "packing_buffer: 8\nopen_bins: 3\nstages:\n"
                             "- {until: 5 steps}\n- {packing: best_fit}\n"));
    assert_int_equal(stage(1)->window, 3);
    must(finish_text(STAGES "- {until: 5 steps}\n- {packing: best_fit}\n"));
    assert_int_equal(stage(1)->window, 0); /* both are 64 */
}

/* As when there was one key: its number stays when a stage changes the packing. */
static void the_older_name_sets_both_sizes(void **state)
{
    (void)state;
    static const char *const packings[] = {"lookahead", "best_fit"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(packings); i++) {
        char text[256];
        snprintf(text, sizeof text, MINIMAL "window: 8\npacking: %s\n", packings[i]);
        hear_log();
        int code = finish_text(text);
        const char *heard = log_heard();
        must(code);
        assert_int_equal(rp_config_window(&config), 8);
        assert_non_null(strstr(heard, "`window` is now `packing_buffer`, or, with packing: "
                                      "best_fit, `open_bins`"));
    }
    must(finish_text(MINIMAL "window: 8\npacking: concat\n")); /* it was read, and not used */
    must(finish_text(MINIMAL "window: 8\nstages:\n- {until: 5 steps}\n"
                             "- {until: 6 steps, packing: best_fit}\n- {window: 9}\n"));
    assert_int_equal(stage(1)->window, 0);
    assert_int_equal(stage(2)->window, 9);
    char text[256];
    rp_config_stage_text(&config, 2, text, sizeof text);
    assert_string_equal(text, "{open_bins: 9}");
    must(finish_text(MINIMAL "deal: {window: 8, step: 4, tier: 4, cost: 9}\n"));
    assert_int_equal(config.deal.window, 8); /* a deal's key of that name */
}

static void set(const char *key, const char *text)
{
    must(rp_config_set(&config, key, text, &error));
}

static void a_size_may_be_replaced_with_its_packing(void **state)
{
    (void)state;
    must(read_text(MINIMAL "packing_buffer: 8\n"));
    set("packing", "best_fit");
    must(rp_config_finish(&config, &error));
    assert_int_equal(rp_config_window(&config), 64);
    must(read_text(MINIMAL "window: 8\npacking: best_fit\n"));
    set("open-bins", "3");
    must(rp_config_finish(&config, &error));
    assert_int_equal(rp_config_window(&config), 3);
    must(read_text(MINIMAL "packing_buffer: 8\n"));
    set("window", "3");
    must(rp_config_finish(&config, &error));
    assert_int_equal(rp_config_window(&config), 3);
    must(read_text(MINIMAL "packing: best_fit\n"));
    set("packing_buffer", "8");
    assert_int_equal(rp_config_finish(&config, &error), -RP_E_CONFIG);
    must(finish_text(MINIMAL "packing: best_fit\nopen_bins: 8\n"
                             "streams: {train: {packing: lookahead}, eval: {}}\n"));
    assert_int_equal(rp_config_window(&config), 64);
}

/* A program writes a config on one line: who gave a key is not told by its line. */
static void a_config_may_be_on_one_line(void **state)
{
    (void)state;
    static const char rest[] = "\"sources\": [\"one.bin\"], \"seq_len\": 8, \"batch_size\": 1}";
    char text[256];
    snprintf(text, sizeof text,
             "{\"packing_buffer\": 8, \"streams\": {\"a\": {\"packing\": \"best_fit\"}}, %s", rest);
    must(finish_text(text));
    assert_int_equal(rp_config_window(&config), 64);
    snprintf(text, sizeof text, "{\"window\": 8, \"streams\": {\"a\": {\"open_bins\": 3}}, %s",
             rest);
    assert_int_equal(finish_text(text), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "open_bins: it is the size of packing: best_fit"));
}

/* A kept text, of this ringpack or of an older one, has the name that was given. */
static void a_kept_config_has_the_older_name(void **state)
{
    (void)state;
    char file[256];
    snprintf(file, sizeof file, MINIMAL "window: 7\n# ringpack: file %s/c.yaml\n", directory);
    static const char *const packings[] = {"lookahead", "best_fit"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(packings); i++) {
        must(read_text(MINIMAL));
        set("window", "8");
        set("packing", packings[i]);
        char *kept = rp_config_kept_text(&config);
        const char *const texts[] = {file, kept};
        for (uint32_t k = 0; k < RP_ARRAY_COUNT(texts); k++) {
            rp_config_free(&config);
            rp_config_init(&config);
            hear_log();
            int code = rp_config_read_kept(&config, texts[k], strlen(texts[k]), "it", &error);
            const char *heard = log_heard();
            must(code);
            assert_string_equal(heard, "");
            set("packing", packings[i]);
            must(rp_config_finish(&config, &error));
            assert_int_equal(rp_config_window(&config), 7 + k);
        }
        free(kept);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_packing_has_its_own_key),
        cmocka_unit_test(a_size_of_another_packing_is_refused),
        cmocka_unit_test(a_stage_has_the_newest_value_of_its_own_key),
        cmocka_unit_test(the_older_name_sets_both_sizes),
        cmocka_unit_test(a_size_may_be_replaced_with_its_packing),
        cmocka_unit_test(a_config_may_be_on_one_line),
        cmocka_unit_test(a_kept_config_has_the_older_name)};
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
