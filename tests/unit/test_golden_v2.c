/* SPDX-License-Identifier: Apache-2.0 */
/* The engine against the golden vectors of stream version 2, which the oracle wrote from
 * STREAM2.md: contract, identity, rows, content digest, and state tokens byte by byte, written and
 * continued from. Some vectors have a second start, from a token of the first run, with more
 * documents, other weights or other stages ahead.
 *
 * The control is a vector with one value changed: it must not match. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glob.h>

#include "../oracle/stream2_spec.h"

#define GOLDEN RP_SOURCE_DIR "/tests/golden/stream-v2/"

/* The first difference of a vector and the engine; empty while they agree. */
struct difference {
    char text[300];
};

static void differ(struct difference *difference, const char *subject, uint64_t row)
{
    if (difference->text[0] == 0)
        snprintf(difference->text, sizeof difference->text, "%.250s at row %" PRIu64, subject, row);
}

struct run {
    struct rp_spec2 spec, arrays; /* arrays: of the weights */
    struct rp_calendar *calendar;
    struct rp_planner *plan;
    struct rp_error error;
};

static int resume(struct run *run, const char *hex, const char *records, const json_t *weights)
{
    size_t bytes = strlen(hex) / 2;
    unsigned char *token = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        sscanf(hex + 2 * i, "%2hhx", &token[i]);
    struct rp_stream_resume resume = {
        .begun_records = records, .weights = rp_spec2_weights(&run->arrays, weights), .grow = true};
    int code = rp_planner_token_resume(&run->calendar, &run->plan, &run->spec.spec, token, bytes,
                                       &resume, &run->error);
    free(token);
    return code;
}

/* From row 0 without a token. */
static int open_run(struct run *run, const json_t *stream, const char *token, const char *records,
                    const json_t *weights)
{
    struct rp_calendar_position start = {0};
    *run = (struct run){0};
    rp_spec2_read(&run->spec, stream);
    if (token != NULL)
        return resume(run, token, records, weights);
    int code = rp_calendar_open(&run->calendar, &run->spec.spec, &start, &run->error);
    return code < 0 ? code : rp_planner_open(&run->plan, run->calendar, &run->error);
}

static void close_run(struct run *run)
{
    rp_planner_close(run->plan);
    rp_calendar_close(run->calendar);
    rp_spec2_free(&run->spec);
    rp_spec2_free(&run->arrays);
}

/* ---- Contract, rows, tokens ------------------------------------------------------------------ */

static void compare_contract(const json_t *golden, struct run *run, struct difference *difference)
{
    struct rp_record_writer writer = {0};
    struct rp_record record;
    char hex[RP_HASH_HEX_BYTES];
    assert_int_equal(rp_calendar_contract(run->calendar, &writer, &run->error), 0);
    const json_t *wanted = rp_spec_get(golden, "contract");
    if (json_string_length(wanted) != writer.bytes ||
        memcmp(json_string_value(wanted), writer.text, writer.bytes) != 0)
        differ(difference, "stream contract", 0);
    assert_int_equal(rp_record_open(&record, writer.text, writer.bytes, &run->error), 0);
    if (strcmp(json_string_value(rp_spec_get(golden, "identity")),
               rp_hash128_hex(rp_record_hash(&record), hex)) != 0)
        differ(difference, "identity", 0);
    free(writer.text);
}

static void compare_token(const json_t *golden, struct run *run, struct difference *difference)
{
    size_t i, bytes = 0;
    json_t *state;
    uint64_t first = rp_spec2_at(json_array_get(rp_spec_get(golden, "rows"), 0), 0);
    uint64_t next = rp_planner_row(run->plan);
    unsigned char *token = malloc(rp_planner_token_bytes_max(run->calendar));
    assert_int_equal(rp_planner_token_write(run->plan, token, &bytes, &run->error), 0);
    char *hex = rp_spec_hex(token, bytes);
    json_array_foreach(rp_spec_get(golden, "states"), i, state)
    {
        const char *wanted = json_string_value(rp_spec_get(state, "token"));
        if (first + rp_spec_u64(state, "row") == next && strcmp(wanted, hex) != 0)
            differ(difference, "state token", next);
    }
    free(hex);
    free(token);
}

