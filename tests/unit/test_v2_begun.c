/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals of a calendar that continues: texts of records that are damaged, an index or a config
 * that does not suit the records, and records that are not known. */
#include "calendar_kit.h"

static const char *const known[] = {"web", "code", "math \\1"};

static void expect_refused(const struct calendar_stream *stream,
                           const struct rp_calendar_position *position, int expected,
                           const char *message)
{
    struct rp_calendar *calendar;
    struct rp_error error = {0};
    int code = rp_calendar_open(&calendar, &stream->spec, position, &error);
    if (code != expected || !strstr(error.message, message))
        fail_msg("expected \"%s\", found %d: %s", message, code, error.message);
}

static void test_damaged_records(void **unused)
{
    (void)unused;
    static const char *const texts[] = {
        "record[0000].documents[0000]=6\nrecord[0000].max_docs_per_row=33\n",
        "record[0000].documents[0000]=six\nrecord[0000].from=0\n",
        "record[0000].documents[0000]=99999999999999999999\nrecord[0000].from=0\n",
        "record[0000].documents[0003]=6\nrecord[0000].from=0\n",
        "record[0000].documents[000]=6\nrecord[0000].from=0\n",
        "record[0000].documents=6\nrecord[0000].from=0\n",
        "record[0000].from=0\nrecord[0000].weight[0000]=0\n",
        "record[0000].from=0\nrecord[0000].range[0000]=5-5\n",
        "record[0000].from=0\nrecord[0000].range[0000]=5\n",
        "record[0000].from=0\nrecord[0000].seq_len=64\n",
        "record[0000].deal=8,4,2,1,other,4,0,0,1\nrecord[0000].from=0\n",
        "record[0000].deal=8,4,2,1,middle,4,0,0\nrecord[0000].from=0\n",
        "record[0000].deal=8,3,2,1,middle,4,0,0,1\nrecord[0000].from=0\n",
        "record[0000].deal=off1\nrecord[0000].from=0\n",
        "record[0000].from=5\nrecord[0001].from=5\n",
        "record[0000].from~0\n",
        "record[000].from=0\n",
        "records=0\n",
        "record[0000].from=1\nrecord[0000].from=1\n",
        "record[0000].from=1",
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(texts); i++) {
        struct rp_calendar_position position = {.next_row = 101,
                                                .known_count = 3,
                                                .known_names = known,
                                                .is_resumed = true,
                                                .begun_records = texts[i]};
        struct calendar_stream stream;
        calendar_three(&stream);
        expect_refused(&stream, &position, -RP_E_CORRUPT, "record");
    }
}

static void test_continued(void **unused)
{
    (void)unused;
    static const char percent[] =
        "record[0000].documents[0000]=6\nrecord[0000].documents[0001]=5\nrecord[0000].from=0\n"
        "record[0000].max_docs_per_row=33\nrecord[0000].range[0000]=0-6\n";
    struct rp_calendar_position position = {.next_row = 50,
                                            .known_count = 2,
                                            .known_names = known,
                                            .is_resumed = true,
                                            .begun_records = percent};
    struct calendar_stream stream;
    calendar_three(&stream);
    expect_refused(&stream, &position, -RP_E_CONFIG,
                   "source \"web\": documents: expected 0-6, as when it joined, found 0-");
    stream.sources[1].is_percent = true; /* its index has grown */
    stream.sources[1].range_first = 1;
    stream.sources[1].range_end = 5;
    stream.sources[1].documents = 4;
    expect_refused(&stream, &position, -RP_E_CONFIG, "expected 0-6, as when it joined, found 1-5");
    calendar_three(&stream);
    stream.sources[1].range_end = 6;
    rp_calendar_close(calendar_open(&stream, &position));
    stream.sources[1].documents = 4;
    expect_refused(&stream, &position, -RP_E_CONFIG, "source \"web\": expected the 6 documents");
    calendar_three(&stream);
    stream.sources[1].is_absent = true;
    stream.weights[1][1] = 0;
    expect_refused(&stream, &position, -RP_E_CONFIG,
                   "row 300: weight: no source has the name \"web\"");
    stream.spec.record_count = 0;
    expect_refused(&stream, &position, -RP_E_CONFIG, "its weight at row 49 is above 0");
    calendar_three(&stream);
    position.begun_records = NULL;
    expect_refused(&stream, &position, -RP_E_CONFIG,
                   "the records of the stream before row 50 are not known");
}

/* Within a ramp the weights before it must be known. */
static void test_unknown_in_ramp(void **unused)
{
    (void)unused;
    static const uint64_t documents[] = {6, 5, 4};
    static const uint32_t weights[] = {1, 1, 2};
    struct rp_calendar_held held = {
        .documents = documents, .weights = weights, .max_docs_per_row = 33};
    struct rp_calendar_position position = {
        .next_row = 150, .known_count = 3, .known_names = known, .is_resumed = true, .held = &held};
    struct calendar_stream stream;
    calendar_three(&stream);
    expect_refused(&stream, &position, -RP_E_CONFIG, "a ramp needs the weights before it");
    position.next_row = 200;
    rp_calendar_close(calendar_open(&stream, &position));
    stream.sources[1].documents = 5;
    expect_refused(&stream, &position, -RP_E_CONFIG, "source \"web\": expected the 6 documents");
    calendar_three(&stream);
    held.max_docs_per_row = 0;
    expect_refused(&stream, &position, -RP_E_CORRUPT, "max_docs_per_row 0");
    held.max_docs_per_row = 65;
    expect_refused(&stream, &position, -RP_E_CONFIG, "expected group 1 to seq_len 64, found 65");
    held.max_docs_per_row = 33;
    held.deal = (struct rp_deal){
        .window = 3, .step = 2, .tier = 1, .bundle = 1, .cost.k = 1, .cost.b = 1};
    expect_refused(&stream, &position, -RP_E_CONFIG, "deal: window: expected a multiple of step 2");
    held = (struct rp_calendar_held){
        .documents = documents, .weights = (uint32_t[3]){0}, .max_docs_per_row = 33};
    expect_refused(&stream, &position, -RP_E_CORRUPT, "no weight above 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_records),
        cmocka_unit_test(test_continued),
        cmocka_unit_test(test_unknown_in_ramp),
    };
    return cmocka_run_group_tests_name("v2_begun", tests, NULL, NULL);
}
