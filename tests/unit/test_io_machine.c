/* SPDX-License-Identifier: Apache-2.0 */
/* test_io_machine.c — refusals of the machine, and the fallbacks: io_uring denied, no memory to
 * lock, a fork in the middle, files that are no files. A test that changes the process for good
 * runs in a child. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../fakes/io_run.h"
#include "base/available.h"
#include "base/bits.h"
#include "base/errno_name.h"
#include "deny_io_uring.h"

static struct io_sample sample;

static int make_sample(void **state)
{
    (void)state;
    io_sample_make(&sample, 1 << 20, 3);
    return 0;
}

static int free_sample(void **state)
{
    (void)state;
    io_sample_free(&sample);
    return 0;
}

static bool uring_works(void)
{
    char why[512];
    const struct rp_io_method *method;
    struct rp_error error;
    bool works = rp_io_choose("io_uring", &method, why, sizeof why, &error) == 0;
    if (!works)
        print_message("left out: %s\n", error.message);
    return works;
}

/* Run `test` in a child; it returns NULL, or the fault: cmocka's asserts end at the fork. */
static void check_in_child(const char *(*test)(void))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const char *wrong = test();
        if (wrong)
            fprintf(stderr, "child: %s\n", wrong);
        _exit(wrong != NULL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- io_uring denied ------------------------------------------------------------------------- */

static int denied_errno;

/* NULL, or the fault. A later ring may give way to pread, with its buffers in a region. */
static const char *check_reads(const struct rp_io_method *method, bool may_fall_back)
{
    struct io_run run = {.method = method,
                         .may_fall_back = may_fall_back,
                         .in_region = may_fall_back,
                         .sample = &sample,
                         .fd = sample.fd,
                         .depth = 8,
                         .alignment = 1,
                         .bytes_max = 9000,
                         .reads = 100,
                         .seed = 1};
    return io_run_reads(&run) ? "wrong reads" : NULL;
}

static const char *check_denied(void)
{
    const struct rp_io_method *method = NULL;
    struct rp_error error;
    char why[512] = "";
    const char *wrong = deny_io_uring(denied_errno);
    if (wrong)
        return wrong;
    if (rp_io_choose(NULL, &method, why, sizeof why, &error) != 0 || method != &rp_io_method_pread)
        return "expected pread to be chosen";
    if (!strstr(why, rp_errno_name(denied_errno)) || !strstr(why, "io_uring cannot be used"))
        return "expected the reason in `why`";
    if (rp_io_choose("pread", &method, why, sizeof why, &error) != 0)
        return "expected pread to need no io_uring";
    if (rp_io_choose("io_uring", &method, why, sizeof why, &error) != -RP_E_RESOURCE ||
        !error.hint[0])
        return "expected -RP_E_RESOURCE and a hint when io_uring is forced";
    return check_reads(&rp_io_method_pread, false);
}

static const int denials[] = {EPERM, ENOSYS, ENOMEM, EMFILE};

static void test_denied_io_uring_falls_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(denials); i++) {
        denied_errno = denials[i];
        check_in_child(check_denied);
    }
}

/* io_uring was chosen, and no ring can be made any more. */
static const char *check_denied_later(void)
{
    struct rp_error error = {0}, refusal = {0};
    struct rp_io_options options = {.depth = 8, .refusal = &refusal};
    struct rp_io *io;
    char text[128];
    const char *wrong = deny_io_uring(denied_errno);
    if (wrong)
        return wrong;
    if (rp_io_open(&io, &rp_io_method_uring, &options, &error) != -denied_errno || io ||
        !error.hint[0] || refusal.code != 0)
        return "expected an error where io_uring was asked for by name";
    options.may_fall_back = true;
    if (rp_io_open(&io, &rp_io_method_uring, &options, &error) != 0)
        return "expected pread in the place of io_uring";
    rp_io_describe(io, text, sizeof text);
    rp_io_close(io);
    if (strncmp(text, "pread", 5) != 0)
        return "expected pread in the description";
    if (refusal.code != -denied_errno || !refusal.hint[0] ||
        !strstr(refusal.message, rp_errno_name(denied_errno)))
        return "expected the reason, and what helps";
    return check_reads(&rp_io_method_uring, true);
}

static void test_a_ring_denied_later_gives_way(void **state)
{
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(denials); i++) {
        denied_errno = denials[i];
        check_in_child(check_denied_later);
    }
}

/* The kernel's own answer, so that a mistake of ours cannot pass for a refusal. */
static bool kernel_makes_rings(void)
{
    struct io_uring_params parameters = {0};
    long fd = syscall(SYS_io_uring_setup, 1, &parameters);
    if (fd >= 0)
        close((int)fd);
    return fd >= 0;
}

