/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of stream version 2: their nested values, the rows that stages and skips become, and the
 * message of every mistake. */
#include "config_files.h"

#define SOURCES "sources:\n- {name: web, path: one.bin}\n- {name: book, path: raw/z.npy}\n"
#define TWO "stream_version: 2\nseq_len: 128\nbatch_size: 4\n" SOURCES
#define STAGES TWO "stages:\n" /* its first stage is on line 8 */

static const struct rp_config_stage *stage(uint32_t number)
{
    assert_true(number < config.stages.count);
    return &config.stages.stages[number];
}

static void ends_of_stages_become_rows(void **state)
{
    (void)state;
    must(finish_text(STAGES "- {until: 10 steps}\n"
                            "- {until: 30k tokens, seq_len: 256, global_batch_size: 8}\n"
                            "- {until: row 304}\n"
                            "- {until: 100 steps, seq_len: 64}\n"
                            "- {batch_size: 2}\n"));
    assert_int_equal(config.stages.count, 5);
    assert_int_equal(stage(1)->from, 10 * 4);
    assert_int_equal(stage(1)->first_step, 10);
    /* 30,000 - 40 * 128 = 24,880 places are 12.1 steps of 8 * 256 */
    assert_int_equal(stage(2)->from, 40 + 13 * 8);
    assert_int_equal(stage(2)->first_step, 23);
    assert_int_equal(stage(2)->step_rows, 8);
    assert_int_equal(stage(3)->from, 304);
    assert_int_equal(stage(3)->first_step, 23 + (304 - 144) / 8);
}

static void stages_set_what_they_give(void **state)
{
    (void)state;
    must(finish_text(STAGES "- {until: 1 step, weights: {web: 0.5, book: 1.5}}\n"
                            "- until: 2 steps\n"
                            "  limits: {book: {max_epochs: endless, on_exhausted: stop}}\n"
                            "  without: {web: gone.txt}\n"
                            "  documents: {book: 2k}\n"
                            "- {weights: {book: 3}, ramp: 1k, packing: concat, deal: auto}\n"));
    const struct rp_config_by_source *weights = &stage(0)->weights;
    assert_int_equal(weights->count, 2);
    assert_int_equal(weights->pairs[0].weight, 1);
    assert_int_equal(weights->pairs[1].weight, 3);
    assert_int_equal(weights->pairs[1].source, 1);
    assert_int_equal(stage(1)->limits.pairs[0].source, 1);
    assert_int_equal(stage(1)->limits.pairs[0].limits.sets, 5);
    assert_int_equal(stage(1)->limits.pairs[0].limits.on_exhausted, 1);
    assert_string_equal(stage(1)->without.pairs[0].path, "gone.txt");
    assert_int_equal(stage(1)->documents.pairs[0].number, 2000);
    assert_int_equal(stage(2)->ramp, 1000);
    assert_int_equal(stage(2)->packing, 1);
    assert_int_equal(stage(2)->deal.mode, RP_DEAL_AUTO);
    assert_true(rp_config_stage_gives(stage(2), "ramp"));
    assert_false(rp_config_stage_gives(stage(2), "row_gap"));
}

static void sources_have_limits_and_selections(void **state)
{
    (void)state;
    must(finish_text(
        "stream_version: 2\nseq_len: 128\nbatch_size: 4\nnum_epochs: 3\nsources:\n"
        "- {name: web, path: one.bin, weight: 0, atomic: true, too_long: drop,\n"
        "   drop_untrained: fragment, select: score > 1, max_tokens: 3g,\n"
        "   repeat: {3: score > 5, 2: score > 4}, on_exhausted: error}\n"
        "- {name: book, path: raw/z.npy, max_epochs: endless, drop_untrained: true}\n"));
    const struct rp_config_source *web = &config.sources[0], *book = &config.sources[1];
    assert_int_equal(web->weight, 0);
    assert_int_equal(book->weight, 1);
    assert_true(web->atomic);
    assert_int_equal(web->too_long, 0);
    assert_int_equal(web->drop_untrained, 2);
    assert_int_equal(book->drop_untrained, 1);
    assert_string_equal(web->select, "score > 1");
    assert_int_equal(web->repeat.count, 2);
    assert_int_equal(web->repeat.entries[0].count, 2);
    assert_string_equal(web->repeat.entries[1].expression, "score > 5");
    assert_true(web->limits.max_tokens == UINT64_C(3000000000));
    assert_int_equal(web->limits.max_epochs, 3); /* num_epochs */
    assert_int_equal(web->limits.on_exhausted, 2);
    assert_int_equal(book->limits.max_epochs, 0);
}

