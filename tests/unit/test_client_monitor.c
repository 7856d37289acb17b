/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor of a client: a batch with a gap, a repeat, or of another stream is refused by name,
 * or counted, and no other batch is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bits.h"
#include "client/core.h"
#include "fake_engine.h"

enum { BATCHES = 6, FAULT_AT = 3 };

/* Take batches until the end or an error; how many. */
static int take_all(struct rp_client *client, int *code, struct rp_error *error)
{
    struct rp_batch batch = {.struct_size = sizeof batch};
    int taken = 0;
    while ((*code = rp_client_next(client, -1, &batch, error)) == RP_NEXT_BATCH) {
        assert_int_equal(rp_client_release(client, &batch), 0);
        taken++;
    }
    return taken;
}

static struct rp_client_counts run_with(int64_t fault, uint32_t monitor, int *taken, int *code,
                                        struct rp_error *error)
{
    pid_t engine = fake_start((struct fake_options){.run_dir = fake_run_dir,
                                                    .generation = 1,
                                                    .slots = 4,
                                                    .seed = 7,
                                                    .batches = BATCHES,
                                                    .fault_at = fault ? FAULT_AT : 0,
                                                    .fault = fault});
    struct rp_client_options options = fake_client_options();
    struct rp_client_counts counts = {.struct_size = sizeof counts};
    struct rp_client *client;
    struct rp_error again;
    options.monitor = monitor;
    assert_int_equal(rp_client_attach(&client, &options, error), 0);
    *taken = take_all(client, code, error);
    assert_int_equal(rp_client_counts(client, &counts), 0);
    if (*code < 0) { /* and it stays so: no batch after the fault is delivered */
        int second;
        assert_int_equal(take_all(client, &second, &again), 0);
        assert_int_equal(second, *code);
    }
    rp_client_detach(client);
    fake_kill(engine);
    return counts;
}

static void rows_that_do_not_follow_are_found(void **state)
{
    (void)state;
    static const struct {
        int64_t fault;
        const char *word;
    } faults[] = {{4, "the rows between them are missing"}, {-2, "a row would be given twice"}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(faults); i++) {
        struct rp_error error = {0};
        int taken, code;
        (void)run_with(faults[i].fault, RP_MONITOR_FAIL, &taken, &code, &error);
        assert_int_equal(taken, FAULT_AT);
        assert_int_equal(code, -RP_E_PROTOCOL);
        assert_non_null(strstr(error.message, "monitor: row 6 was expected"));
        assert_non_null(strstr(error.message, faults[i].word));

        struct rp_client_counts counts = run_with(faults[i].fault, RP_MONITOR_COUNT, &taken, &code,
                                                  &error);
        assert_int_equal(taken, BATCHES);
        assert_int_equal(code, RP_NEXT_END);
        assert_int_equal(counts.gaps, faults[i].fault > 0);
        assert_int_equal(counts.repeats, faults[i].fault < 0);
        counts = run_with(faults[i].fault, RP_MONITOR_OFF, &taken, &code, &error);
        assert_int_equal(taken, BATCHES);
        assert_int_equal(counts.gaps + counts.repeats + counts.foreign, 0);
    }
}

/* A batch that was refused is not consumed: the trainer had a lease before it, and returns that. */
static void a_refused_batch_is_never_released(void **state)
{
    (void)state;
    pid_t engine = fake_start((struct fake_options){.run_dir = fake_run_dir,
                                                    .generation = 1,
                                                    .slots = 4,
                                                    .seed = 7,
                                                    .batches = BATCHES,
                                                    .fault_at = FAULT_AT,
                                                    .fault = 4});
    struct rp_client_options options = fake_client_options();
    struct rp_client_counts counts = {.struct_size = sizeof counts};
    struct rp_batch batch, refused = {.struct_size = sizeof refused};
    struct rp_client *client;
    struct rp_error error;
    assert_int_equal(rp_client_attach(&client, &options, &error), 0);
    for (int i = 0; i < FAULT_AT; i++) {
        batch = (struct rp_batch){.struct_size = sizeof batch};
        assert_int_equal(rp_client_next(client, -1, &batch, &error), RP_NEXT_BATCH);
        if (i < FAULT_AT - 1)
            assert_int_equal(rp_client_release(client, &batch), 0);
    }
    assert_int_equal(rp_client_next(client, -1, &refused, &error), -RP_E_PROTOCOL);
    assert_int_equal(rp_client_release(client, &batch), 0);
    assert_int_equal(client->current->view.release, FAULT_AT);
    for (int i = 0; i < 2 * BATCHES; i++)
        assert_int_equal(rp_client_next(client, -1, &refused, &error), -RP_E_PROTOCOL);
    assert_int_equal(client->current->view.release, FAULT_AT);
    assert_int_equal(rp_client_counts(client, &counts), 0);
    assert_int_equal(counts.gaps, 1);
    rp_client_detach(client);
    fake_kill(engine);
}

