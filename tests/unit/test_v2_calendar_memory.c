/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of a calendar and of its contract fails: refused with a message, and nothing is
 * leaked. */
#include "system_faults.h"

#include "calendar_kit.h"
#include "plan/v2/deal.h"

static struct calendar_stream stream;
static struct rp_calendar_position position;

static int open_and_write(struct rp_error *error_out)
{
    struct rp_calendar *calendar;
    struct rp_record_writer writer = {0};
    uint64_t costs[8] = {1, 5, 2, 4, 3, 0, 0, 9};
    uint32_t order[8];
    int code = rp_calendar_open(&calendar, &stream.spec, &position, error_out);
    if (code < 0) {
        assert_null(calendar);
        return code;
    }
    code = rp_calendar_contract(calendar, &writer, error_out);
    if (code == 0) {
        code = rp_deal_order(&stream.stages[2].deal, costs, 8, order, NULL);
        if (code < 0)
            snprintf(error_out->message, sizeof error_out->message, "no memory for a deal window");
    }
    free(writer.text);
    rp_calendar_close(calendar);
    return code;
}

static void every_allocation_of_both(void)
{
    every_allocation(open_and_write, false);
    every_allocation(open_and_write, true);
}

static void test_new_streams(void **unused)
{
    (void)unused;
    memset(&position, 0, sizeof position);
    calendar_one(&stream);
    stream.stages[2].deal = (struct rp_deal){
        .window = 8, .step = 4, .tier = 2, .bundle = 1, .cost.k = 4, .cost.b = 1};
    every_allocation_of_both();
    calendar_three(&stream);
    every_allocation_of_both();
}

static void test_continued(void **unused)
{
    (void)unused;
    static const char *const known[] = {"web", "code"};
    static const uint64_t documents[] = {6, 5};
    static const uint32_t weights[] = {2, 1};
    static const struct rp_calendar_held held = {
        .documents = documents, .weights = weights, .max_docs_per_row = 33};
    calendar_three(&stream);
    position = (struct rp_calendar_position){
        .next_row = 50,
        .known_count = 2,
        .known_names = known,
        .is_resumed = true,
        .begun_records = "record[0000].documents[0000]=6\nrecord[0000].documents[0001]=5\n"
                         "record[0000].from=0\nrecord[0000].max_docs_per_row=33\n"
                         "record[0001].from=20\nrecord[0001].weight[0000]=2\n"
                         "record[0001].weight[0001]=1\n"};
    every_allocation_of_both();
    position.begun_records = NULL;
    position.held = &held;
    every_allocation_of_both();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_streams),
        cmocka_unit_test(test_continued),
    };
    return run_with_faults("v2_calendar_memory", tests, NULL, NULL);
}