static void skips_become_rows(void **state)
{
    (void)state;
    must(finish_text(STAGES "- {until: 10 steps}\n- {global_batch_size: 8}\n"
                            "skip: {steps: [9-12, 20], rows: [1, 2-4, 60-70]}\n"));
    const struct rp_config_ranges *all = &config.skip.all;
    /* rows 1-4; steps 9, 10 and 11 are rows 36-40 and 40-56; rows 60-70; step 20 */
    assert_int_equal(all->count, 4);
    assert_int_equal(all->ranges[0].first, 1);
    assert_int_equal(all->ranges[0].end, 4);
    assert_int_equal(all->ranges[1].first, 36);
    assert_int_equal(all->ranges[1].end, 56);
    assert_int_equal(all->ranges[3].first, 120);
    assert_int_equal(all->ranges[3].end, 128);
}

static void check_value(const char *key, const char *text, const char *expected)
{
    char value[512];
    rp_config_free(&config);
    rp_config_init(&config);
    for (int round = 0; round < 2; round++) { /* what is printed sets the same value */
        must(rp_config_set(&config, key, round ? value : text, &error));
        rp_config_value_text(&config, key, value, sizeof value);
        assert_string_equal(value, expected);
    }
}

static void nested_values_are_printed_as_they_are_set(void **state)
{
    (void)state;
    check_value("deal", "off", "off");
    check_value("deal", "auto", "auto");
    check_value("deal", "{order: middle, window: 64, step: 8, tier: 2, cost: 4k, bundle: 1}",
                "{window: 64, step: 8, tier: 2, order: middle, cost: 4000}");
    check_value("deal", "{window: 64, order: descending, bundle: 1}",
                "{window: 64, bundle: 1, order: descending}");
    check_value("deal", "{step: 8}", "{step: 8}");
    check_value("cost", "16k", "16000");
    check_value("cost", "{k: 7}", "7");
    check_value("cost", "{k: 7, attention_window: 64}", "{k: 7, attention_window: 64}");
    check_value("cost", "{gated: no, heads: 4, hidden: 64, ffn: 256, kv_heads: 4}",
                "{hidden: 64, ffn: 256, heads: 4, kv_heads: 4, gated: false}");
    check_value("skip", "{rows: 5, steps: [1-2, 7-9]}", "{rows: [5], steps: [1, 7-9]}");
    check_value(
        "stages",
        "[{until: 1k steps, weights: {\"a b\": 0.5, c: 0}}, "
        "{limits: {c: {max_tokens: 5, max_epochs: 0}}, without: {c: /x/y}, row_gap: split}]",
        "[{until: 1000 steps, weights: {\"a b\": 0.5, c: 0}}, "
        "{limits: {c: {max_epochs: endless, max_tokens: 5}}, without: {c: /x/y}, "
        "row_gap: split}]");
    char cut[8];
    rp_config_value_text(&config, "stages", cut, sizeof cut);
    assert_string_equal(cut, "[{until");
}

static void a_kept_config_has_its_stages(void **state)
{
    (void)state;
    must(read_text(STAGES "- {until: 10 steps}\n- {weights: {web: 2}, without: {web: raw/x}}\n"));
    must(rp_config_set(&config, "skip", "{rows: [4-8]}", &error));
    char *kept = rp_config_kept_text(&config);
    assert_non_null(kept);
    rp_config_free(&config);
    rp_config_init(&config);
    must(rp_config_read_kept(&config, kept, strlen(kept), "it", &error));
    must(rp_config_finish(&config, &error));
    free(kept);
    assert_int_equal(stage(1)->from, 40);
    assert_int_equal(stage(1)->without.pairs[0].path[0], '/'); /* relative to the file, as before */
    assert_int_equal(config.skip.all.ranges[0].end, 8);
}

