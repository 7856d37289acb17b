/* SPDX-License-Identifier: Apache-2.0 */
/* The plan against the golden vectors of stream version 1, which the oracle wrote from STREAM.md:
 * first rows, number of rows, counts, digests, and state tokens byte by byte, saved and loaded. The
 * tokens of stream-v1 are of version 1, without a plan digest: token-v3.json has those with one.
 *
 * The control is a vector with one parameter changed: it must not match. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glob.h>

#include "../oracle/plan_spec.h"

#ifndef RP_GOLDEN_DIR
#define RP_GOLDEN_DIR "tests/golden/stream-v1"
#endif

/* The first difference of the vector and the plan; empty while they agree. */
struct difference {
    char text[256];
};

static void differ(struct difference *difference, const char *what, uint64_t where)
{
    if (difference->text[0] == 0)
        snprintf(difference->text, sizeof difference->text, "%.200s at row %" PRIu64, what, where);
}

static struct rp_plan *open_plan(const struct rp_spec *spec)
{
    struct rp_error error = {0};
    struct rp_plan *plan = NULL;
    if (rp_plan_open(&plan, &spec->config, spec->sources, spec->source_count, &error) != 0)
        fail_msg("rp_plan_open: %s", error.message);
    return plan;
}

static bool fragments_equal(const json_t *golden, const struct rp_row *row)
{
    if (json_array_size(golden) != row->count)
        return false;
    for (uint32_t i = 0; i < row->count; i++) {
        const json_t *wanted = json_array_get(golden, i);
        const struct rp_fragment *found = &row->fragments[i];
        const uint64_t fields[] = {found->source, found->document, found->offset, found->length};
        for (size_t k = 0; k < 4; k++) {
            if ((uint64_t)json_integer_value(json_array_get(wanted, k)) != fields[k])
                return false;
        }
    }
    return true;
}

/* The token that the vector has for a row, in hex; NULL if it has none. */
static const char *golden_state(const json_t *golden, uint64_t row)
{
    size_t i;
    json_t *state;
    json_array_foreach(rp_spec_get(golden, "states"), i, state)
    {
        if (rp_spec_u64(state, "row") == row)
            return json_string_value(rp_spec_get(state, "token"));
    }
    return NULL;
}

static void compare_state(const json_t *golden, const struct rp_plan *plan,
                          struct difference *difference)
{
    const char *wanted = golden_state(golden, rp_plan_row(plan));
    if (wanted == NULL)
        return;
    char *found = rp_spec_state(plan);
    if (strcmp(wanted, found) != 0)
        differ(difference, "state token", rp_plan_row(plan));
    free(found);
}

static void compare_counts(const json_t *golden, const struct rp_plan *plan,
                           struct difference *difference)
{
    const json_t *wanted = rp_spec_get(golden, "counts");
    struct rp_plan_counts counts;
    rp_plan_counts(plan, &counts);
    if (rp_spec_u64(wanted, "documents") != counts.documents ||
        rp_spec_u64(wanted, "empty") != counts.empty ||
        rp_spec_u64(wanted, "tokens_read") != counts.tokens_read ||
        rp_spec_u64(wanted, "truncated") != counts.truncated ||
        rp_spec_u64(wanted, "dropped") != counts.dropped ||
        rp_spec_u64(wanted, "emitted") != counts.emitted ||
        rp_spec_u64(wanted, "padding") != counts.padding ||
        rp_spec_u64(wanted, "buffered") != counts.buffered)
        differ(difference, "counts", rp_plan_row(plan));
}

/* Plan rows up to the end of the vector, compare them with its rows, and add up their digests. */
static struct rp_hash128 compare_rows(const json_t *golden, struct rp_plan *plan,
                                      struct difference *difference)
{
    struct rp_hash128 digest = {0, 0};
    const json_t *rows = rp_spec_get(golden, "rows");
    uint64_t end = rp_spec_u64(golden, "end");
    compare_state(golden, plan, difference);
    for (uint64_t g = rp_plan_row(plan); g < end; g++) {
        struct rp_error error = {0};
        struct rp_row row;
        int more = rp_plan_next(plan, &row, &error);
        if (more != 1 || row.row != g) {
            differ(difference, more < 0 ? error.message : "number of the row", g);
            break;
        }
        if (g < json_array_size(rows) && !fragments_equal(json_array_get(rows, g), &row))
            differ(difference, "fragments", g);
        digest = rp_hash128_sum(digest, rp_spec_row_digest(&row));
        compare_state(golden, plan, difference);
    }
    return digest;
}

