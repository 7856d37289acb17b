/* SPDX-License-Identifier: Apache-2.0 */
/* A config of stream version 2 and its corpus become the inputs of a plan: sources, stages, views.
 */
#include "system_faults.h"

#include "corpus_files.h"

#include "config/config.h"
#include "corpus/spanfile.h"
#include "plan/v2/calendar.h"
#include "stream.h"
#include "stream_spec.h"

#define DOCUMENTS 6
static const int32_t sizes[DOCUMENTS] = {9, 1, 20, 4, 3, 7};
/* In document d, tokens begin … end - 1 are trained; begin 0: none is */
static const struct rp_span trained[DOCUMENTS] = {{3, 5}, {0, 0}, {19, 20}, {0, 0}, {2, 3}, {1, 4}};

static struct rp_config config;
static struct rp_corpus *corpus;
static struct rp_compiled *compiled;
static const struct rp_stream_spec *spec;
static struct rp_error error;

static int make_corpus(void **state)
{
    struct rp_spanfile_writer writer;
    const struct rp_mask_origin origin = {"loss", {0}};
    int code = scratch_enter(state);
    put_megatron("web", 8, 2, sizes, DOCUMENTS); /* uint16 */
    put_megatron("book", 8, 2, sizes, DOCUMENTS - 2);
    assert_int_equal(rp_spanfile_begin(&writer, "book.spans", &origin, &error), 0);
    for (int d = 0; d < DOCUMENTS - 2; d++)
        assert_int_equal(rp_spanfile_add(&writer, &trained[d], trained[d].begin ? 1 : 0, &error),
                         0);
    assert_int_equal(rp_spanfile_finish(&writer, &error), 0);
    assert_int_equal(rp_new_file_publish(&writer.file, &error), 0);
    rp_spanfile_discard(&writer);
    assert_int_equal(rp_sidecar_build("book.bin", NULL, &error), 0);
    return code;
}

static void close_all(void)
{
    rp_compiled_close(compiled);
    rp_corpus_close(corpus);
    rp_config_free(&config);
    compiled = NULL;
    corpus = NULL;
}

static int compile(const char *text)
{
    rp_config_init(&config);
    int code = rp_config_read_text(&config, text, strlen(text), "c.yaml", &error);
    if (code == 0)
        code = rp_config_finish(&config, &error);
    if (code == 0)
        code = rp_stream_open_corpus(&corpus, &config, false, &error);
    if (code == 0)
        code = rp_compiled_open(&compiled, &config, corpus, &error);
    spec = compiled ? rp_compiled_spec(compiled) : NULL;
    return code;
}

static void must_compile(const char *text)
{
    if (compile(text) < 0)
        fail_msg("%s (%s)", error.message, error.hint);
}

static void must_fail(const char *text, const char *words)
{
    assert_true(compile(text) < 0);
    assert_null(compiled);
    assert_says(&error, words);
    close_all();
}

#define HEAD "stream_version: 2\nseq_len: 16\nbatch_size: 2\n"
#define SOURCES                                                                                    \
    "sources:\n- {name: web, path: web.bin, weight: 3}\n- {name: book, path: book.bin}\n"

static void a_config_without_stages_is_stage_0(void **state)
{
    (void)state;
    must_compile(HEAD SOURCES "seed: 7\nnum_epochs: 3\nbos_id: 1\nspread: 5\nmax_docs_per_row: 4\n"
                              "deal: {window: 8, step: 4, tier: 2, cost: 9}\n");
    assert_int_equal(spec->fixed.seed, 7);
    assert_int_equal(spec->fixed.block_documents, 0); /* not `shuffle: block` */
    assert_int_equal(spec->fixed.bos_id, 1);
    assert_true(spec->fixed.eos_id == RP_NO_TOKEN_ID);
    assert_int_equal(spec->source_count, 2);
    assert_string_equal(spec->sources[1].name, "book");
    assert_int_equal(spec->sources[0].documents, DOCUMENTS);
    assert_true(spec->sources[0].range_end == RP_NO_ROW);
    assert_int_equal(spec->sources[0].limits.max_epochs, 3);
    assert_int_equal(spec->sources[0].too_long, RP_TOO_LONG_CUT);
    assert_int_equal(spec->stage_count, 1);
    const struct rp_stage_spec *stage = &spec->stages[0];
    assert_int_equal(stage->sets, 0x1ff);
    assert_int_equal(stage->seq_len, 16);
    assert_int_equal(stage->window, 64);
    assert_int_equal(stage->spread, 5);
    assert_int_equal(stage->weights[0], 3);
    assert_int_equal(stage->weights[1], 1);
    assert_int_equal(stage->deal.window, 8);
    assert_int_equal(stage->deal.cost.k, 9);
    assert_int_equal(stage->deal.cost.b, 1);
    close_all();
}