/* Key by key, in the file and in a source. */
static void a_stream_of_version_1_refuses_each_key(void **state)
{
    (void)state;
    static const char *const keys[] = {"align: 8",           "spread: 4", "group: 2",
                                       "bos_id: 1",          "eos_id: 1", "label_across_cuts: on",
                                       "deal: off",          "grow: on",  "skip: {rows: 1}",
                                       "stages: [{ramp: 0}]"};
    static const char *const of_source[] = {
        "select: a > 1", "repeat: {2: a > 1}", "atomic: on",        "too_long: drop",
        "max_epochs: 2", "max_tokens: 2",      "on_exhausted: stop"};
    char text[256], expected[160];
    for (size_t i = 0; i < RP_ARRAY_COUNT(keys) + RP_ARRAY_COUNT(of_source); i++) {
        bool is_key = i < RP_ARRAY_COUNT(keys);
        const char *line = is_key ? keys[i] : of_source[i - RP_ARRAY_COUNT(keys)];
        snprintf(text, sizeof text,
                 "stream_version: 1\nseq_len: 8\nbatch_size: 1\nsources: [{path: one.bin%s%s}]\n%s",
                 is_key ? "" : ", ", is_key ? "" : line, is_key ? line : "");
        snprintf(expected, sizeof expected,
                 ": %.*s: this key is of stream version 2, and this stream is of version 1",
                 (int)strcspn(line, ":"), line);
        assert_int_equal(finish_text(text), -RP_E_CONFIG);
        assert_non_null(strstr(error.message, is_key ? "c.yaml:5" : "c.yaml:4:"));
        assert_non_null(strstr(error.message, expected));
        assert_string_equal(error.hint, "write `stream_version: 2`");
    }
    assert_int_equal(finish_text(TWO "plan_partitions: 2\n"), -RP_E_CONFIG);
    assert_string_equal(
        error.message,
        "c.yaml:7: plan_partitions: expected 1, found 2: the key is of stream version 1 only");
    assert_int_equal(finish_text("stream_version: 3\n" MINIMAL), -RP_E_CONFIG);
}