static void test_choice(void **state)
{
    const struct rp_io_method *method = NULL;
    struct rp_error error;
    char why[512];
    (void)state;
    assert_int_equal(rp_io_choose("libaio", &method, why, sizeof why, &error), -RP_E_USAGE);
    assert_non_null(strstr(error.message, "libaio"));
    assert_int_equal(rp_io_choose(NULL, &method, why, sizeof why, &error), 0);
    assert_ptr_equal(method, kernel_makes_rings() ? &rp_io_method_uring : &rp_io_method_pread);
    assert_int_equal(uring_works(), kernel_makes_rings());
    print_message("chosen: %s\n", why);
}

/* Only io_uring gains by more than 64 reads in flight. */
static void test_depth(void **state)
{
    (void)state;
    assert_int_equal(rp_io_choose_depth(&rp_io_method_uring, 0), 128);
    assert_int_equal(rp_io_choose_depth(&rp_io_method_pread, 0), 64);
    if (rp_io_objects())
        assert_int_equal(rp_io_choose_depth(rp_io_objects(), 0), 64);
    assert_int_equal(rp_io_choose_depth(&rp_io_method_uring, 7), 7);
}

/* ---- registered buffers ---------------------------------------------------------------------- */

enum { REGION_BYTES = 8 << 20, LOCK_BYTES = 1 << 20 };

static const char *describe_with_region(char *text, size_t text_bytes)
{
    void *region = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                        0);
    struct rp_io_options options = {.depth = 8};
    struct rp_io_done done;
    struct rp_io *io;
    if (region == MAP_FAILED || rp_io_open(&io, &rp_io_method_uring, &options, NULL) != 0)
        return "cannot open a ring";
    rp_io_use_region(io, region, REGION_BYTES);
    struct rp_io_read read = {.object = sample.fd,
                              .bytes = 70000,
                              .bytes_needed = 70000,
                              .alignment = 1,
                              .buffer = region};
    rp_io_describe(io, text, text_bytes);
    rp_io_submit(io, &read, 1);
    rp_io_wait(io, &done, 1, 1);
    rp_io_close(io);
    bool right = done.result == 0 && !memcmp(region, sample.bytes, 70000);
    munmap(region, REGION_BYTES);
    return right ? NULL : "a wrong read";
}

static struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

/* Root of a container has it seldom. */
static bool has_lock_capability(void)
{
    struct __user_cap_data_struct data[2];
    return syscall(SYS_capget, &header, data) == 0 &&
           data[CAP_IPC_LOCK / 32].effective & 1u << (CAP_IPC_LOCK % 32);
}

static bool drop_lock_capability(void)
{
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0)
        return false;
    data[CAP_IPC_LOCK / 32].effective &= ~(1u << (CAP_IPC_LOCK % 32));
    data[CAP_IPC_LOCK / 32].permitted &= ~(1u << (CAP_IPC_LOCK % 32));
    return syscall(SYS_capset, &header, data) == 0;
}

static const char *check_without_memory_to_lock(void)
{
    struct rlimit limit = {LOCK_BYTES, LOCK_BYTES};
    char text[128];
    if (setrlimit(RLIMIT_MEMLOCK, &limit) < 0 || !drop_lock_capability())
        return "cannot lower RLIMIT_MEMLOCK";
    const char *wrong = describe_with_region(text, sizeof text);
    if (wrong)
        return wrong;
    return strstr(text, "not registered (ENOMEM)") ? NULL : "expected ENOMEM in the description";
}

static void test_reads_unregistered_without_memory_to_lock(void **state)
{
    (void)state;
    if (uring_works())
        check_in_child(check_without_memory_to_lock);
}

static void test_region_is_registered(void **state)
{
    struct rlimit limit;
    char text[128];
    (void)state;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (!uring_works() || (!has_lock_capability() && limit.rlim_cur < 4 * REGION_BYTES))
        return;
    assert_null(describe_with_region(text, sizeof text));
    print_message("%s\n", text);
    assert_non_null(strstr(text, "buffers registered"));
}

/* ---- fork ------------------------------------------------------------------------------------ */

static const char *read_in_child(void)
{
    struct io_run run = {.sample = &sample,
                         .fd = sample.fd,
                         .depth = 8,
                         .alignment = 1,
                         .bytes_max = 9000,
                         .reads = 50,
                         .seed = 9};
    char why[512];
    if (rp_io_choose(NULL, &run.method, why, sizeof why, NULL) != 0)
        return "nothing can be chosen";
    return io_run_reads(&run) ? "wrong reads" : NULL;
}