static void check_deal(const struct rp_stage_spec *stage, struct rp_deal expected)
{
    assert_int_equal(stage->deal.window, expected.window);
    assert_int_equal(stage->deal.step, expected.step);
    assert_int_equal(stage->deal.tier, expected.tier);
    assert_int_equal(stage->deal.bundle, expected.bundle);
    assert_int_equal(stage->deal.order, expected.order);
    assert_memory_equal(&stage->deal.cost, &expected.cost, sizeof expected.cost);
}

/* What the mapping leaves out is the job's: steps of 24 rows, of 3 ranks with 2 rows each. */
static void a_deal_takes_its_numbers_from_the_job(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct rp_deal deal;
        uint32_t sets;
    } known[] = {
        {"deal: auto\n",
         {192, 24, 6, 2, RP_DEAL_MIDDLE, .cost.k = 16384, .cost.b = 1},
         RP_WANTS_DEAL},
        {"deal: auto\ncost: {k: 9, attention_window: 64, window_layers: 2, layers: 4}\n",
         {192, 24, 6, 2, RP_DEAL_MIDDLE, .cost.k = 9, .cost.w = 64, .cost.h = 1, .cost.b = 2},
         RP_WANTS_DEAL},
        {"deal: {window: 48, order: descending}\ncost: 9\n",
         {48, 24, 6, 2, RP_DEAL_DESCENDING, .cost.k = 9, .cost.b = 1},
         RP_WANTS_DEAL},
        {"deal: {step: 12, tier: 4}\n",
         {96, 12, 4, 1, RP_DEAL_MIDDLE, .cost.k = 16384, .cost.b = 1},
         RP_WANTS_DEAL},
        {"deal: {bundle: 3}\n",
         {192, 24, 6, 3, RP_DEAL_MIDDLE, .cost.k = 16384, .cost.b = 1},
         RP_WANTS_DEAL},
        {"deal: {window: 24, step: 24, tier: 6, cost: 5}\ncost: 5\n",
         {24, 24, 6, 1, RP_DEAL_DESCENDING, .cost.k = 5, .cost.b = 1},
         RP_SETS_DEAL},
        {"deal: {window: 24, step: 24, tier: 6, bundle: 2}\n",
         {24, 24, 6, 2, RP_DEAL_MIDDLE, .cost.k = 16384, .cost.b = 1},
         RP_WANTS_DEAL},
        {"stages: [{deal: auto}]\n",
         {192, 24, 6, 2, RP_DEAL_MIDDLE, .cost.k = 16384, .cost.b = 1},
         RP_WANTS_DEAL},
        {"deal: auto\nstages: [{deal: off}]\n", {.window = 0}, RP_SETS_DEAL},
    };
    char text[400];
    for (size_t i = 0; i < RP_ARRAY_COUNT(known); i++) {
        snprintf(text, sizeof text, HEAD SOURCES "dp_world_size: 3\nglobal_batch_size: 24\n%s",
                 known[i].text);
        must_compile(text);
        assert_int_equal(spec->stages[0].sets & (RP_SETS_DEAL | RP_WANTS_DEAL), known[i].sets);
        check_deal(&spec->stages[0], known[i].deal);
        close_all();
    }
    must_compile(HEAD SOURCES "global_batch_size: 300000\ndeal: auto\n");
    assert_int_equal(spec->stages[0].deal.window, 900000); /* at most 2^20 rows */
    close_all();
    must_compile(HEAD SOURCES "global_batch_size: 24\nstages: [{until: 2 steps}, {until: 4 steps, "
                              "deal: {cost: 7}}, {weights: {web: 1}}]\n");
    assert_int_equal(spec->stages[0].sets & (RP_SETS_DEAL | RP_WANTS_DEAL), RP_SETS_DEAL);
    assert_int_equal(spec->stages[2].sets & (RP_SETS_DEAL | RP_WANTS_DEAL), 0);
    check_deal(&spec->stages[1],
               (struct rp_deal){192, 24, 2, 2, RP_DEAL_MIDDLE, .cost.k = 7, .cost.b = 1});
    close_all();
}