static void compare_end(const json_t *golden, struct rp_plan *plan, struct difference *difference)
{
    struct rp_error error = {0};
    struct rp_row row;
    int more = rp_plan_next(plan, &row, &error);
    bool endless = json_is_null(rp_spec_get(golden, "N"));
    if (more != (endless ? 1 : 0))
        differ(difference, "end of the stream", rp_plan_row(plan));
}

/* The stream record of the contract, and its hash, against the vector of that name. */
static void compare_contract(const json_t *wanted, const struct rp_plan *plan,
                             struct difference *difference)
{
    struct rp_record_writer writer = {0};
    char identity[RP_HASH_HEX_BYTES];
    rp_plan_contract(plan, &writer);
    const json_t *record = rp_spec_get(wanted, "record");
    if (json_string_length(record) != writer.bytes ||
        memcmp(json_string_value(record), writer.text, writer.bytes) != 0)
        differ(difference, "stream contract", 0);
    rp_hash128_hex(rp_spec_identity(plan), identity);
    if (strcmp(json_string_value(rp_spec_get(wanted, "identity")), identity) != 0)
        differ(difference, "identity", 0);
    free(writer.text);
}

static struct difference compare(const json_t *golden)
{
    struct difference difference = {0};
    struct rp_spec spec = rp_spec_read(rp_spec_get(golden, "spec"));
    struct rp_plan *plan = open_plan(&spec);
    char digest[RP_HASH_HEX_BYTES];
    rp_plan_forget_digest(plan); /* so that it writes tokens of version 1 */
    rp_hash128_hex(compare_rows(golden, plan, &difference), digest);
    if (strcmp(json_string_value(rp_spec_get(golden, "digest")), digest) != 0)
        differ(&difference, "digest", rp_plan_row(plan));
    compare_counts(golden, plan, &difference);
    compare_end(golden, plan, &difference);
    rp_plan_close(plan);
    rp_spec_free(&spec);
    return difference;
}

static bool load_hex(struct rp_plan *plan, const char *hex, struct difference *difference)
{
    size_t bytes = strlen(hex) / 2;
    unsigned char *token = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        sscanf(hex + 2 * i, "%2hhx", &token[i]);
    struct rp_error error = {0};
    bool is_loaded = rp_plan_load(plan, token, bytes, false, &error) == 0;
    if (!is_loaded)
        differ(difference, error.message, rp_plan_row(plan));
    free(token);
    return is_loaded;
}

/* Load one of the vector's tokens into a fresh plan and continue from there. */
static struct difference compare_resumed(const json_t *golden, const char *hex)
{
    struct difference difference = {0};
    struct rp_spec spec = rp_spec_read(rp_spec_get(golden, "spec"));
    struct rp_plan *plan = open_plan(&spec);
    if (load_hex(plan, hex, &difference)) {
        compare_rows(golden, plan, &difference);
        compare_counts(golden, plan, &difference);
        compare_end(golden, plan, &difference);
    }
    rp_plan_close(plan);
    rp_spec_free(&spec);
    return difference;
}

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *golden = json_load_file(path, 0, &error);
    if (golden == NULL)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    return golden;
}

/* The plan digests of a vector from the plan's row on, and its token, if the plan gets there. */
static void compare_digests(const json_t *wanted, struct rp_plan *plan,
                            struct difference *difference)
{
    const char *token = json_string_value(rp_spec_get(wanted, "token"));
    uint64_t end = 2 * rp_spec_u64(wanted, "row") + 2; /* the token is of the middle */
    struct rp_row row;
    struct rp_error error = {0};
    do {
        char name[24], hex[RP_HASH_HEX_BYTES];
        uint64_t g = rp_plan_row(plan);
        snprintf(name, sizeof name, "%" PRIu64, g);
        const char *digest = json_string_value(
            json_object_get(rp_spec_get(wanted, "digests"), name));
        if (digest && strcmp(digest, rp_hash128_hex(rp_plan_digest(plan), hex)) != 0)
            differ(difference, "plan digest", g);
        char *found = g == rp_spec_u64(wanted, "row") ? rp_spec_state(plan) : NULL;
        if (found && strcmp(found, token) != 0)
            differ(difference, "token of version 3", g);
        free(found);
    } while (rp_plan_row(plan) < end && rp_plan_next(plan, &row, &error) == 1);
}

static struct difference compare_vector_of_digests(const char *name, const json_t *wanted)
{
    char path[512];
    struct difference difference = {0};
    snprintf(path, sizeof path, RP_GOLDEN_DIR "/%s.json", name);
    json_t *golden = load(path);
    struct rp_spec spec = rp_spec_read(rp_spec_get(golden, "spec"));
    struct rp_plan *plan = open_plan(&spec);
    compare_digests(wanted, plan, &difference);
    rp_plan_close(plan);
    plan = open_plan(&spec);
    if (load_hex(plan, json_string_value(rp_spec_get(wanted, "token")), &difference))
        compare_digests(wanted, plan, &difference);
    rp_plan_close(plan);
    rp_spec_free(&spec);
    json_decref(golden);
    return difference;
}

