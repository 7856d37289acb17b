/* SPDX-License-Identifier: Apache-2.0 */
/* A machine on which no memfd may be executed (vm.memfd_noexec=2): those that could be are refused,
 * and rings, long messages and the trial of io_uring do without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/io.h"
#include "shm/segment.h"
#include "shm/socket.h"
#include "patience.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif
#define BODY_BYTES 100000u /* too long for a packet: it goes as a descriptor */

static unsigned made;

int memfd_create(const char *name, unsigned flags)
{
    if (!(flags & MFD_NOEXEC_SEAL)) {
        errno = EACCES;
        return -1;
    }
    made++;
    return (int)syscall(SYS_memfd_create, name, flags & ~MFD_NOEXEC_SEAL); /* known everywhere */
}

static int begin(void **state)
{
    (void)state;
    made = 0;
    return 0;
}

static void a_segment_is_made(void **state)
{
    (void)state;
    struct rp_segment segment;
    struct rp_error error;
    assert_int_equal(rp_segment_create(&segment, "test", 8192, false, &error), 0);
    assert_int_equal(made, 1);
    rp_segment_close(&segment);
}

static void a_long_message_arrives(void **state)
{
    (void)state;
    static uint8_t body[BODY_BYTES];
    struct rp_error error = {0};
    uint8_t *heard;
    int ends[2], fds[2];
    memset(body, 7, sizeof body);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    if (rp_socket_send(
            ends[0],
            &(struct rp_message){
                .header = "head", .header_bytes = 4, .body = body, .body_bytes = sizeof body},
            &error) != 0)
        fail_msg("%s", error.message);
    assert_int_equal(made, 1);
    assert_int_equal(rp_socket_receive_message(ends[1], &heard, fds, PATIENCE_MS, &error),
                     4 + BODY_BYTES);
    assert_memory_equal(heard + 4, body, sizeof body);
    free(heard);
    close(ends[0]);
    close(ends[1]);
}

static void io_uring_is_tried(void **state)
{
    (void)state;
    const struct rp_io_method *method;
    struct rp_error error;
    char why[512];
    assert_int_equal(rp_io_choose(NULL, &method, why, sizeof why, &error), 0);
    if (strstr(why, "cannot be tried"))
        fail_msg("%s", why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_segment_is_made, begin),
        cmocka_unit_test_setup(a_long_message_arrives, begin),
        cmocka_unit_test_setup(io_uring_is_tried, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