static const char *const mistakes[][2] = {
    /* the form */
    {STAGES "- 5\n", "c.yaml:8:3: stages: expected a mapping: the keys of a stage, found `5`"},
    {TWO "stages: {until: 5 steps}\n", "c.yaml:7:9: stages: expected a list of stages, found a "
                                       "mapping"},
    {TWO "stages: []\n", "c.yaml:7:9: stages: expected a list of stages, found an empty one"},
    {STAGES "- {util: 5 steps}\n", "c.yaml:8:4: util: unknown key; did you mean `until`?"},
    {STAGES "- {until: 5 stepz}\n", "c.yaml:8:11: until: expected `N steps`, `N tokens` or `row N`,"
                                    " such as 200k steps, found `5 stepz`"},
    {STAGES "- {until: -5 steps}\n",
     "c.yaml:8:11: until: expected `N steps`, `N tokens` or `row N`, such as 200k steps, found "
     "`-5 steps`"},
    {STAGES "- {packing: tight}\n",
     "c.yaml:8:13: packing: expected one of lookahead, concat, best_fit, found `tight`"},
    {STAGES "- {open_bins: 5000}\n", "c.yaml:8:15: open_bins: expected 1 … 4096, found 5000"},
    {STAGES "- {seq_len: 8k}\n", "c.yaml:8:13: seq_len: `8k` could be 8000 or 8192"},
    /* weights */
    {STAGES "- {weights: 5}\n",
     "c.yaml:8:13: weights: expected a mapping by the names of sources, found `5`"},
    {STAGES "- {weights: {web: nan}}\n",
     "c.yaml:8:19: weights: expected a number with at most 6 decimals, such as 2, 0.25 or 0, found "
     "`nan`"},
    {STAGES "- {weights: {web: -1}}\n",
     "c.yaml:8:19: weights: expected a number with at most 6 decimals, such as 2, 0.25 or 0, found "
     "`-1`"},
    {STAGES "- {weights: {web: 0, book: 0}}\n",
     "c.yaml:8:13: weights: all weights of stage 0 are 0"},
    {STAGES "- {weights: {wob: 1}}\n",
     "c.yaml:8:14: weights: no source is named `wob`; did you mean `web`?"},
    {STAGES "- {weights: {web: 1, web: 2}}\n",
     "c.yaml:8:22: weights: the source `web` is named twice"},
    {STAGES "- {weights: {web: 5000.000001, book: 1}}\n",
     "c.yaml:8:13: weights: the weights of stage 0 have no common scale below 2^32"},
    {STAGES "- {limits: {xyzzy: {max_tokens: 5}}}\n",
     "c.yaml:8:13: limits: no source is named `xyzzy`"},
    {STAGES "- {limits: {web: {}}}\n",
     "c.yaml:8:18: limits: expected a limit, found an empty mapping"},
    {STAGES "- {limits: {web: {max_token: 5}}}\n",
     "c.yaml:8:19: max_token: unknown key; did you mean `max_tokens`?"},
    /* ramps */
    {STAGES "- {until: 5 steps}\n- {ramp: 5}\n",
     "c.yaml:9:10: ramp: stage 1 sets no weights to move to"},
    {STAGES "- {weights: {web: 1}, ramp: 5}\n",
     "c.yaml:8:29: ramp: stage 0 has no weights before it to move from"},
    {STAGES "- {until: 5 steps}\n- {until: 6 steps, weights: {web: 1}, ramp: 5}\n"
            "- {weights: {web: 2}}\n",
     "c.yaml:10:13: weights: stage 2 begins at row 24, and the ramp of stage 1 ends at row 25"},
    /* ends */
    {STAGES "- {until: 5 steps}\n", "c.yaml:8:11: until: the last stage ends with the stream"},
    {STAGES "- {row_gap: pad}\n- {row_gap: pad}\n",
     "c.yaml:8:3: until: stage 0 has no end, and stage 1 follows it"},
    {STAGES "- {until: 5 steps}\n- {until: 5 steps}\n- {row_gap: pad}\n",
     "c.yaml:9:11: until: stage 1 begins at step 5, and would end at 5"},
    {STAGES "- {until: 5 steps}\n- {until: row 8}\n- {row_gap: pad}\n",
     "c.yaml:9:11: until: stage 1 begins at row 20, and would end at 8"},
    {STAGES "- {until: 5 steps}\n- {until: 2560 tokens}\n- {row_gap: pad}\n",
     "c.yaml:9:11: until: stage 1 begins at token 2560, and would end at 2560"},
    {STAGES "- {until: row 18}\n- {row_gap: pad}\n",
     "c.yaml:8:11: until: row 18 is within a step of 4 rows; stage 0 may end at row 16 or row 20"},
    {STAGES "- {until: row 3}\n- {row_gap: pad}\n",
     "c.yaml:8:11: until: row 3 is within a step of 4 rows; stage 0 may end at row 4"},
    {STAGES "- {until: 9000000t steps}\n- {row_gap: pad}\n",
     "c.yaml:8:11: until: stage 0 would end after 2^63 rows or tokens"},
    /* rows and batches */
    {STAGES "- {align: 3}\n", "c.yaml:8:3: seq_len: seq_len 128 of stage 0 is no multiple of align "
                              "3"},
    {STAGES "- {max_docs_per_row: 200}\n",
     "c.yaml:8:22: max_docs_per_row: expected 1 … 128 (group and seq_len of stage 0), found 200"},
    {STAGES "- {packing: concat, open_bins: 5}\n",
     "c.yaml:8:32: open_bins: packing is concat in stage 0, which has none"},
    {STAGES "- {until: 5 steps, packing: concat}\n- {packing: best_fit, open_bins: 5}\n",
     "c.yaml:9:13: packing: stage 1 follows packing: concat, which has neither of them"},
    {STAGES "- {global_batch_size: 6}\n",
     "c.yaml:8:23: global_batch_size: 6 rows of a step of stage 0 are no multiple of 4 (batch_size "
     "* dp_world_size)"},
    {TWO "align: 3\n", "c.yaml:2: seq_len: expected a multiple of align 3, and at least group 1; "
                       "found 128"},
    /* deal, skip, repeat */
    {TWO "deal: on\n", "c.yaml:7:7: deal: expected off, auto, or a mapping of window, step, tier "
                       "and cost, found `on`"},
    {TWO "deal: {window: 8, tier: 3}\n", "c.yaml:7:7: deal: window 8 is no multiple of tier 3"},
    {TWO "deal: {}\n", "c.yaml:7:7: deal: expected a key of a deal, found an empty mapping"},
    {TWO "deal: {window: 8, layers: 2}\n",
     "c.yaml:7:7: deal: windows of attention are given without `cost`"},
    {TWO "cost: 9\ndeal: {cost: 8}\n",
     "c.yaml:8:7: deal: its cost 8, with 0 of 1 layers of a window of 0, is not the key `cost`: 9, "
     "0 of 1, 0"},
    {STAGES "- {deal: {cost: 9, attention_window: 4, window_layers: 1, layers: 2}}\n"
            "cost: {k: 9, attention_window: 5, window_layers: 2, layers: 4}\n",
     "c.yaml:8:10: deal: its cost 9, with 1 of 2 layers of a window of 4, is not the key `cost`: "
     "9, "
     "1 of 2, 5"},
    {TWO "deal: {window: 9, step: 4, tier: 2, cost: 1}\n",
     "c.yaml:7:7: deal: window 9 is no multiple of step 4"},
    {TWO "skip: [5]\n", "c.yaml:7:7: skip: expected a mapping of `rows` and `steps`, found a list"},
    {TWO "skip: {rows: [5-5]}\n",
     "c.yaml:7:15: rows: expected a number, or FIRST-END without END, such as 100-200; found "
     "`5-5`"},
    {TWO "skip: {row: 5}\n",
     "c.yaml:7:8: skip: expected a mapping of `rows` and `steps`, found `row`"},
    {"sources: [{path: a, repeat: {1: a > 1}}]\n",
     "c.yaml:1:30: repeat: expected a count of 2 … 255 before the colon, found `1`"},
    {"sources: [{path: a, repeat: {2: a > 1, 2: b > 1}}]\n",
     "c.yaml:1:40: repeat: the count 2 is given twice"},
    {"sources: [{path: a, drop_untrained: all}]\n",
     "c.yaml:1:37: drop_untrained: expected one of none, document, fragment, found `all`"},
    /* the rest */
    {TWO "bos_id: 300\nvocab_size: 256\n",
     "c.yaml:7: bos_id: expected a token id below 256, found 300"},
    {TWO "label_across_cuts: true\nlabel_mode: aligned\n",
     "c.yaml:7: label_across_cuts: label_mode is aligned, which has no place for such a label"},
    {TWO "group: 3\nshuffle: block\nblock_documents: 100\n",
     "c.yaml:9: block_documents: expected a multiple of group, which is 3; found 100"},
    {"stream_version: 2\nseq_len: 8\nbatch_size: 1\nsources: [{path: one.bin, too_long: drop}]\n",
     "c.yaml:4:37: too_long: documents of `one` may be cut, and only atomic ones can be too long"},
    {"stream_version: 2\nseq_len: 8\nbatch_size: 1\neos_id: 5\n"
     "sources: [{path: one.bin, eos: 5}]\n",
     "c.yaml:5:32: eos: documents of `one` end with token 5 already, which eos_id would insert "
     "once more"},
    {"stream_version: 2\nseq_len: 8\nbatch_size: 1\ngroup: 2\n"
     "sources: [{path: one.bin, documents: 3-}]\n",
     "c.yaml:5:38: documents: expected a FIRST that is a multiple of group, which is 2; found "
     "`3-`"},
    {"stream_version: 2\nseq_len: 8\nbatch_size: 1\nsources: [{path: one.bin, weight: 0}]\n",
     "c.yaml:4: sources: all sources have the weight 0"},
};

