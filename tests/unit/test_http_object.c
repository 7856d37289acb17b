/* SPDX-License-Identifier: Apache-2.0 */
/* A file in a corpus with objects is opened as in a corpus without them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/http_object.h"

/* A file system that always allows direct reads, of 512 bytes. */
#define ALIGNMENT 512u
#define DESCRIPTOR 1000000
#define READ_BYTES 4096u

int __wrap_rp_io_open_file(struct rp_io_object *object_out, const struct rp_io_place *place,
                           struct rp_error *error);

int __wrap_rp_io_open_file(struct rp_io_object *object_out, const struct rp_io_place *place,
                           struct rp_error *error)
{
    (void)error;
    *object_out = (struct rp_io_object){.handle = DESCRIPTOR,
                                        .fd = DESCRIPTOR,
                                        .alignment = place->o_direct ? ALIGNMENT : 1,
                                        .read_bytes = READ_BYTES};
    return 0;
}

static void check_file(bool direct)
{
    struct rp_error error;
    struct rp_io_object object;
    const struct rp_io_place place = {.path = "a", .o_direct = direct, .bytes = 3};
    assert_int_equal(rp_http_open_object(&object, &place, &error), 0);
    assert_int_equal(object.alignment, direct ? ALIGNMENT : 1);
    assert_int_equal(object.fd, DESCRIPTOR); /* flow/files.h checks the file with it */
    assert_int_equal(object.read_bytes, READ_BYTES);
    assert_int_not_equal(object.handle, DESCRIPTOR); /* the method's own */
    rp_http_close_object(&object);
}

static void a_file_is_opened_as_it_is_asked_for(void **state)
{
    (void)state;
    check_file(false);
    check_file(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_file_is_opened_as_it_is_asked_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