static void stages_set_what_they_give(void **state)
{
    (void)state;
    put_file("out.txt", "# two\n3\n\n 1 \r\n3\n", 17);
    must_compile(HEAD "sources:\n- {name: web, path: web.bin, documents: 1-5, atomic: true}\n"
                      "- {name: book, path: book.bin, documents: 0-50%}\n"
                      "packing: concat\nskip: {rows: [2, 4-6]}\nstages:\n- {until: 5 steps}\n"
                      "- until: row 20\n  weights: {book: 2}\n  ramp: 4\n  packing: best_fit\n"
                      "  open_bins: 8\n  row_gap: split\n"
                      "- limits: {web: {max_tokens: 5, on_exhausted: stop}}\n"
                      "  without: {web: out.txt}\n  documents: {web: 4}\n  seq_len: 32\n");
    const struct rp_stage_spec *first = &spec->stages[0], *second = &spec->stages[1],
                               *third = &spec->stages[2];
    assert_int_equal(spec->sources[0].range_first, 1);
    assert_int_equal(spec->sources[0].range_end, 5);
    assert_int_equal(spec->sources[0].too_long, RP_TOO_LONG_ERROR);
    assert_true(spec->sources[1].is_percent);
    assert_int_equal(first->window, 0); /* concat has none */
    assert_int_equal(first->spread, 0);
    assert_int_equal(second->from, 10);
    assert_int_equal(second->sets,
                     RP_SETS_WEIGHTS | RP_SETS_PACKING | RP_SETS_WINDOW | RP_SETS_ROW_GAP);
    assert_int_equal(second->weights[0], 0);
    assert_int_equal(second->weights[1], 1);
    assert_int_equal(second->ramp, 4);
    assert_int_equal(second->packing, RP_PACKING_BEST_FIT);
    assert_int_equal(third->from, 20);
    assert_int_equal(third->sets, RP_SETS_SEQ_LEN);
    assert_int_equal(third->limits_count, 1);
    assert_int_equal(third->limits[0].sets, 6);
    assert_int_equal(third->limits[0].limits.on_exhausted, RP_EXHAUSTED_STOP);
    assert_int_equal(third->without[0].count, 2);
    assert_int_equal(third->without[0].documents[0], 1);
    assert_int_equal(third->without[0].documents[1], 3);
    assert_int_equal(third->documents[0].documents, 4);
    assert_int_equal(spec->skip_count, 2);
    assert_int_equal(spec->skips[1].end, 6);
    struct rp_calendar *calendar; /* the calendar takes it */
    static const struct rp_calendar_position begin = {0};
    if (rp_calendar_open(&calendar, spec, &begin, &error) < 0)
        fail_msg("%s", error.message);
    rp_calendar_close(calendar);
    close_all();
}

/* Section 11, with a flag for each token. */
static bool has_label(uint64_t document, uint32_t offset, uint32_t length, bool bos, bool eos,
                      bool across)
{
    uint32_t n = (uint32_t)sizes[document], whole = n + bos + eos;
    bool is_trained[64] = {false};
    for (uint32_t t = trained[document].begin; t < trained[document].end; t++)
        is_trained[t + bos] = t > 0;
    if (eos)
        is_trained[whole - 1] = n > 1 && is_trained[whole - 2];
    bool found = across && offset + length < whole && is_trained[offset + length];
    for (uint32_t t = 1; t < length; t++)
        found |= is_trained[offset + t];
    return found;
}

static void parts_of_documents_are_labelled(void **state)
{
    (void)state;
    for (unsigned way = 0; way < 8; way++) {
        bool bos = way & 1, eos = way & 2, across = way & 4;
        char text[400];
        snprintf(text, sizeof text,
                 HEAD "sources:\n- {name: book, path: book.bin, drop_untrained: fragment}\n%s%s%s",
                 bos ? "bos_id: 1\n" : "", eos ? "eos_id: 2\n" : "",
                 across ? "label_across_cuts: true\n" : "");
        must_compile(text);
        const struct rp_source_view *view = &spec->sources[0].view;
        assert_int_equal(spec->sources[0].drop_untrained, RP_DROP_FRAGMENTS);
        assert_null(view->counts);
        for (uint64_t d = 0; d < spec->sources[0].documents; d++) {
            uint64_t tokens;
            view->lengths(view->context, &d, 1, &tokens);
            assert_int_equal(tokens, sizes[d]); /* also of a document without a trained token */
            uint32_t whole = (uint32_t)sizes[d] + bos + eos;
            for (uint32_t offset = 0; offset < whole; offset++)
                for (uint32_t length = 1; offset + length <= whole; length++)
                    assert_int_equal(view->labelled(view->context, d, offset, length, &error),
                                     has_label(d, offset, length, bos, eos, across));
        }
        close_all();
    }
    must_compile(HEAD "sources:\n- {name: book, path: book.bin, drop_untrained: document}\n");
    uint64_t tokens, empty = 1;
    spec->sources[0].view.lengths(spec->sources[0].view.context, &empty, 1, &tokens);
    assert_int_equal(tokens, 0);
    assert_null(spec->sources[0].view.labelled);
    close_all();
}

