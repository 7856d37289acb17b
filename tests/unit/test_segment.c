/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: seals that stop a peer, and too little memory as an error instead of a signal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/available.h"
#include "descriptor_zero.h"
#include "shm/segment.h"

/* A sanitizer needs terabytes of addresses, so RLIMIT_AS is out of its reach. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define BYTES ((size_t)1 << 20)
#define HUGE ((size_t)2 << 20)

static struct rp_segment create(size_t bytes, bool huge)
{
    struct rp_error error;
    struct rp_segment segment;
    if (rp_segment_create(&segment, "test", bytes, huge, &error) != 0)
        fail_msg("%s", error.message);
    return segment;
}

static void is_private_and_whole(void **state)
{
    (void)state;
    struct rp_segment segment = create(BYTES - 5, false);
    struct stat status;
    assert_int_equal(segment.bytes, BYTES); /* rounded up to pages */
    assert_int_equal(fstat(segment.fd, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_int_equal(status.st_size, BYTES);
    assert_true((size_t)status.st_blocks * 512 >= BYTES); /* reserved, not promised */
    assert_true(fcntl(segment.fd, F_GETFD) & FD_CLOEXEC);
    unsigned char present[BYTES / 4096];
    assert_int_equal(mincore(segment.data, BYTES, present), 0);
    for (size_t i = 0; i < sizeof present; i++)
        assert_true(present[i] & 1);
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(segment.data[i], 0);
    rp_segment_close(&segment);
    rp_segment_close(&segment); /* twice is fine */
    assert_int_equal(segment.fd, -1);
}

static void huge_is_aligned(void **state)
{
    (void)state;
    struct rp_segment segment = create(HUGE + 1, true), other;
    struct rp_error error;
    print_message("huge pages: %s\n", segment.huge ? "yes" : "no");
    assert_int_equal(segment.bytes, 2 * HUGE);
    assert_int_equal((uintptr_t)segment.data % HUGE, 0);
    memset(segment.data, 7, segment.bytes);
    assert_int_equal(rp_segment_seal_readers(&segment, &error), 0);
    assert_int_equal(rp_segment_attach(&other, dup(segment.fd), false, HUGE, &error), 0);
    assert_int_equal((uintptr_t)other.data % HUGE, 0);
    assert_memory_equal(other.data, segment.data, segment.bytes);
    rp_segment_close(&other);
    rp_segment_close(&segment);
}

/* A peer's possible calls on a descriptor that it got. Returns a bit for each attempt that went
 * through. */
static unsigned attack(int fd)
{
    unsigned through = 0;
    void *write_map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    through |= (unsigned)(write_map != MAP_FAILED) << 0;
    if (write_map != MAP_FAILED)
        munmap(write_map, 4096);
    void *read_map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    through |=
        (unsigned)(read_map != MAP_FAILED && mprotect(read_map, 4096, PROT_READ | PROT_WRITE) == 0)
        << 1;
    if (read_map != MAP_FAILED)
        munmap(read_map, 4096);
    through |= (unsigned)(pwrite(fd, "x", 1, 0) == 1) << 2;
    through |= (unsigned)(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0)
               << 3;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC); /* a fresh description of the same memory */
    through |= (unsigned)(again >= 0 && pwrite(again, "x", 1, 0) == 1) << 4;
    if (again >= 0)
        close(again);
    through |= (unsigned)(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0) << 5;
    through |= (unsigned)(ftruncate(fd, (off_t)BYTES * 2) == 0) << 6;
    through |= (unsigned)(ftruncate(fd, 4096) == 0) << 7;
    return through;
}

static size_t mapped_pages(void)
{
    size_t pages;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu", &pages), 1);
    assert_int_equal(fclose(file), 0);
    return pages;
}

/* Huge pages are aligned by mapping more than is wanted: no surplus stays. */
static void closing_unmaps_everything(void **state)
{
    (void)state;
    (void)mapped_pages(); /* the memory of a first time is there now */
    struct rp_segment segment = create(2 * HUGE, true);
    rp_segment_close(&segment);
    size_t before = mapped_pages();
    segment = create(2 * HUGE, true);
    assert_int_equal(mapped_pages(), before + 2 * HUGE / 4096);
    rp_segment_close(&segment);
    assert_int_equal(mapped_pages(), before);
}

static void descriptor_zero_is_as_good_as_any(void **state)
{
    (void)state;
    struct rp_error error;
    int aside = free_zero();
    struct rp_segment segment = create(BYTES, false), attached;
    assert_int_equal(segment.fd, 0);
    assert_int_equal(rp_segment_seal_readers(&segment, &error), 0);
    int fd = dup(segment.fd);
    rp_segment_close(&segment);
    assert_true(zero_is_free());
    assert_int_equal(dup(fd), 0);
    close(fd);
    assert_int_equal(rp_segment_attach(&attached, 0, false, BYTES, &error), 0);
    rp_segment_close(&attached);
    give_back_zero(aside);
}

