/* SPDX-License-Identifier: Apache-2.0 */
/* The spec of a stream of version 2: sources, stages, records, skips, whatever their numbers.
 *
 * Refused spec: a message, and nothing is left. Accepted: rows ascend, fit their stage and hold
 * existing tokens of joined sources; each state token is within its bound, and a stream that
 * continues from one gives the same row and the same next token. The contract is a record. */
#include "fuzz.h"
#include "plan/v2/planner_token.h"

#define SOURCES 4u
#define STAGES 5u
#define ROWS 24u
#define LENGTHS 8u

struct fuzzed_source {
    uint64_t documents;
    uint32_t lengths[LENGTHS];
    uint8_t salt;
};

static struct fuzzed_source contexts[SOURCES];
static struct rp_stream_source sources[SOURCES];
static struct rp_stage_spec stages[STAGES], records[STAGES];
static struct rp_limits_change limits[2 * STAGES];
static struct rp_without without[2 * STAGES];
static struct rp_source_count counts_of[2 * STAGES];
static uint64_t out_documents[2 * STAGES][3];
static uint32_t weights[2 * STAGES][SOURCES];
static struct rp_row_range skips[3];
static const char *const names[] = {"a", "b", "a source with a longer name", "\x01~=\\", "", "a"};

/* ---- views of the sources -------------------------------------------------------------------- */

static uint32_t length_of(const struct fuzzed_source *source, uint64_t document)
{
    FUZZ_REQUIRE(document < source->documents);
    return source->lengths[document % LENGTHS];
}

static void view_lengths(const void *context, const uint64_t *documents, uint32_t count,
                         uint64_t *tokens)
{
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = length_of(context, documents[i]);
}

static int view_counts(const void *context, const uint64_t *documents, uint32_t count,
                       uint8_t *counts, struct rp_error *error)
{
    const struct fuzzed_source *source = context;
    for (uint32_t i = 0; i < count; i++) {
        counts[i] = (uint8_t)((length_of(source, documents[i]) + documents[i]) % 3);
        if (source->salt == 255 && documents[i] == 7)
            return rp_fail(error, -RP_E_CORRUPT, NULL, "a damaged column");
    }
    return 0;
}

static int view_labelled(const void *context, uint64_t document, uint32_t offset, uint32_t length,
                         struct rp_error *error)
{
    (void)error;
    const struct fuzzed_source *source = context;
    FUZZ_REQUIRE(length >= 1 && document < source->documents);
    return (source->salt + document + offset) % 3 > 0;
}

static int view_prints(const void *context, uint64_t documents, struct rp_source_prints *prints,
                       struct rp_error *error)
{
    const struct fuzzed_source *source = context;
    if (documents > source->documents)
        return rp_fail(error, -RP_E_CHANGED, NULL, "fewer documents");
    *prints = (struct rp_source_prints){documents * 7 + source->salt, 0, source->salt & 3};
    return 0;
}

/* ---- a spec of the bytes --------------------------------------------------------------------- */

/* Mostly 0 … small - 1; otherwise a number at an end of some range. */
static uint64_t number(struct fuzz_input *input, uint64_t small)
{
    static const uint64_t ends[] = {0,
                                    1,
                                    63,
                                    64,
                                    65,
                                    255,
                                    1024,
                                    1025,
                                    4096,
                                    4097,
                                    1u << 20,
                                    1u << 24,
                                    (1u << 24) + 1,
                                    UINT32_MAX - 1,
                                    UINT32_MAX,
                                    UINT64_MAX};
    uint64_t byte = fuzz_number(input, 1);
    return byte < 240 ? byte % small : ends[byte - 240];
}

static uint32_t number32(struct fuzz_input *input, uint64_t small)
{
    return (uint32_t)number(input, small);
}

/* Limits of rows and of memory, so that an input takes no longer than some milliseconds. */
static uint32_t bounded(uint32_t value, uint32_t most, uint32_t refused)
{
    return value > most && value < refused ? most : value;
}