/* [g, q, skipped, cost, fragment, …] */
static bool row_equals(const json_t *wanted, const struct rp_stream_row *row)
{
    bool skipped = rp_spec2_at(wanted, 2) != 0;
    uint32_t count = skipped ? 0 : row->count;
    if (rp_spec2_at(wanted, 0) != row->row || rp_spec2_at(wanted, 1) != row->planned ||
        skipped != row->skipped || rp_spec2_at(wanted, 3) != row->cost ||
        json_array_size(wanted) != 4 + (size_t)count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const json_t *own = json_array_get(wanted, 4 + i);
        const struct rp_fragment *found = &row->fragments[i];
        const uint64_t fields[] = {found->source, found->document, found->offset, found->length};
        for (size_t k = 0; k < 4; k++) {
            if (rp_spec2_at(own, k) != fields[k])
                return false;
        }
    }
    return true;
}

/* Token `at` of a document, inserted ones included; the corpus has lengths only. */
static uint32_t token_at(const struct run *run, const struct rp_fragment *fragment, uint64_t at)
{
    const struct rp_stream_fixed *fixed = &run->spec.spec.fixed;
    const struct rp_stream_source *source = rp_calendar_source(run->calendar, fragment->source);
    const struct rp_spec2_source *own = source->view.context;
    if (fixed->bos_id != RP_NO_TOKEN_ID && at-- == 0)
        return fixed->bos_id;
    if (at == own->lengths[fragment->document])
        return fixed->eos_id;
    return rp_spec_token(fragment->source, fragment->document, at);
}

/* H of section 15; zero for a row without fragments. */
static struct rp_hash128 row_digest(const struct run *run, const struct rp_stream_row *row)
{
    struct rp_hasher hasher;
    if (row->skipped || row->count == 0)
        return (struct rp_hash128){0, 0};
    rp_hasher_begin(&hasher);
    rp_hasher_add(&hasher, &row->count, 4);
    for (uint32_t i = 0; i < row->count; i++)
        rp_hasher_add(&hasher, &row->fragments[i].length, 4);
    for (uint32_t i = 0; i < row->count; i++) {
        const struct rp_fragment *fragment = &row->fragments[i];
        for (uint64_t at = fragment->offset; at < fragment->offset + fragment->length; at++) {
            uint32_t token = token_at(run, fragment, at);
            rp_hasher_add(&hasher, &token, 4);
        }
    }
    struct rp_hash128 content = rp_hasher_finish(&hasher);
    uint64_t numbered[3] = {row->planned, content.low, content.high};
    return rp_hash128(numbered, sizeof numbered);
}

/* From the run's next row to the vector's last one. The digest covers all rows of the vector, so
 * only a run from its first row has it. */
static void compare_rows(const json_t *golden, struct run *run, struct difference *difference)
{
    struct rp_hash128 digest = {0, 0};
    struct rp_stream_row row;
    char hex[RP_HASH_HEX_BYTES];
    const json_t *rows = rp_spec_get(golden, "rows");
    uint64_t first = rp_spec2_at(json_array_get(rows, 0), 0);
    uint64_t begin = rp_planner_row(run->plan), end = first + json_array_size(rows);
    compare_token(golden, run, difference);
    for (uint64_t g = begin; g < end; g++) {
        int code = rp_planner_next(run->plan, &row, &run->error);
        if (code != 1) {
            differ(difference, code < 0 ? run->error.message : "the end", g);
            return;
        }
        if (!row_equals(json_array_get(rows, g - first), &row))
            differ(difference, "row", g);
        digest = rp_hash128_sum(digest, row_digest(run, &row));
        compare_token(golden, run, difference);
    }
    const char *wanted = json_string_value(rp_spec_get(golden, "digest"));
    if (begin == first && strcmp(wanted, rp_hash128_hex(digest, hex)) != 0)
        differ(difference, "content digest", end);
    if (rp_spec_u64(golden, "ends") == 1 && rp_planner_next(run->plan, &row, &run->error) != 0)
        differ(difference, "end of the stream", end);
}

/* A start from a token (NULL: from row 0), and the rows after it. */
static struct difference compare(const json_t *golden, const json_t *stream, const char *token,
                                 const char *records, const json_t *weights)
{
    struct difference difference = {0};
    struct run run;
    if (open_run(&run, stream, token, records, weights) < 0) {
        differ(&difference, run.error.message, 0);
    } else {
        compare_contract(golden, &run, &difference);
        compare_rows(golden, &run, &difference);
    }
    close_run(&run);
    return difference;
}

