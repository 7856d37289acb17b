/* SPDX-License-Identifier: Apache-2.0 */
/* Every system call and every allocation of segments, rings, run directories and messages fails: it
 * is refused with a message or overcome, no file stays open, and afterwards it works. */
#include "system_faults.h"

#include "ring_pair.h"

#include <stdio.h>
#include <sys/syscall.h>

#include "base/log.h"
#include "shm/segment.h"
#include "shm/socket.h"

#define BODY_BYTES ((size_t)1 << 20) /* too long for a packet: it goes as a descriptor */
#define HUGE ((size_t)2 << 20)

static char base[] = "/tmp/rp-test-shm-XXXXXX";
static char run_dir[64];
static uint8_t body[BODY_BYTES];

static int enter(void **state)
{
    (void)state;
    rp_log_set_level(RP_LOG_ERROR);
    if (!mkdtemp(base))
        return -1;
    snprintf(run_dir, sizeof run_dir, "%s/run", base);
    for (size_t i = 0; i < BODY_BYTES; i++)
        body[i] = (uint8_t)(i * 7 >> 3);
    return 0;
}

static int leave(void **state)
{
    (void)state;
    rmdir(run_dir);
    return rmdir(base);
}

static int make_segment(bool huge, struct rp_error *error)
{
    struct rp_segment segment, reader = {.fd = -1};
    int code = rp_segment_create(&segment, "test", huge ? HUGE : 8192, huge, error);
    if (code < 0)
        return code;
    memset(segment.data, 5, segment.bytes);
    code = rp_segment_seal_readers(&segment, error);
    if (code == 0)
        code = rp_segment_attach(&reader, (int)syscall(SYS_dup, segment.fd), false, 8192, error);
    if (code == 0)
        assert_memory_equal(reader.data, segment.data, segment.bytes);
    rp_segment_close(&reader);
    rp_segment_close(&segment);
    return code;
}

static int small_segment(struct rp_error *error)
{
    return make_segment(false, error);
}

static int huge_segment(struct rp_error *error)
{
    return make_segment(true, error);
}

static int private_segment(struct rp_error *error)
{
    struct rp_segment segment;
    int code = rp_segment_create_private(&segment, "test", 2 * HUGE - 1, error);
    if (code < 0)
        return code;
    assert_int_equal(segment.bytes, 2 * HUGE);
    segment.data[HUGE] = 5;
    code = rp_segment_prefault(&segment, "test", error);
    assert_int_equal(segment.data[HUGE], 5);
    rp_segment_close(&segment);
    return code;
}

static int pass_a_ring(struct rp_error *error)
{
    struct rp_ring ring;
    struct rp_ring_view view;
    struct rp_geometry g = tiny(2);
    int code = rp_ring_create(&ring, &g, 1, (struct rp_ring_identity){{1, 2}, GENERATION}, 0,
                              error);
    if (code < 0)
        return code;
    code = rp_ring_attach_trainer(&ring, 0, 0, error);
    if (code == 0) {
        code = rp_ring_view_open(&view, (int)syscall(SYS_dup, ring.data.fd),
                                 (int)syscall(SYS_dup, ring.seats[0].control.fd), 0, error);
        if (code == 0)
            rp_ring_view_close(&view);
    }
    rp_ring_close(&ring);
    return code;
}

/* The other end gets the message as it was sent, or there is a code. */
static int speak(int from, int to, size_t bytes, struct rp_error *error)
{
    uint8_t *heard;
    int fds[2], given[2] = {from, to};
    int code = rp_socket_send(from,
                              &(struct rp_message){.header = "head",
                                                   .header_bytes = 4,
                                                   .body = body,
                                                   .body_bytes = bytes,
                                                   .fds = given,
                                                   .fd_count = 2},
                              error);
    if (code < 0)
        return code;
    int64_t length = rp_socket_receive_message(to, &heard, fds, 1000, error);
    if (length == 0) /* a connection that was reset */
        return rp_fail(error, -RP_E_GONE, NULL, "the other side has hung up");
    if (length > 0) {
        assert_int_equal(length, 4 + bytes);
        assert_memory_equal(heard, "head", 4);
        assert_memory_equal(heard + 4, body, bytes);
        free(heard);
        syscall(SYS_close, fds[0]), syscall(SYS_close, fds[1]);
    }
    return length < 0 ? (int)length : 0;
}

static int meet(struct rp_error *error)
{
    struct rp_listener listener;
    int code = rp_listener_open(&listener, run_dir, "r", error);
    if (code < 0)
        return code;
    int trainer = rp_socket_connect(run_dir, "r", error), engine = -1;
    code = trainer < 0 ? trainer : 0;
    if (code == 0) {
        engine = rp_listener_accept(&listener, error);
        code = engine < 0 ? engine : 0;
    }
    if (code == 0)
        code = speak(trainer, engine, 100, error);
    if (code == 0)
        code = speak(engine, trainer, BODY_BYTES, error);
    if (code == -EAGAIN && !error->message[0]) /* "not yet" is no failure of theirs */
        rp_fail(error, code, NULL, "again");
    if (trainer >= 0)
        close(trainer);
    if (engine >= 0)
        close(engine);
    rp_listener_close(&listener);
    return code;
}

