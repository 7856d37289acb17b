/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as only stream version 2 has them, by a real flow: inserted tokens, padding inside rows,
 * labels of the token after a cut, rows that are skipped, planned numbers. Each batch is compared
 * with one that is made element by element from STREAM2.md sections 2.1, 5 and 11.
 *
 * A plan of version 1 makes the rows, from documents as long as their inserted tokens make them.
 * The wrapped rp_plan_next gives them the rest. */
#include "flow_kit.h"

#include "corpus/spanfile.h"

#define PLAN_SEQ_LEN 40u /* tokens of a row; its places are as many more as alignment needs */
#define DOCUMENT_TOKENS 70u
#define DOCS_PER_ROW 9u
#define BOS 49998u
#define EOS 49999u

static const struct kit_source sources[] = {{"plain", 8, 2, 260}, {"masked", 4, 4, 220}};

static struct rp_row_form form;
static uint32_t align;
static uint64_t skip_first, skip_end; /* rows */
static const struct kit *current;

static bool is_skipped(uint64_t row)
{
    return row >= skip_first && row < skip_end;
}

int __real_rp_plan_open(struct rp_plan **plan_out, const struct rp_plan_config *config,
                        const struct rp_plan_source *plan_sources, uint32_t source_count,
                        struct rp_error *error);
int __real_rp_plan_next(struct rp_plan *plan, struct rp_row *row, struct rp_error *error);
int __wrap_rp_plan_open(struct rp_plan **plan_out, const struct rp_plan_config *config,
                        const struct rp_plan_source *plan_sources, uint32_t source_count,
                        struct rp_error *error);
int __wrap_rp_plan_next(struct rp_plan *plan, struct rp_row *row, struct rp_error *error);
bool __wrap_rp_plan_skips(const struct rp_plan *plan, uint64_t first, uint64_t count);

int __wrap_rp_plan_open(struct rp_plan **plan_out, const struct rp_plan_config *config,
                        const struct rp_plan_source *plan_sources, uint32_t source_count,
                        struct rp_error *error)
{
    struct rp_plan_config shorter = *config;
    shorter.seq_len = PLAN_SEQ_LEN;
    return __real_rp_plan_open(plan_out, &shorter, plan_sources, source_count, error);
}

int __wrap_rp_plan_next(struct rp_plan *plan, struct rp_row *row, struct rp_error *error)
{
    int code = __real_rp_plan_next(plan, row, error);
    if (code != 1)
        return code;
    row->align = align;
    row->planned = row->row ^ 3; /* as a deal of four rows */
    row->skipped = is_skipped(row->row);
    if (row->skipped)
        row->count = row->tokens = 0;
    return code;
}

bool __wrap_rp_plan_skips(const struct rp_plan *plan, uint64_t first, uint64_t count)
{
    (void)plan;
    return first >= skip_first && first + count <= skip_end;
}

/* ---- the reference --------------------------------------------------------------------------- */

static uint64_t own_tokens(const struct rp_fragment *fragment)
{
    return rp_source_length(rp_corpus_source(current->corpus, fragment->source),
                            fragment->document);
}

/* Section 2.1: n > 0 tokens, and those that are inserted. */
static uint64_t inserted_length(const void *source, uint64_t document)
{
    uint64_t own = rp_source_length(source, document);
    return own == 0 || own == RP_LENGTH_BAD ? own : own + form.has_bos + form.has_eos;
}

static uint64_t token_of(const void *context, const struct rp_fragment *fragment, uint64_t i)
{
    const struct rp_fragment whole = {.document = fragment->document, .source = fragment->source};
    uint64_t token = fragment->offset + i;
    if (form.has_bos && token == 0)
        return form.bos_id;
    token -= form.has_bos;
    return token == own_tokens(fragment) ? form.eos_id : kit_token(context, &whole, token);
}

/* The mask of the masked source: own tokens of a random half of its documents, at random. */
static bool is_own_trained(uint64_t document, uint64_t token)
{
    uint64_t seed = document * 131 + token / (1 + document % 3);
    return token > 0 && document % 4 != 1 && (document % 4 == 2 || io_fake_random(&seed) % 2);
}