static void mistakes_are_told_with_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(mistakes); i++) {
        assert_int_equal(finish_text(mistakes[i][0]), -RP_E_CONFIG);
        assert_string_equal(error.message, mistakes[i][1]);
    }
    must(read_text(MINIMAL));
    assert_int_equal(rp_config_set(&config, "stages", "[{until: 5}]", &error), -RP_E_CONFIG);
    assert_string_equal(error.message, "--stages:1:10: until: expected `N steps`, `N tokens` or "
                                       "`row N`, such as 200k steps, found `5`");
    assert_int_equal(rp_config_set(&config, "skip", "", &error), -RP_E_CONFIG);
    assert_string_equal(error.message, "--skip: skip: the value is empty");
}

/* K of the two models that were measured, 15,072 and 23,866, and of their variants. */
static void cost_follows_from_the_numbers_of_a_model(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct rp_cost cost;
    } known[] = {
        {"1", {1, 0, 0, 1}},
        {"16777215", {16777215, 0, 0, 1}},
        {"{hidden: 2048, ffn: 8192, heads: 16, kv_heads: 8}", {14482, 0, 0, 1}},
        {"{hidden: 4096, ffn: 14336, heads: 32, kv_heads: 8}", {25102, 0, 0, 1}},
        {"{hidden: 2048, ffn: 8192, heads: 16, head_dim: 128}", {15447, 0, 0, 1}},
        {"{hidden: 2048, ffn: 8192, heads: 16, gated: false}", {11585, 0, 0, 1}},
        {"{hidden: 2048, ffn: 8192, heads: 16, kv_heads: 8, vocab: 128000, layers: 16}",
         {18253, 0, 0, 1}},
        {"{k: 9, attention_window: 512, window_layers: 100, layers: 120}", {9, 512, 5, 6}},
        {"{k: 9, attention_window: 512, layers: 80}", {9, 512, 1, 1}},
        /* the largest products */
        {"{hidden: 131072, ffn: 16777216, heads: 4096, head_dim: 4096, vocab: 16777216, "
         "layers: 4096}",
         {432552, 0, 0, 1}},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(known); i++) {
        must(read_text(MINIMAL));
        must(rp_config_set(&config, "cost", known[i].text, &error));
        assert_int_equal(config.cost.cost.k, known[i].cost.k);
        assert_int_equal(config.cost.cost.w, known[i].cost.w);
        assert_int_equal(config.cost.cost.h, known[i].cost.h);
        assert_int_equal(config.cost.cost.b, known[i].cost.b);
    }
}