static void plan_digests_equal_their_vectors(void **state)
{
    (void)state;
    json_t *vectors = load(RP_GOLDEN_DIR "/../token-v3.json");
    const char *name;
    json_t *wanted;
    json_object_foreach(vectors, name, wanted)
    {
        struct difference difference = compare_vector_of_digests(name, wanted);
        if (difference.text[0] != 0)
            fail_msg("%s: %s", name, difference.text);
    }
    wanted = rp_spec_get(vectors, "concat"); /* the control */
    json_object_set(wanted, "token",
                    rp_spec_get(rp_spec_get(vectors, "concat-none-drop"), "token"));
    assert_true(compare_vector_of_digests("concat", wanted).text[0] != 0);
    json_decref(vectors);
}

static glob_t golden_files(void)
{
    glob_t files = {0};
    assert_int_equal(glob(RP_GOLDEN_DIR "/*.json", 0, NULL, &files), 0);
    assert_true(files.gl_pathc >= 12);
    return files;
}

static void plan_equals_every_vector(void **state)
{
    (void)state;
    glob_t files = golden_files();
    for (size_t i = 0; i < files.gl_pathc; i++) {
        json_t *golden = load(files.gl_pathv[i]);
        struct difference difference = compare(golden);
        if (difference.text[0] != 0)
            fail_msg("%s: %s", files.gl_pathv[i], difference.text);
        json_decref(golden);
    }
    globfree(&files);
}

static void every_contract_equals_its_vector(void **state)
{
    (void)state;
    json_t *contracts = load(RP_GOLDEN_DIR "/../contract-v1.json");
    const char *name;
    json_t *wanted;
    size_t compared = 0;
    json_object_foreach(contracts, name, wanted)
    {
        char path[512];
        struct difference difference = {0};
        snprintf(path, sizeof path, RP_GOLDEN_DIR "/%s.json", name);
        json_t *golden = load(path);
        struct rp_spec spec = rp_spec_read(rp_spec_get(golden, "spec"));
        struct rp_plan *plan = open_plan(&spec);
        compare_contract(wanted, plan, &difference);
        if (difference.text[0] != 0)
            fail_msg("%s: %s", name, difference.text);
        rp_plan_close(plan);
        rp_spec_free(&spec);
        json_decref(golden);
        compared++;
    }
    assert_true(compared >= 12);
    json_decref(contracts);
}

static void plan_resumes_from_every_token(void **state)
{
    (void)state;
    glob_t files = golden_files();
    for (size_t i = 0; i < files.gl_pathc; i++) {
        json_t *golden = load(files.gl_pathv[i]);
        size_t s;
        json_t *golden_state;
        json_array_foreach(rp_spec_get(golden, "states"), s, golden_state)
        {
            const char *hex = json_string_value(rp_spec_get(golden_state, "token"));
            struct difference difference = compare_resumed(golden, hex);
            if (difference.text[0] != 0)
                fail_msg("%s, token %zu: %s", files.gl_pathv[i], s, difference.text);
        }
        json_decref(golden);
    }
    globfree(&files);
}

static void changed_vectors_are_noticed(void **state)
{
    (void)state;
    json_t *golden = load(RP_GOLDEN_DIR "/lookahead-split-lanes.json");
    json_t *spec = rp_spec_get(golden, "spec");
    json_object_set_new(spec, "window", json_integer(rp_spec_u32(spec, "window") + 1));
    assert_true(compare(golden).text[0] != 0);
    json_decref(golden);

    golden = load(RP_GOLDEN_DIR "/concat.json"); /* past the rows that the vector spells out */
    json_t *source = json_array_get(rp_spec_get(rp_spec_get(golden, "spec"), "sources"), 0);
    json_object_set_new(source, "weight", json_integer(2));
    assert_true(compare(golden).text[0] != 0);
    json_object_set_new(source, "weight", json_integer(1));
    assert_string_equal(compare(golden).text, "");
    json_object_set_new(golden, "digest", json_string("00000000000000000000000000000000"));
    assert_true(strncmp(compare(golden).text, "digest", 6) == 0);
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_equals_every_vector),
        cmocka_unit_test(every_contract_equals_its_vector),
        cmocka_unit_test(plan_resumes_from_every_token),
        cmocka_unit_test(plan_digests_equal_their_vectors),
        cmocka_unit_test(changed_vectors_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