static void make_source(struct fuzz_input *input, uint32_t j)
{
    struct fuzzed_source *context = &contexts[j];
    context->documents = fuzz_number(input, 1);
    context->salt = (uint8_t)fuzz_number(input, 1);
    for (uint32_t i = 0; i < LENGTHS; i++) {
        uint32_t byte = (uint32_t)fuzz_number(input, 1);
        context->lengths[i] = byte < 250 ? byte : (byte - 249) << 25;
    }
    uint32_t flags = (uint32_t)fuzz_number(input, 1);
    sources[j] = (struct rp_stream_source){
        .name = names[fuzz_number(input, 1) % RP_ARRAY_COUNT(names)],
        .documents = context->documents,
        .range_first = flags & 1 ? number(input, 9) : 0,
        .range_end = flags & 2 ? number(input, 99) : RP_NO_ROW,
        .is_percent = flags & 4,
        .too_long = number32(input, 4),
        .drop_untrained = number32(input, 3),
        .passes = (uint8_t)number(input, 4),
        .limits = {number(input, 99), number32(input, 3), number32(input, 3)},
        .view = {context, view_lengths, flags & 8 ? view_counts : NULL,
                 flags & 16 ? view_labelled : NULL, view_prints}};
}

static struct rp_deal make_deal(struct fuzz_input *input)
{
    uint32_t bundle = number32(input, 3), tier = bundle * number32(input, 4);
    uint32_t step = tier * number32(input, 4), window = step * number32(input, 4);
    return (struct rp_deal){.window = bounded(window, 256, (1u << 20) + 1),
                            .step = step,
                            .tier = tier,
                            .bundle = bundle,
                            .order = number32(input, 3),
                            .cost.k = number32(input, 200),
                            .cost.w = number32(input, 20),
                            .cost.h = (uint8_t)number(input, 4),
                            .cost.b = (uint8_t)number(input, 4)};
}

/* What lists of sources a stage has. */
static void make_lists(struct fuzz_input *input, struct rp_stage_spec *stage, uint32_t at)
{
    uint32_t which = (uint32_t)fuzz_number(input, 1);
    if (which & 1) {
        limits[at] = (struct rp_limits_change){
            number32(input, SOURCES),
            (uint8_t)fuzz_number(input, 1),
            {number(input, 99), number32(input, 3), number32(input, 3)}};
        stage->limits = &limits[at];
        stage->limits_count = 1;
    }
    if (which & 2) {
        for (uint32_t i = 0; i < 3; i++)
            out_documents[at][i] = number(input, 40);
        without[at] = (struct rp_without){number32(input, SOURCES), which >> 6, out_documents[at]};
        stage->without = &without[at];
        stage->without_count = 1;
    }
    if (which & 4) {
        counts_of[at] = (struct rp_source_count){number32(input, SOURCES), number(input, 99)};
        stage->documents = &counts_of[at];
        stage->documents_count = 1;
    }
}

static void make_stage(struct fuzz_input *input, struct rp_stage_spec *stage, uint32_t at)
{
    uint64_t from = number(input, 12);
    *stage = (struct rp_stage_spec){.from = from < 12 ? from + 3 * (at % STAGES) : from,
                                    .sets = (uint32_t)fuzz_number(input, 2),
                                    .ramp = number(input, 12),
                                    .seq_len = 1 + number32(input, 32),
                                    .align = number32(input, 5),
                                    .window = number32(input, 9),
                                    .spread = number32(input, 9),
                                    .max_docs_per_row = number32(input, 9),
                                    .packing = number32(input, 4),
                                    .row_gap = number32(input, 3),
                                    .weights = weights[at]};
    stage->seq_len = bounded(stage->seq_len, 4096, (1u << 24) + 1);
    stage->max_docs_per_row = bounded(stage->max_docs_per_row, 4096, (1u << 24) + 1);
    for (uint32_t j = 0; j < SOURCES; j++)
        weights[at][j] = number32(input, 4);
    stage->deal = make_deal(input);
    make_lists(input, stage, at);
}

