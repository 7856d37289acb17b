/* SPDX-License-Identifier: Apache-2.0 */
/* Structs that cross the library's border: callers of an older and of a newer header are served as
 * far as both sides know, no byte beyond struct_size is touched, and no option is ignored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "client/sized.h"
#include "fake_engine.h"

enum { KNOWN = 40, ROOM = 64, PAGE = 4096 };

static const struct fake_options engine_options = {
    .run_dir = fake_run_dir, .generation = 1, .slots = 4, .seed = 7};

static struct rp_client *attach(void)
{
    struct rp_client_options options = fake_client_options();
    struct rp_client *client;
    assert_int_equal(rp_client_attach(&client, &options, NULL), 0);
    return client;
}

static void a_size_that_was_not_set_is_refused_by_name(void **state)
{
    (void)state;
    static const uint64_t wrong[] = {0, 15, RP_STRUCT_SIZE_MAX + 1, UINT64_MAX};
    struct rp_error error;
    for (size_t i = 0; i < RP_ARRAY_COUNT(wrong); i++) {
        assert_int_equal(rp_sized_check(wrong[i], 16, "rp_thing", &error), -RP_E_USAGE);
        assert_non_null(strstr(error.message, "struct rp_thing: struct_size: expected 16 to 4096"));
        assert_non_null(strstr(error.hint, "sizeof"));
    }
    assert_int_equal(rp_sized_check(16, 16, "rp_thing", &error), 0);
    assert_int_equal(rp_sized_check(RP_STRUCT_SIZE_MAX, 16, "rp_thing", &error), 0);
}

static void a_struct_is_written_as_far_as_the_caller_has_it(void **state)
{
    (void)state;
    uint8_t from[KNOWN];
    memset(from, 0x55, sizeof from);
    for (uint64_t size = sizeof(uint64_t); size <= ROOM - 8; size++) {
        uint8_t to[ROOM];
        memset(to, 0xaa, sizeof to);
        rp_store_u64(to, size);
        rp_sized_write(to, from, KNOWN);
        assert_int_equal(rp_load_u64(to), size);
        for (uint64_t i = sizeof(uint64_t); i < ROOM; i++)
            assert_int_equal(to[i], i >= size ? 0xaa : i >= KNOWN ? 0 : 0x55);
    }
}

static void a_struct_is_read_as_far_as_the_library_knows_it(void **state)
{
    (void)state;
    struct rp_error error;
    for (uint64_t size = sizeof(uint64_t); size <= ROOM; size++) {
        uint8_t from[ROOM], to[KNOWN];
        memset(from, 0x55, sizeof from);
        if (size > KNOWN)
            memset(from + KNOWN, 0, size - KNOWN);
        rp_store_u64(from, size);
        assert_int_equal(rp_sized_read(to, KNOWN, from, "rp_thing", &error), 0);
        assert_int_equal(rp_load_u64(to), size);
        for (uint64_t i = sizeof(uint64_t); i < KNOWN; i++)
            assert_int_equal(to[i], i < size ? 0x55 : 0);
        for (uint64_t i = KNOWN; i < size; i++) { /* each byte that is not known is checked */
            char text[64];
            from[i] = 1;
            snprintf(text, sizeof text, "struct rp_thing: this library (%s)", RP_VERSION);
            assert_int_equal(rp_sized_read(to, KNOWN, from, "rp_thing", &error), -RP_E_USAGE);
            assert_non_null(strstr(error.message, text));
            snprintf(text, sizeof text, "byte %u of the %u", (unsigned)i, (unsigned)size);
            assert_non_null(strstr(error.message, text));
            from[i] = 0;
        }
    }
}