static bool is_trained(const void *context, const struct rp_fragment *fragment, uint64_t i)
{
    (void)context;
    uint64_t token = fragment->offset + i, own = own_tokens(fragment);
    if (fragment->source == 0)
        return true;
    if (form.has_bos && token == 0)
        return false;
    token -= form.has_bos;
    return is_own_trained(fragment->document, token < own ? token : own - 1);
}

static bool continues(const void *context, const struct rp_fragment *fragment)
{
    (void)context;
    const struct rp_source *source = rp_corpus_source(current->corpus, fragment->source);
    return form.label_across_cuts &&
           fragment->offset + fragment->length < inserted_length(source, fragment->document);
}

/* ---- the corpus ------------------------------------------------------------------------------ */

static void put_spans(void)
{
    struct rp_error error;
    struct rp_spanfile_writer writer;
    const struct rp_mask_origin origin = {"random", {0}};
    struct rp_corpus *corpus;
    const char *path = "masked";
    const struct rp_source_spec source_spec = {
        .name = path, .weight = 1, .shards = &path, .shard_count = 1, .eos = RP_EOS_NONE};
    const struct rp_corpus_spec spec = {.sources = &source_spec, .source_count = 1};
    assert_int_equal(rp_corpus_open(&corpus, &spec, &error), 0);
    assert_int_equal(rp_spanfile_begin(&writer, "masked.spans", &origin, &error), 0);
    for (uint64_t d = 0; d < sources[1].documents; d++) {
        struct rp_span spans[DOCUMENT_TOKENS];
        uint64_t length = rp_source_length(rp_corpus_source(corpus, 0), d);
        uint32_t count = 0;
        for (uint32_t t = 0; t < length; t++) {
            if (!is_own_trained(d, t))
                continue;
            if (count == 0 || spans[count - 1].end < t)
                spans[count++].begin = t;
            spans[count - 1].end = t + 1;
        }
        assert_int_equal(rp_spanfile_add(&writer, spans, count, &error), 0);
    }
    assert_int_equal(rp_spanfile_finish(&writer, &error), 0);
    assert_int_equal(rp_new_file_publish(&writer.file, &error), 0);
    rp_spanfile_discard(&writer);
    rp_corpus_close(corpus);
}