static struct rp_stream_spec make_spec(struct fuzz_input *input)
{
    struct rp_stream_spec spec = {.source_count = 1 + (uint32_t)fuzz_number(input, 1) % SOURCES,
                                  .sources = sources,
                                  .stage_count = (uint32_t)fuzz_number(input, 1) % (STAGES + 1),
                                  .stages = stages,
                                  .record_count = (uint32_t)fuzz_number(input, 1) % 3,
                                  .records = records,
                                  .skip_count = (uint32_t)fuzz_number(input, 1) % 4,
                                  .skips = skips};
    spec.fixed = (struct rp_stream_fixed){.seed = fuzz_number(input, 2),
                                          .shuffle = number32(input, 4),
                                          .block_documents = number32(input, 9),
                                          .window_blocks = number32(input, 5),
                                          .group = number32(input, 4),
                                          .long_doc = number32(input, 4),
                                          .bos_id = number32(input, 2) - 1,
                                          .eos_id = number32(input, 2) - 1,
                                          .label_across_cuts = fuzz_number(input, 1) & 1};
    for (uint32_t i = 0; i < spec.skip_count; i++)
        skips[i] = (struct rp_row_range){number(input, 20), number(input, 30)};
    for (uint32_t j = 0; j < SOURCES; j++)
        make_source(input, j);
    for (uint32_t i = 0; i < spec.stage_count; i++)
        make_stage(input, &stages[i], i);
    if (spec.stage_count > 0 && fuzz_number(input, 1) < 200) { /* mostly a whole first stage */
        stages[0].from = 0;
        stages[0].sets = (1u << 9) - 1;
        stages[0].ramp = 0;
    }
    for (uint32_t i = 0; i < spec.record_count; i++)
        make_stage(input, &records[i], STAGES + i);
    return spec;
}

/* ---- what must hold -------------------------------------------------------------------------- */

static void check_row(const struct rp_calendar *calendar, const struct rp_stream_row *row,
                      uint64_t g)
{
    const struct rp_stage *stage = rp_calendar_at(calendar, row->planned);
    const struct rp_stream_fixed *fixed = &rp_calendar_spec(calendar)->fixed;
    uint64_t tokens = 0, inserted = (fixed->bos_id != RP_NO_TOKEN_ID) +
                                    (uint64_t)(fixed->eos_id != RP_NO_TOKEN_ID);
    FUZZ_REQUIRE(row->row == g && row->skipped == rp_calendar_skips(calendar, g));
    FUZZ_REQUIRE(row->count <= stage->max_docs_per_row && (row->count > 0) == !row->skipped);
    for (uint32_t i = 0; i < row->count; i++) {
        const struct rp_fragment *f = &row->fragments[i];
        FUZZ_REQUIRE(f->source < stage->joined && f->length > 0);
        const struct rp_stream_source *source = rp_calendar_source(calendar, f->source);
        uint64_t length = length_of(source->view.context, f->document) + inserted;
        FUZZ_REQUIRE(f->offset + f->length <= length);
        tokens += f->length;
    }
    FUZZ_REQUIRE(tokens == row->tokens && tokens <= stage->seq_len);
}

static void *write_token(const struct rp_calendar *calendar, struct rp_planner *plan, size_t *bytes)
{
    struct rp_error error = {0};
    size_t bound = rp_planner_token_bytes_max(calendar);
    void *token = malloc(bound);
    FUZZ_REQUIRE(token != NULL);
    if (rp_planner_token_write(plan, token, bytes, &error) < 0)
        fuzz_failed(error.message, __FILE__, __LINE__);
    FUZZ_REQUIRE(*bytes <= bound);
    return token;
}