static void a_good_stream_has_no_finding(void **state)
{
    (void)state;
    struct rp_error error;
    int taken, code;
    struct rp_client_counts counts = run_with(0, RP_MONITOR_FAIL, &taken, &code, &error);
    assert_int_equal(taken, BATCHES);
    assert_int_equal(code, RP_NEXT_END);
    assert_int_equal(counts.gaps + counts.repeats + counts.foreign, 0);
}

static void an_unknown_monitor_is_refused(void **state)
{
    (void)state;
    struct rp_client_options options = fake_client_options();
    struct rp_client *client;
    struct rp_error error;
    options.monitor = 3;
    assert_int_equal(rp_client_attach(&client, &options, &error), -RP_E_USAGE);
    assert_non_null(strstr(error.message, "monitor is 3"));
}

/* ---- state tokens ---------------------------------------------------------------------------- */

enum { CALENDAR_BYTES = 400 }; /* in a token of version 4 */
enum { TOKEN_BYTES = 152, DIGEST_AT = TOKEN_BYTES - 32, ROWS_AT = 1024, SLOT_BYTES = 2048 };

/* The fields that the monitor reads in a token of version 3. */
static void write_token(uint8_t *token, uint64_t next_row, uint64_t digest)
{
    memset(token, 7, TOKEN_BYTES);
    memcpy(token, "RPSTATE", 8);
    rp_store_u32(token + 8, 3);
    rp_store_u64(token + 96, next_row);
    rp_store_u64(token + DIGEST_AT, digest);
}

/* A client that has had the rows before 8, and the next batch, of two rows. Both have equal tokens
 * but for row and digest. */
struct place {
    struct rp_client client;
    struct rp_geometry geometry;
    struct rp_slot_header header;
    _Alignas(64) uint8_t slot[SLOT_BYTES], state[CALENDAR_BYTES];
};

static uint8_t *make_place(struct place *place)
{
    *place = (struct place){.geometry = fake_geometry(4, 0)};
    place->header = (struct rp_slot_header){.batch = 4,
                                            .first_row = 8,
                                            .next_row = 10,
                                            .rows = FAKE_ROWS,
                                            .micro_batches = 1,
                                            .state_offset = RP_SLOT_STATE_OFFSET,
                                            .state_bytes = TOKEN_BYTES};
    struct rp_row_info rows[FAKE_ROWS] = {{.row = 8}, {.row = 9}};
    place->geometry.sections[RP_SECTION_ROWS].offset = ROWS_AT; /* after a token */
    memcpy(place->slot + ROWS_AT, rows, sizeof rows);
    write_token(place->state, 8, 1);
    write_token(place->slot + RP_SLOT_STATE_OFFSET, 10, 2);
    place->client.kept[0].token = place->state;
    place->client.kept[0].bytes = TOKEN_BYTES;
    place->client.attach_row = 8;
    place->client.options.monitor = RP_MONITOR_COUNT;
    return place->slot + RP_SLOT_STATE_OFFSET;
}

static void look(struct place *place, uint64_t gaps, uint64_t repeats, uint64_t foreign)
{
    struct rp_error error;
    const struct rp_client_counts *counts = &place->client.counts;
    assert_int_equal(
        rp_client_monitor(&place->client, &place->geometry, place->slot, &place->header, &error),
        0);
    assert_int_equal(counts->gaps, gaps);
    assert_int_equal(counts->repeats, repeats);
    assert_int_equal(counts->foreign, foreign);
}