static void selections_count_and_are_in_the_fingerprint(void **state)
{
    (void)state;
    struct rp_source_prints prints, without;
    const uint64_t documents[] = {0, 1, 2, 3, 4, 5};
    uint8_t counts[DOCUMENTS];
    must_compile(HEAD "sources:\n- {name: web, path: web.bin}\n");
    const struct rp_source_view *view = &spec->sources[0].view;
    assert_null(view->counts);
    assert_int_equal(view->prints(view->context, DOCUMENTS, &without, &error), 0);
    assert_true(without.sampled != 0 && without.selection == 0);
    assert_int_equal(view->prints(view->context, DOCUMENTS - 1, &prints, &error), -RP_E_CHANGED);
    close_all();
    must_compile(HEAD "sources:\n- {name: web, path: web.bin, select: length > 3,\n"
                      "   repeat: {2: length > 7, 5: length > 10}}\n");
    view = &spec->sources[0].view;
    assert_int_equal(spec->sources[0].passes, 5);
    assert_int_equal(view->counts(view->context, documents, DOCUMENTS, counts, &error), 0);
    for (int d = 0; d < DOCUMENTS; d++)
        assert_int_equal(counts[d], sizes[d] > 10 ? 5 : sizes[d] > 7 ? 2 : sizes[d] > 3 ? 1 : 0);
    assert_int_equal(view->prints(view->context, DOCUMENTS, &prints, &error), 0);
    assert_true(prints.selection != 0 && prints.sampled == without.sampled);
    close_all();
}

static void mistakes_are_told_with_their_place(void **state)
{
    (void)state;
    put_file("bad.txt", "1\nx\n", 4);
    put_file("far.txt", "6\n", 2);
    must_fail(HEAD "sources:\n- name: web\n  path: web.bin\n  select: length >\n",
              "c.yaml:7|select|column 9");
    must_fail(HEAD SOURCES "stages:\n- {without: {web: bad.txt}}\n",
              "c.yaml:8:14: without|bad.txt:2: expected a document below 6, found `x`");
    must_fail(HEAD SOURCES "stages:\n- {without: {web: far.txt}}\n", "far.txt:1|found `6`");
    must_fail(HEAD SOURCES "stages:\n- {without: {web: gone.txt}}\n", "gone.txt");
}

static int compile_again(struct rp_error *failure)
{
    struct rp_compiled *again;
    int code = rp_compiled_open(&again, &config, corpus, failure);
    rp_compiled_close(again);
    return code;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    put_file("out.txt", "3\n1\n", 4);
    must_compile(HEAD "sources:\n- {name: web, path: web.bin, select: length > 3,\n"
                      "   repeat: {2: length > 7}}\n- {name: book, path: book.bin}\n"
                      "skip: {rows: 4}\nstages:\n- {until: 5 steps, without: {web: out.txt}}\n"
                      "- {weights: {web: 2}, limits: {book: {max_tokens: 5}}}\n");
    every_allocation(compile_again, false);
    every_allocation(compile_again, true);
    close_all();
}

static void a_plan_of_version_2_is_opened(void **state)
{
    (void)state;
    struct rp_plan *plan;
    must_compile(HEAD SOURCES);
    assert_int_equal(rp_stream_open_plan(&plan, &config, corpus, &error), 0);
    assert_int_equal(rp_plan_version(plan), 2);
    rp_plan_close(plan);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_config_without_stages_is_stage_0),
        cmocka_unit_test(a_deal_takes_its_numbers_from_the_job),
        cmocka_unit_test(stages_set_what_they_give),
        cmocka_unit_test(parts_of_documents_are_labelled),
        cmocka_unit_test(selections_count_and_are_in_the_fingerprint),
        cmocka_unit_test(mistakes_are_told_with_their_place),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_plan_of_version_2_is_opened),
    };
    return run_with_faults("stream_spec", tests, make_corpus, scratch_leave);
}