/* The records of a contract that are begun at a row. */
static char *begun_records(const struct rp_calendar *calendar, uint64_t row)
{
    struct rp_error error = {0};
    struct rp_record_writer writer = {0};
    struct rp_record record;
    FUZZ_REQUIRE(rp_calendar_contract(calendar, &writer, &error) == 0);
    FUZZ_REQUIRE(rp_record_open(&record, writer.text, writer.bytes, &error) == 0);
    char *text = calloc(1, writer.bytes + 1), begun[32] = "";
    struct rp_field field;
    for (size_t at = 0; rp_record_next(&record, &at, &field);) {
        char name[64] = "";
        memcpy(name, field.name, field.name_bytes);
        uint64_t from = strtoull(field.value, NULL, 10);
        unsigned number;
        if (sscanf(name, "record[%u].from", &number) == 1 && strstr(name, "].from") != NULL &&
            (from == 0 || from < row))
            snprintf(begun, sizeof begun, "record[%04u].", number);
    }
    for (size_t at = 0; begun[0] != 0 && rp_record_next(&record, &at, &field);) {
        if (field.name_bytes > 7 && memcmp(field.name, "record[", 7) == 0 &&
            memcmp(field.name, begun, strlen(begun)) <= 0)
            strncat(text, field.name, (size_t)(field.value + field.value_bytes + 1 - field.name));
    }
    free(writer.text);
    return text;
}

/* Continue from the token before a row: the same row, and the same token after it. */
static void check_resume(const struct rp_calendar *calendar, const struct rp_stream_spec *spec,
                         struct rp_planner *plan, const struct rp_stream_row *first)
{
    struct rp_error error = {0};
    struct rp_calendar *other = NULL;
    struct rp_planner *again = NULL;
    size_t bytes = 0, later_bytes = 0;
    void *token = write_token(calendar, plan, &bytes);
    struct rp_stream_row row;
    int more = rp_planner_next(plan, &row, &error);
    uint64_t g = rp_planner_row(plan) - (more == 1);
    FUZZ_REQUIRE(first == NULL || g == first->row + 1);
    char *known = begun_records(calendar, g);
    struct rp_stream_resume resume = {.begun_records = known};
    int code = rp_planner_token_resume(&other, &again, spec, fuzz_at_edge(token, bytes), bytes,
                                       &resume, &error);
    if (code < 0 && more >= 0)
        fuzz_failed(error.message, __FILE__, __LINE__);
    if (again != NULL) {
        struct rp_stream_row same;
        struct rp_error later = {0};
        FUZZ_REQUIRE(rp_planner_next(again, &same, &later) == more);
        FUZZ_REQUIRE(more < 1 || (same.row == row.row && same.count == row.count &&
                                  memcmp(same.fragments, row.fragments,
                                         row.count * sizeof *row.fragments) == 0));
    }
    if (again != NULL && more >= 0) {
        void *mine = write_token(calendar, plan, &bytes);
        void *its = write_token(other, again, &later_bytes);
        FUZZ_REQUIRE(bytes == later_bytes && memcmp(mine, its, bytes) == 0);
        free(mine);
        free(its);
    }
    rp_planner_close(again);
    rp_calendar_close(other);
    free(known);
    free(token);
}

static void check_plan(const struct rp_calendar *calendar, const struct rp_stream_spec *spec,
                       uint32_t resume_at)
{
    struct rp_error error = {0};
    struct rp_planner *plan;
    if (!fuzz_accepted(rp_planner_open(&plan, calendar, &error), &error))
        return;
    struct rp_stream_row row = {.row = UINT64_MAX};
    for (uint32_t g = 0; g < ROWS; g++) {
        if (g == resume_at) {
            check_resume(calendar, spec, plan, g == 0 ? NULL : &row);
            g++;
        }
        int more = rp_planner_next(plan, &row, &error);
        FUZZ_REQUIRE(more == 1 || more == 0 || error.message[0] != 0);
        if (more < 1)
            break;
        check_row(calendar, &row, g);
    }
    rp_planner_close(plan);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    struct rp_calendar *calendar = NULL;
    struct rp_calendar_position position = {0};
    uint32_t resume_at = (uint32_t)fuzz_number(&input, 1) % ROWS;
    struct rp_stream_spec spec = make_spec(&input);
    if (!fuzz_accepted(rp_calendar_open(&calendar, &spec, &position, &error), &error))
        return 0;
    check_plan(calendar, &spec, resume_at);
    rp_calendar_close(calendar);
    return 0;
}