static void check_all(int (*operate)(struct rp_error *error))
{
    static const int numbers[] = {EIO, EINTR, EINVAL, ENOMEM, EMFILE, EACCES, ECONNRESET, EPIPE};
    for (size_t i = 0; i < RP_ARRAY_COUNT(numbers); i++) {
        unsigned calls = every_call(operate, numbers[i], 1);
        if (numbers[i] != EINTR) /* it would be retried for ever, as it should */
            every_call(operate, numbers[i], UINT32_MAX);
        if (i == 0)
            print_message("  %u calls\n", calls);
    }
    /* Once only: the caller retries after these. */
    static const int passing[] = {EAGAIN, ENOENT, ECONNABORTED, ECONNREFUSED, ELOOP};
    for (size_t i = 0; i < RP_ARRAY_COUNT(passing); i++)
        every_call(operate, passing[i], 1);
    every_allocation(operate, false);
    every_allocation(operate, true);
}

static void test_segments(void **state)
{
    (void)state;
    check_all(small_segment);
    check_all(huge_segment);
    every_call(private_segment, ENOMEM, 1); /* EINVAL: see below */
    every_call(private_segment, ENOMEM, UINT32_MAX);
}

static void test_rings(void **state)
{
    (void)state;
    check_all(pass_a_ring);
}

static void test_meeting_and_speaking(void **state)
{
    (void)state;
    check_all(meet);
}

/* Old kernels: no seal against execution, no MADV_POPULATE_WRITE, no MADV_COLLAPSE. Only time is
 * lost. */
static void test_kernels_that_can_less(void **state)
{
    (void)state;
    struct rp_error error;
    static const char *const calls[] = {"memfd_create", "madvise"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(calls); i++) {
        system_spoil(calls[i], 0, 1, EINVAL);
        assert_int_equal(small_segment(&error), 0);
        system_spoil(calls[i], 0, 2 - (unsigned)!i, EINVAL);
        assert_int_equal(huge_segment(&error), 0);
    }
    system_spoil("madvise", 0, 1, ENOSYS);
    assert_int_equal(small_segment(&error), 0);
    system_spoil("madvise", 0, 3, EINVAL);
    assert_int_equal(private_segment(&error), 0);
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    system_spoil("poll", 0, 1, EINTR); /* not known is not hung up */
    assert_false(rp_socket_hung_up(pair[0]));
    system_mend();
    close(pair[1]);
    assert_true(rp_socket_hung_up(pair[0]));
    close(pair[0]);
}

/* Missing room is reported with the wanted amount, whichever call reports it. */
static void test_missing_room_says_how_much(void **state)
{
    (void)state;
    struct rp_segment segment;
    struct rp_error error;
    system_spoil("fallocate", 0, 1, ENOSPC);
    assert_int_equal(rp_segment_create(&segment, "test", 8192, false, &error), -RP_E_RESOURCE);
    assert_non_null(strstr(error.message, "8192 bytes wanted"));
    system_spoil("madvise", 0, 1, ENOMEM);
    assert_int_equal(rp_segment_create(&segment, "test", 8192, false, &error), -RP_E_RESOURCE);
    assert_non_null(strstr(error.message, "8192 bytes wanted"));
    assert_int_equal(segment.fd, -1);
    system_spoil("fcntl", 0, 1, EPERM);
    assert_int_equal(small_segment(&error), -EPERM);
    assert_non_null(strstr(error.message, "sealing"));
    system_mend();
}

static void test_a_limit_of_file_sizes_that_is_high_enough(void **state)
{
    (void)state;
    struct rp_error error;
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){1 << 20, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int within = small_segment(&error), beyond = huge_segment(&error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(within, 0);
    assert_int_equal(beyond, -RP_E_RESOURCE);
    assert_non_null(strstr(error.hint, "ulimit -f"));
}

/* No directory is named: the user's own, in $XDG_RUNTIME_DIR or under his number. */
static void test_the_default_run_directory(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_listener listener;
    char path[96];
    snprintf(path, sizeof path, "%s/ringpack", base);
    assert_int_equal(setenv("XDG_RUNTIME_DIR", base, 1), 0);
    assert_int_equal(rp_listener_open(&listener, NULL, "shm-faults", &error), 0);
    assert_int_equal(access(path, F_OK), 0);
    rp_listener_close(&listener);
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "/tmp/ringpack-%u", geteuid());
    static const char *const useless[] = {"", "relative"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(useless); i++) {
        assert_int_equal(setenv("XDG_RUNTIME_DIR", useless[i], 1), 0);
        assert_int_equal(rp_listener_open(&listener, "", "shm-faults", &error), 0);
        assert_int_equal(access(path, F_OK), 0);
        rp_listener_close(&listener);
    }
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
    assert_int_equal(rp_socket_connect(NULL, "shm-faults", &error), -RP_E_GONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_rings),
        cmocka_unit_test(test_meeting_and_speaking),
        cmocka_unit_test(test_kernels_that_can_less),
        cmocka_unit_test(test_missing_room_says_how_much),
        cmocka_unit_test(test_a_limit_of_file_sizes_that_is_high_enough),
        cmocka_unit_test(test_the_default_run_directory),
    };
    return run_with_faults("shm_faults", tests, enter, leave);
}