/* ---- The vectors ----------------------------------------------------------------------------- */

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *golden = json_load_file(path, 0, &error);
    if (golden == NULL)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    return golden;
}

/* The stream of the second start: the first one, with its own values. */
static json_t *stream_of_second(const json_t *golden)
{
    json_t *stream = json_copy(rp_spec_get(golden, "stream"));
    json_object_update(stream, rp_spec_get(rp_spec_get(golden, "second"), "stream"));
    return stream;
}

static struct difference compare_second(const json_t *golden)
{
    const json_t *second = rp_spec_get(golden, "second");
    json_t *stream = stream_of_second(golden);
    struct difference difference = compare(
        second, stream, json_string_value(rp_spec_get(second, "token")),
        json_string_value(rp_spec_get(golden, "contract")), json_object_get(second, "weights"));
    json_decref(stream);
    return difference;
}

static void each_vector(void check(const char *path, const json_t *golden))
{
    glob_t files = {0};
    assert_int_equal(glob(GOLDEN "*.json", 0, NULL, &files), 0);
    assert_true(files.gl_pathc >= 8);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        json_t *golden = load(files.gl_pathv[i]);
        check(files.gl_pathv[i], golden);
        json_decref(golden);
    }
    globfree(&files);
}

static void demand_equal(const char *path, struct difference difference)
{
    if (difference.text[0] != 0)
        fail_msg("%s: %s", path, difference.text);
}

static void check_run(const char *path, const json_t *golden)
{
    demand_equal(path, compare(golden, rp_spec_get(golden, "stream"), NULL, NULL, NULL));
}

static void every_run_equals_its_vector(void **state)
{
    (void)state;
    each_vector(check_run);
}

/* With the contract, and without it where the history has all records. */
static void check_tokens(const json_t *golden, const char *path, const json_t *stream,
                         const char *records)
{
    size_t i;
    json_t *state;
    json_array_foreach(rp_spec_get(golden, "states"), i, state)
    {
        const char *token = json_string_value(rp_spec_get(state, "token"));
        demand_equal(path, compare(golden, stream, token, records, NULL));
    }
}

static void check_resumes(const char *path, const json_t *golden)
{
    const char *contract = json_string_value(rp_spec_get(golden, "contract"));
    check_tokens(golden, path, rp_spec_get(golden, "stream"), contract);
    check_tokens(golden, path, rp_spec_get(golden, "stream"), NULL);
}

static void every_run_continues_from_each_token(void **state)
{
    (void)state;
    each_vector(check_resumes);
}

static int seconds; /* vectors that have one */

static void check_second(const char *path, const json_t *golden)
{
    const json_t *second = json_object_get(golden, "second");
    if (second == NULL)
        return;
    seconds++;
    demand_equal(path, compare_second(golden));
    json_t *stream = stream_of_second(golden);
    check_tokens(second, path, stream, json_string_value(rp_spec_get(second, "contract")));
    json_decref(stream);
}

static void every_second_start_equals_its_vector(void **state)
{
    (void)state;
    seconds = 0;
    each_vector(check_second);
    assert_true(seconds >= 2);
}

static void demand_difference(json_t *golden)
{
    assert_true(compare(golden, rp_spec_get(golden, "stream"), NULL, NULL, NULL).text[0] != 0);
    json_decref(golden);
}

static void a_changed_vector_does_not_match(void **state)
{
    (void)state;
    static const char *const keys[] = {"contract", "identity", "digest"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *golden = load(GOLDEN "spread.json");
        json_object_set_new(golden, keys[i], json_string("0"));
        demand_difference(golden);
    }
    json_t *golden = load(GOLDEN "spread.json"), *rows = rp_spec_get(golden, "rows");
    json_array_set(rows, 20, json_array_get(rows, 19));
    demand_difference(golden);
    golden = load(GOLDEN "spread.json");
    json_t *states = rp_spec_get(golden, "states");
    json_object_set_new(json_array_get(states, 1), "token", json_string("00"));
    demand_difference(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_run_equals_its_vector),
        cmocka_unit_test(every_run_continues_from_each_token),
        cmocka_unit_test(every_second_start_equals_its_vector),
        cmocka_unit_test(a_changed_vector_does_not_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