/* A child forked with reads in flight opens its own; the parent's arrive in the parent. */
static void test_fork_with_reads_in_flight(void **state)
{
    const struct rp_io_method *methods[] = {&rp_io_method_pread, &rp_io_method_uring};
    (void)state;
    for (size_t i = 0; i < (uring_works() ? 2 : 1); i++) {
        struct rp_io_options options = {.depth = 16};
        uint8_t *buffer = calloc(16, 65536);
        struct rp_io_done done[16];
        struct rp_io *io;
        posix_fadvise(sample.fd, 0, 0, POSIX_FADV_DONTNEED);
        assert_int_equal(rp_io_open(&io, methods[i], &options, NULL), 0);
        for (uint32_t at = 0; at < 16; at++) {
            struct rp_io_read read = {.object = sample.fd,
                                      .bytes = 65536,
                                      .bytes_needed = 65536,
                                      .alignment = 1,
                                      .offset = (uint64_t)at * 65536,
                                      .buffer = buffer + (size_t)at * 65536};
            rp_io_submit(io, &read, 1);
        }
        unsigned count = rp_io_wait(io, done, 16, 0); /* hands them to the kernel */
        check_in_child(read_in_child);
        while (rp_io_in_flight(io))
            count += rp_io_wait(io, done + count, 16, 1);
        assert_int_equal(count, 16);
        for (unsigned at = 0; at < 16; at++)
            assert_int_equal(done[at].result, 0);
        assert_memory_equal(buffer, sample.bytes, 16 * 65536);
        rp_io_close(io);
        free(buffer);
    }
}

/* ---- files and memory ------------------------------------------------------------------------ */

static void check_refused(const char *path)
{
    struct rp_error error = {0};
    uint32_t alignment;
    for (int direct = 0; direct < 2; direct++) {
        assert_true(io_open(path, direct, &alignment, &error) < 0);
        assert_non_null(strstr(error.message, path));
    }
}

static void test_what_is_no_file_is_refused(void **state)
{
    char fifo[] = "/tmp/ringpack-test-fifo-XXXXXX";
    (void)state;
    int fd = mkstemp(fifo);
    close(fd);
    unlink(fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    check_refused(fifo); /* and does not wait for a writer */
    unlink(fifo);
    check_refused("/tmp");
    check_refused("/dev/zero");
    check_refused("/tmp/ringpack-test-no-such-file");
}

static void test_open_file(void **state)
{
    uint32_t alignment = 0;
    (void)state;
    int fd = io_open(sample.path, false, &alignment, NULL);
    assert_int_equal(alignment, 1);
    assert_int_equal(fcntl(fd, F_GETFL) & (O_DIRECT | O_NONBLOCK), 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
    fd = io_open(sample.path, true, &alignment, NULL);
    assert_true(rp_is_pow2(alignment) && alignment <= 4096);
    assert_int_equal((fcntl(fd, F_GETFL) & O_DIRECT) != 0, alignment > 1);
    /* With O_NONBLOCK io_uring would never wait for the disk. */
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    print_message("/tmp: alignment %u\n", alignment);
    close(fd);
}

static void test_files_in_memory_stay_buffered(void **state)
{
    char path[64];
    uint32_t alignment = 0;
    (void)state;
    int memory = memfd_create("ringpack-test", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    int fd = io_open(path, true, &alignment, NULL);
    assert_true(fd >= 0);
    assert_int_equal(alignment, 1);
    assert_int_equal(fcntl(fd, F_GETFL) & O_DIRECT, 0);
    close(fd);
    close(memory);
}

static void test_preference_for_direct(void **state)
{
    uint64_t available = rp_memory_available().bytes;
    (void)state;
    assert_true(available > 0);
    assert_false(rp_io_prefers_direct(0));
    assert_false(rp_io_prefers_direct(available / 4));
    assert_true(rp_io_prefers_direct(available));
    assert_true(rp_io_prefers_direct(UINT64_MAX));
}

static void test_errors_have_their_names(void **state)
{
    (void)state;
    for (int number = 1; number < 200; number++) {
        const char *name = strerrorname_np(number);
        if (name && number != ENOTSUP) /* which also is EOPNOTSUPP */
            assert_string_equal(rp_errno_name(number), name);
        else if (!name)
            assert_string_equal(rp_errno_name(number), "unknown");
    }
    assert_string_equal(rp_errno_name(0), "unknown");
    assert_string_equal(rp_errno_name(-1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_denied_io_uring_falls_back),
        cmocka_unit_test(test_a_ring_denied_later_gives_way),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_reads_unregistered_without_memory_to_lock),
        cmocka_unit_test(test_region_is_registered),
        cmocka_unit_test(test_fork_with_reads_in_flight),
        cmocka_unit_test(test_what_is_no_file_is_refused),
        cmocka_unit_test(test_open_file),
        cmocka_unit_test(test_files_in_memory_stay_buffered),
        cmocka_unit_test(test_preference_for_direct),
        cmocka_unit_test(test_errors_have_their_names),
    };
    return cmocka_run_group_tests(tests, make_sample, free_sample);
}