/* The options end where a page ends, and the next one cannot be read. */
static void a_trainer_of_an_older_header_attaches(void **state)
{
    (void)state;
    pid_t engine = fake_start(engine_options);
    uint8_t *pages = mmap(NULL, (size_t)2 * PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + PAGE, PAGE, PROT_NONE), 0);
    static const size_t sizes[] = {offsetof(struct rp_client_options, replica),
                                   offsetof(struct rp_client_options, connect_timeout_ns),
                                   offsetof(struct rp_client_options, restart_timeout_ns)};
    struct rp_client_options options = fake_client_options();
    struct rp_client *client;
    struct rp_error error;
    for (size_t i = 0; i < RP_ARRAY_COUNT(sizes); i++) {
        options.struct_size = sizes[i];
        uint8_t *older = pages + PAGE - sizes[i];
        memcpy(older, &options, sizes[i]);
        if (rp_client_attach(&client, (struct rp_client_options *)older, &error) != 0)
            fail_msg("%zu bytes: %s", sizes[i], error.message);
        rp_client_detach(client);
    }
    options.struct_size = offsetof(struct rp_client_options, rank); /* without the rank */
    assert_int_equal(rp_client_attach(&client, &options, &error), -RP_E_USAGE);
    assert_non_null(strstr(error.message, "struct rp_client_options: struct_size"));
    munmap(pages, (size_t)2 * PAGE);
    fake_kill(engine);
}

static void an_option_that_this_library_does_not_know_is_refused(void **state)
{
    (void)state;
    pid_t engine = fake_start(engine_options);
    struct {
        struct rp_client_options known;
        uint64_t newer;
    } options = {.known = fake_client_options()};
    struct rp_client *client;
    struct rp_error error;
    options.known.struct_size = sizeof options;
    if (rp_client_attach(&client, &options.known, &error) != 0)
        fail_msg("an option that is 0: %s", error.message);
    rp_client_detach(client);
    options.newer = 1;
    int code = rp_client_attach(&client, &options.known, &error);
    fake_kill(engine);
    assert_int_equal(code, -RP_E_USAGE);
    assert_non_null(strstr(error.message, "struct rp_client_options: this library"));
}

/* A later library may give it a meaning, and a program that left bytes in it would change then. */
static void a_reserved_field_that_is_not_zero_is_refused(void **state)
{
    (void)state;
    struct rp_client_options options = fake_client_options();
    struct rp_client *client;
    struct rp_error error;
    options.reserved = 7;
    assert_int_equal(rp_client_attach(&client, &options, &error), -RP_E_USAGE);
    assert_non_null(strstr(error.message, "reserved: expected 0, found 7"));
}

static void batches_and_counts_of_other_headers(void **state)
{
    (void)state;
    pid_t engine = fake_start(engine_options);
    struct rp_client *client = attach();
    struct {
        struct rp_batch known;
        uint64_t newer, behind;
    } batch = {.known.struct_size = offsetof(__typeof__(batch), behind), .newer = 5, .behind = 6};
    assert_int_equal(rp_client_next(client, PATIENCE_NS, &batch.known, NULL), RP_NEXT_BATCH);
    assert_true(fake_batch_holds(&batch.known, 0));
    assert_int_equal(batch.known.struct_size, offsetof(__typeof__(batch), behind));
    assert_int_equal(batch.newer, 0);
    assert_int_equal(batch.behind, 6);
    assert_int_equal(rp_client_release(client, &batch.known), 0);

    struct rp_client_counts counts = {
        .struct_size = offsetof(struct rp_client_counts, rows), .rows = 5, .tokens = 6};
    assert_int_equal(rp_client_counts(client, &counts), 0);
    assert_int_equal(counts.batches, 1);
    assert_int_equal(counts.rows, 5);
    assert_int_equal(counts.tokens, 6);

    struct rp_error error;
    batch.known.struct_size = counts.struct_size = 0;
    assert_int_equal(rp_client_take(client, &batch.known, &error), -RP_E_USAGE);
    assert_non_null(strstr(error.message, "struct rp_batch: struct_size"));
    assert_int_equal(rp_client_next(client, -1, &batch.known, &error), -RP_E_USAGE);
    assert_int_equal(rp_client_counts(client, &counts), -RP_E_USAGE);
    assert_int_equal(rp_client_geometry(client)->struct_size, sizeof(struct rp_geometry));
    rp_client_detach(client);
    fake_kill(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_that_was_not_set_is_refused_by_name),
        cmocka_unit_test(a_struct_is_written_as_far_as_the_caller_has_it),
        cmocka_unit_test(a_struct_is_read_as_far_as_the_library_knows_it),
        cmocka_unit_test(a_trainer_of_an_older_header_attaches),
        cmocka_unit_test(an_option_that_this_library_does_not_know_is_refused),
        cmocka_unit_test(a_reserved_field_that_is_not_zero_is_refused),
        cmocka_unit_test(batches_and_counts_of_other_headers),
    };
    return cmocka_run_group_tests(tests, fake_enter, fake_leave);
}