static void seals_stop_a_peer(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_segment segment = create(BYTES, false);
    assert_int_equal(rp_segment_seal_readers(&segment, &error), 0);
    assert_int_equal(attack(segment.fd), 0);
    segment.data[0] = 42; /* the owner writes on */
    struct rp_segment reader;
    assert_int_equal(rp_segment_attach(&reader, dup(segment.fd), false, BYTES, &error), 0);
    assert_int_equal(reader.data[0], 42);
    rp_segment_close(&reader);
    assert_true(rp_segment_attach(&reader, dup(segment.fd), true, BYTES, &error) < 0);
    rp_segment_close(&segment);

    segment = create(BYTES, false);
    assert_int_equal(rp_segment_seal_size(&segment, &error), 0);
    assert_int_equal(attack(segment.fd),
                     1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4); /* bytes yes, size no */
    rp_segment_close(&segment);

    segment = create(BYTES, false);
    assert_int_equal(attack(segment.fd) & (1 << 7), 1 << 7); /* without seals it can be cut */
    close(segment.fd);
    segment.fd = -1;
    rp_segment_close(&segment);
}

static void unsealed_memory_is_not_mapped(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_segment segment = create(BYTES, false), other;
    assert_int_equal(rp_segment_attach(&other, dup(segment.fd), false, BYTES, &error),
                     -RP_E_PROTOCOL);
    assert_int_equal(rp_segment_seal_size(&segment, &error), 0);
    assert_int_equal(rp_segment_attach(&other, dup(segment.fd), false, BYTES + 1, &error),
                     -RP_E_PROTOCOL);
    assert_non_null(strstr(error.message, "1048577 bytes expected, 1048576 found"));
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(rp_segment_attach(&other, pipes[0], false, 1, &error), -RP_E_PROTOCOL);
    assert_int_equal(fcntl(pipes[0], F_GETFD), -1); /* it took the descriptor */
    close(pipes[1]);
    assert_int_equal(
        rp_segment_attach(&other, open("/etc/passwd", O_RDONLY | O_CLOEXEC), false, 1, &error),
        -RP_E_PROTOCOL);
    rp_segment_close(&segment);
}

static void attached_memory_stays_out_of_children(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* ThreadSanitizer maps memory of its own into the hole that the child finds */
#endif
    struct rp_error error;
    struct rp_segment segment = create(BYTES, false), other;
    assert_int_equal(rp_segment_seal_readers(&segment, &error), 0);
    assert_int_equal(rp_segment_attach(&other, dup(segment.fd), false, BYTES, &error), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        unsigned char present;
        bool gone = mincore(other.data, 4096, &present) != 0 && errno == ENOMEM;
        bool kept = mincore(segment.data, 4096, &present) ==
                    0; /* the engine's workers need theirs */
        _exit(gone && kept ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    rp_segment_close(&other);
    rp_segment_close(&segment);
}

static void too_much_is_an_error(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_segment segment;
    const size_t absurd[] = {(size_t)1 << 50, SIZE_MAX, (size_t)INT64_MAX, 0};
    for (size_t i = 0; i < sizeof absurd / sizeof absurd[0]; i++) {
        assert_int_equal(rp_segment_create(&segment, "test", absurd[i], i % 2, &error),
                         -RP_E_RESOURCE);
        assert_int_equal(segment.fd, -1);
        assert_null(segment.data);
    }
    struct rp_available available = rp_memory_available();
    assert_true(available.bytes > BYTES && available.bytes < UINT64_MAX);
    print_message("%llu bytes available (%s)\n", (unsigned long long)available.bytes,
                  available.limit);
    char expected[64];
    uint64_t wanted = available.bytes * 2;
    snprintf(expected, sizeof expected, "%llu bytes wanted",
             (unsigned long long)(wanted / 4096 * 4096));
    assert_int_equal(rp_segment_create(&segment, "test", wanted / 4096 * 4096, false, &error),
                     -RP_E_RESOURCE);
    assert_non_null(strstr(error.message, expected));
    assert_non_null(strstr(error.message, "available"));
    assert_true(error.hint[0] != '\0');
}

/* Each in a child of its own, as it limits itself for good. A signal instead of an error is a
 * failure. */
static int under_limit(__rlimit_resource_t resource, rlim_t limit)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit low = {limit, limit};
        struct rp_segment segment;
        struct rp_error error = {0};
        if (setrlimit(resource, &low) != 0)
            _exit(100);
        int code = rp_segment_create(&segment, "test", 64 * BYTES, false, &error);
        _exit(code == -RP_E_RESOURCE ? 0 : code == -EMFILE ? 1 : 2);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void limits_are_errors(void **state)
{
    (void)state;
    assert_int_equal(under_limit(RLIMIT_FSIZE, BYTES), 0);
    assert_int_equal(under_limit(RLIMIT_NOFILE, 3), 1);
#if !SANITIZED
    assert_int_equal(under_limit(RLIMIT_AS, 32 * BYTES), 0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_private_and_whole),
        cmocka_unit_test(huge_is_aligned),
        cmocka_unit_test(closing_unmaps_everything),
        cmocka_unit_test(descriptor_zero_is_as_good_as_any),
        cmocka_unit_test(seals_stop_a_peer),
        cmocka_unit_test(unsealed_memory_is_not_mapped),
        cmocka_unit_test(attached_memory_stays_out_of_children),
        cmocka_unit_test(too_much_is_an_error),
        cmocka_unit_test(limits_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