static const char *const costs_refused[][2] = {
    {"0", "1: cost: expected 1 … 16777215, found 0"},
    {"16777216", "1: cost: expected 1 … 16777215, found 16777216"},
    {"9223372036854775808", "1: cost: expected 1 … 16777215, found `9223372036854775808`"},
    {"[1]", "1: cost: expected a value, found a list"},
    {"{hidden: 64}", "1: cost: `heads` is required without `k`"},
    {"{k: 3, ffn: 64}", "13: cost: both `k` and `ffn`, from which it would follow, are given"},
    {"{hidden: 64, heads: 8, kv_heads: 3, ffn: 8}",
     "34: cost: heads: expected a multiple of kv_heads 3, found 8"},
    {"{hidden: 65, heads: 8, ffn: 8}", "10: cost: hidden 65 is no multiple of heads 8"},
    {"{hidden: 64, heads: 8, ffn: 8, vocab: 9}", "39: cost: `vocab` is shared out over the layers"},
    {"{hidden: 8192, heads: 1, ffn: 8}",
     "10: cost: head_dim: expected 1 … 4096, found hidden / heads, which is 8192"},
    {"{hidden: 131072, ffn: 16777216, heads: 1, head_dim: 1}",
     "1: cost: expected a K of at most 16777215 from the numbers of the model, found "
     "3110047422873"},
    {"{k: 4, window_layers: 3}", "23: cost: `window_layers` have no window"},
    {"{k: 4, attention_window: 0}", "26: attention_window: expected 1 … 16777216, found 0"},
    {"{k: 4, attention_window: 2, window_layers: 3, layers: 2}",
     "44: cost: window_layers 3 are more than layers 2"},
    {"{k: 4, attention_window: 2, window_layers: 96, layers: 97}",
     "56: cost: expected window_layers of layers as a ratio of numbers up to 64, found 96 of 97"},
};