static int enter(void **state)
{
    struct rp_error error;
    int code = scratch_enter(state);
    for (uint32_t i = 0; code == 0 && i < 2; i++)
        kit_write(&sources[i], i, i ? DOCUMENT_TOKENS : 20, i + 5);
    put_spans();
    for (uint32_t i = 0; code == 0 && i < 2; i++)
        code = rp_sidecar_build(sources[i].name, NULL, &error);
    return code;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void set_form(uint64_t choice)
{
    static const uint32_t aligns[] = {1, 2, 6, 16};
    form = (struct rp_row_form){.has_bos = choice & 1,
                                .has_eos = choice >> 1 & 1,
                                .bos_id = BOS,
                                .eos_id = EOS,
                                .label_across_cuts = choice >> 2 & 1,
                                .has_row_plans = true};
    align = aligns[choice >> 3 & 3];
}

static void open_kit(struct kit *kit, enum rp_packing packing)
{
    struct rp_plan_config config = small_plan();
    config.packing = packing;
    config.seq_len = (PLAN_SEQ_LEN + DOCS_PER_ROW * (align - 1) + align - 1) / align * align;
    config.max_docs_per_row = DOCS_PER_ROW;
    kit_length = inserted_length;
    kit_tokens = (struct expected_tokens){token_of, NULL, is_trained, continues};
    kit_open(kit, sources, 2, &config);
    current = kit;
}

static struct rp_flow_options options_of(uint64_t choice)
{
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.form = form;
    options.token_limit = EOS + 1;
    options.readers = options.packers = 2;
    options.packer_processes = processes_work() && choice % 5 == 4;
    options.mapped = choice % 3 == 1;
    options.verify_blocks = choice % 2;
    options.dp_world_size = options.rank_count = 2;
    options.batch_size = 2;
    options.step_batches = 8 / (options.batch_size * options.dp_world_size);
    return options;
}

static uint64_t run_all(struct kit *kit, const struct rp_flow_options *options, uint64_t seed)
{
    static const uint32_t dtypes[] = {RP_DTYPE_U16, RP_DTYPE_I32, RP_DTYPE_I64};
    struct rp_flow_counts counts;
    struct stream s;
    stream_open(&s, kit, options, dtypes[seed % 3], 0, seed);
    stream_start(&s);
    run_to_end(&s);
    check_all_came(&s);
    rp_flow_counts(s.flow, &counts);
    stream_close(&s);
    return counts.taken_bytes;
}

/* What a fragment covers of its document's inserted tokens, and whether it begins or ends at a cut:
 * how many of each kind the rows have. */
static void count_kinds(const struct kit *kit, uint32_t kinds[16])
{
    for (uint64_t r = 0; r < kit->row_count; r++)
        for (uint32_t f = 0; f < kit->rows[r].expected.count; f++) {
            const struct rp_fragment *fragment = &kit->rows[r].expected.fragments[f];
            uint64_t end = fragment->offset + fragment->length;
            uint64_t own_end = own_tokens(fragment) + form.has_bos;
            uint32_t first = fragment->offset == 0        ? 0 /* the first token */
                             : fragment->offset == 1      ? 1
                             : fragment->offset < own_end ? 2
                                                          : 3; /* only the EOS */
            kinds[first * 4 + (end > own_end ? 0 : end == own_end ? 1 : end == 1 ? 2 : 3)]++;
        }
}

static void every_form(void **state)
{
    (void)state;
    uint32_t kinds[16] = {0};
    for (uint64_t choice = 0; choice < 32; choice++)
        for (uint32_t packing = 0; packing < 2; packing++) {
            struct kit kit;
            set_form(choice);
            open_kit(&kit, packing ? RP_PACKING_CONCAT : RP_PACKING_LOOKAHEAD);
            struct rp_flow_options options = options_of(choice + packing);
            run_all(&kit, &options, choice / 8 + choice + packing);
            if (form.has_bos && form.has_eos)
                count_kinds(&kit, kinds);
            kit_close(&kit);
        }
    /* whole; BOS without EOS, up to it; only the BOS; cut in the middle; from the second token on;
     * from a cut to the EOS, up to it, to a cut; only the EOS */
    static const uint32_t wanted[] = {0, 1, 2, 3, 4, 8, 9, 11, 12};
    for (size_t i = 0; i < RP_ARRAY_COUNT(wanted); i++)
        assert_true(kinds[wanted[i]] > 0);
}

/* ---- contents of a checkpoint ---------------------------------------------------------------- */

/* Places of a row as a batch has them, and as save_contents.c takes them from a ring. */
static uint32_t places_of_row(const struct expected_row *row, int32_t *out)
{
    uint32_t at = 0;
    for (uint32_t f = 0; f < row->count; f++) {
        const struct rp_fragment *fragment = &row->fragments[f];
        for (uint32_t i = 0; i < fragment->length; i++)
            out[at++] = (int32_t)token_of(NULL, fragment, i);
        while (at % align)
            out[at++] = 1;
    }
    return at;
}

/* Tokens after a cut are in no contents: they are read. */
static void rows_of_a_checkpoint(void **state)
{
    (void)state;
    for (uint64_t choice = 0; choice < 32; choice += 3) {
        struct kit kit;
        set_form(choice);
        open_kit(&kit, RP_PACKING_CONCAT);
        uint32_t seq_len = kit.plan_config.seq_len;
        size_t bytes = kit.row_count * seq_len * sizeof(int32_t);
        int32_t *tokens = rp_calloc(1, bytes);
        struct rp_contents *contents = rp_contents_new(tokens, bytes);
        for (uint64_t r = 0; r < kit.row_count; r++) {
            const struct expected_row *row = &kit.rows[r].expected;
            uint32_t places = places_of_row(row, &tokens[r * seq_len]);
            assert_int_equal(
                rp_contents_add(contents, r, 0, places, sizeof(int32_t), &tokens[r * seq_len]), 0);
        }
        struct rp_flow_options options = options_of(0);
        uint64_t all = run_all(&kit, &options, choice);
        options.contents = contents;
        uint64_t read = run_all(&kit, &options, choice);
        assert_true(form.label_across_cuts ? read > 0 && read < all : read == 0);
        rp_contents_free(contents);
        free(tokens);
        kit_close(&kit);
    }
}

/* ---- rows that are skipped ------------------------------------------------------------------- */

/* Rows 21 to 45, in steps of 8 rows: of steps 3 and 4 every row. */
static void skipped_rows_are_padding(void **state)
{
    (void)state;
    skip_first = 21;
    skip_end = 46;
    for (int drop = 0; drop < 2; drop++) {
        struct kit kit;
        set_form(3);
        open_kit(&kit, RP_PACKING_LOOKAHEAD);
        struct rp_flow_options options = options_of(0);
        options.drop_last = drop;
        struct rp_flow_counts counts;
        struct stream s;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
        stream_start(&s);
        run_to_end(&s);
        check_all_came(&s);
        rp_flow_counts(s.flow, &counts);
        assert_int_equal(s.batches, batches_of(&s) * 2); /* skipped steps also have batches */
        assert_int_equal(counts.batches, (batches_of(&s) - 4) * 2);
        stream_close(&s);
        kit_close(&kit);
    }
    skip_first = skip_end = 0;
}

/* ---- bad tokens ------------------------------------------------------------------------------ */

/* A token id that is too large is named by its number in the file, also if it is met as a label. */
static void a_bad_token_is_named(void **state)
{
    (void)state;
    for (uint64_t choice = 0; choice < 8; choice++) {
        struct kit kit;
        set_form(choice);
        form.bos_id = 0;
        form.eos_id = 1;
        open_kit(&kit, RP_PACKING_CONCAT);
        const struct rp_fragment *fragment = kit.rows[0].expected.fragments;
        const struct rp_fragment whole = {.document = fragment->document,
                                          .source = fragment->source};
        struct rp_flow_options options = options_of(0);
        struct rp_error error = {0};
        struct stream s;
        char place[80];
        uint64_t own = own_tokens(fragment), t = 0;
        options.token_limit = 0;
        for (uint64_t i = 0; i < own && i + 2 < PLAN_SEQ_LEN; i++)
            if (kit_token(NULL, &whole, i) >= options.token_limit) {
                options.token_limit = kit_token(NULL, &whole, i);
                t = i;
            }
        snprintf(place, sizeof place, "document %llu, token %llu: expected a token id below %llu",
                 (unsigned long long)whole.document, (unsigned long long)t,
                 (unsigned long long)options.token_limit);
        options.packers = 1;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 0);
        stream_start(&s);
        assert_int_equal(stream_run(&s, UINT64_MAX, &error), -RP_E_VOCABULARY);
        assert_non_null(strstr(error.message, place));
        stream_close(&s);
        kit_close(&kit);
    }
}

static void an_inserted_id_is_below_the_limit(void **state)
{
    (void)state;
    for (uint64_t choice = 1; choice < 3; choice++) {
        struct kit kit;
        struct rp_flow *flow;
        struct rp_error error;
        set_form(choice);
        open_kit(&kit, RP_PACKING_LOOKAHEAD);
        struct rp_flow_options options = options_of(0);
        options.corpus = kit.corpus;
        options.token_limit = choice == 1 ? BOS : EOS;
        assert_int_equal(rp_flow_open(&flow, &options, -1, &error), -RP_E_VOCABULARY);
        assert_string_equal(error.message,
                            choice == 1 ? "bos_id: expected a token id below 49998, found 49998"
                                        : "eos_id: expected a token id below 49999, found 49999");
        kit_close(&kit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form),
        cmocka_unit_test(rows_of_a_checkpoint),
        cmocka_unit_test(skipped_rows_are_padding),
        cmocka_unit_test(a_bad_token_is_named),
        cmocka_unit_test(an_inserted_id_is_below_the_limit),
    };
    return cmocka_run_group_tests(tests, enter, scratch_leave);
}