static void a_state_of_another_stream_is_found(void **state)
{
    (void)state;
    static struct place place;
    (void)make_place(&place); /* the control */
    look(&place, 0, 0, 0);
    static const size_t foreign[] = {0, 16, 31, 48, 87, 96};
    for (size_t i = 0; i < RP_ARRAY_COUNT(foreign); i++) {
        make_place(&place)[foreign[i]] ^= 1;
        look(&place, 0, 0, 1);
    }
    static const size_t free_to_change[] = {32, 47, 88, 95, 104, TOKEN_BYTES - 1};
    for (size_t i = 0; i < RP_ARRAY_COUNT(free_to_change); i++) {
        make_place(&place)[free_to_change[i]] ^= 1;
        look(&place, 0, 0, 0);
    }
}

/* Fields of a token of stream version 2: next_row and window_first, and the digest before the
 * latter. */
static void write_calendar_token(uint8_t *token, uint64_t next_row, uint64_t window_first)
{
    memset(token, 7, CALENDAR_BYTES);
    memcpy(token, "RPSTATE", 8);
    rp_store_u32(token + 8, 4);
    rp_store_u64(token + 24, next_row);
    rp_store_u64(token + 32, window_first);
    rp_store_u64(token + 48, window_first);
}

static uint8_t *make_calendar_place(struct place *place, uint64_t was_first, uint64_t first)
{
    uint8_t *token = make_place(place);
    write_calendar_token(place->state, 8, was_first);
    write_calendar_token(token, 10, first);
    place->header.state_bytes = CALENDAR_BYTES;
    place->client.kept[0].bytes = CALENDAR_BYTES;
    return token;
}

static void a_state_of_version_2_continues_the_one_before(void **state)
{
    (void)state;
    static struct place place;
    struct rp_hash128 digest;
    uint64_t row;
    for (uint64_t first = 6; first <= 10;
         first += 4) { /* in the window of before, in the next one */
        uint8_t *token = make_calendar_place(&place, 6, first);
        look(&place, 0, 0, 0);
        assert_true(rp_client_token_digest(token, CALENDAR_BYTES, &digest) && digest.low == first);
        assert_true(rp_client_token_row(token, CALENDAR_BYTES, &row) && row == 10);
        token[48] ^= 1; /* the digest, which no longer fits its row if the window is another one */
        look(&place, 0, 0, first == 6);
    }
    static const size_t foreign[] = {0, 8, 16, 24, 112, 244, 252, 256};
    for (size_t i = 0; i < RP_ARRAY_COUNT(foreign); i++) {
        make_calendar_place(&place, 6, 10)[foreign[i]] ^= 1;
        look(&place, 0, 0, 1);
    }
    static const size_t free_to_change[] = {40, 64, 80, 96, 128, 216, 312, CALENDAR_BYTES - 1};
    for (size_t i = 0; i < RP_ARRAY_COUNT(free_to_change); i++) {
        make_calendar_place(&place, 6, 10)[free_to_change[i]] ^= 1;
        look(&place, 0, 0, 0);
    }
}

static void a_digest_moves_with_the_rows(void **state)
{
    (void)state;
    static struct place place;
    rp_store_u64(make_place(&place) + DIGEST_AT, 1); /* two rows on, and the same digest */
    look(&place, 0, 0, 1);
    make_place(&place);
    write_token(place.state, 10, 1); /* at the end of the stream: padding follows */
    look(&place, 0, 0, 1);
    make_place(&place);
    write_token(place.state, 10, 2);
    look(&place, 0, 0, 0);
    make_place(&place);
    rp_store_u32(place.state + 8, 2); /* a token without a digest */
    look(&place, 0, 0, 0);
}

static void a_batch_at_another_row_than_the_client_is_found(void **state)
{
    (void)state;
    static struct place place;
    make_place(&place);
    place.client.attach_row = 6;
    look(&place, 1, 0, 0);
    make_place(&place);
    place.client.attach_row = 10;
    look(&place, 0, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_do_not_follow_are_found),
        cmocka_unit_test(a_refused_batch_is_never_released),
        cmocka_unit_test(a_good_stream_has_no_finding),
        cmocka_unit_test(an_unknown_monitor_is_refused),
        cmocka_unit_test(a_state_of_another_stream_is_found),
        cmocka_unit_test(a_state_of_version_2_continues_the_one_before),
        cmocka_unit_test(a_digest_moves_with_the_rows),
        cmocka_unit_test(a_batch_at_another_row_than_the_client_is_found),
    };
    return cmocka_run_group_tests(tests, fake_enter, fake_leave);
}