static void costs_are_refused_with_their_place(void **state)
{
    (void)state;
    char expected[200];
    for (size_t i = 0; i < RP_ARRAY_COUNT(costs_refused); i++) {
        must(read_text(MINIMAL));
        assert_int_equal(rp_config_set(&config, "cost", costs_refused[i][0], &error), -RP_E_CONFIG);
        snprintf(expected, sizeof expected, "--cost:1:%s", costs_refused[i][1]);
        assert_string_equal(error.message, expected);
    }
}

static void sizes_of_batches_are_those_of_the_stages(void **state)
{
    (void)state;
    uint64_t row;
    must(finish_text(STAGES "- {until: 5 steps}\n- {global_batch_size: 4, until: 7 steps}\n"
                            "- {global_batch_size: 8, until: 9 steps}\n"
                            "- {batch_size: 2}\n"));
    const struct rp_config_batches *batches = &config.batches;
    const struct rp_batch_stage wanted[] = {{0, 4, 4}, {28, 4, 8}, {44, 2, 8}};
    assert_int_equal(batches->count, 3); /* stage 1 changes nothing */
    assert_memory_equal(batches->stages, wanted, sizeof wanted);
    assert_int_equal(batches->rows_max, 4);
    assert_int_equal(batches->step_batches_max, 4);
    assert_true(rp_config_row_of_step(&config, 8, &row));
    assert_int_equal(row, 36);
    assert_int_equal(rp_config_step_from(&config, 36), 8);
    assert_int_equal(rp_config_step_from(&config, 37), 9);
    assert_false(rp_config_row_of_step(&config, UINT64_MAX / 4, &row));
    assert_int_equal(finish_text(STAGES "- {until: 5 steps, global_batch_size: 8}\n- {}\n"),
                     -RP_E_CONFIG);
    assert_string_equal(error.message, "c.yaml:8:39: global_batch_size: stage 0 has 8, and the "
                                       "config 4");
}

/* A small text that would name sources 10^8 times. */
static void aliases_make_no_stages_without_end(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    fputs(TWO "stages:\n- &a\n  weights: {", out);
    for (int i = 0; i < 4000; i++)
        fprintf(out, "s%d: 1, ", i);
    fputs("}\n", out);
    for (int i = 0; i < 9000; i++)
        fputs("- *a\n", out);
    fclose(out);
    assert_int_equal(finish_text(text), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "the stages name sources more than 1048576 times"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_stages_become_rows),
        cmocka_unit_test(stages_set_what_they_give),
        cmocka_unit_test(sources_have_limits_and_selections),
        cmocka_unit_test(skips_become_rows),
        cmocka_unit_test(nested_values_are_printed_as_they_are_set),
        cmocka_unit_test(a_kept_config_has_its_stages),
        cmocka_unit_test(a_stream_of_version_1_refuses_each_key),
        cmocka_unit_test(mistakes_are_told_with_their_place),
        cmocka_unit_test(cost_follows_from_the_numbers_of_a_model),
        cmocka_unit_test(costs_are_refused_with_their_place),
        cmocka_unit_test(sizes_of_batches_are_those_of_the_stages),
        cmocka_unit_test(aliases_make_no_stages_without_end),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
