/* SPDX-License-Identifier: Apache-2.0 */
/* test_io.c — both methods read real files byte for byte: random, aligned past the page cache, at
 * the end of the file, hot and cold, with any depth. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "../fakes/io_run.h"
#include "base/bits.h"
#include "base/mem.h"

enum { SAMPLE_BYTES = 3000017 }; /* not a multiple of anything */

static struct io_sample sample;
static const struct rp_io_method *methods[2];
static size_t method_count;

static int make_sample(void **state)
{
    char why[512];
    const struct rp_io_method *method;
    struct rp_error error;
    (void)state;
    io_sample_make(&sample, SAMPLE_BYTES, 1);
    methods[method_count++] = &rp_io_method_pread;
    if (rp_io_choose("io_uring", &method, why, sizeof why, &error) == 0)
        methods[method_count++] = method;
    else
        print_message("io_uring is left out: %s\n", error.message);
    return 0;
}

static int free_sample(void **state)
{
    (void)state;
    io_sample_free(&sample);
    return 0;
}

static void check_run(struct io_run run)
{
    for (size_t i = 0; i < method_count; i++) {
        run.method = methods[i];
        unsigned wrong = io_run_reads(&run);
        if (wrong)
            print_message("%s: seed %lu depth %u: %u of %u reads are wrong\n", run.method->name,
                          (unsigned long)run.seed, run.depth, wrong, run.reads);
        assert_int_equal(wrong, 0);
        assert_int_equal(run.counts.reads, run.reads);
        assert_int_equal(run.counts.errors, 0);
    }
}

static void test_random_reads(void **state)
{
    static const uint32_t depths[] = {1, 2, 7, 64, 256};
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(depths); i++)
        check_run((struct io_run){.sample = &sample,
                                  .fd = sample.fd,
                                  .depth = depths[i],
                                  .alignment = 1,
                                  .bytes_max = 60000,
                                  .reads = 600,
                                  .in_region = i % 2,
                                  .seed = 100 + i});
}

static void test_cold_reads(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        posix_fadvise(sample.fd, 0, 0, POSIX_FADV_DONTNEED);
        check_run((struct io_run){.sample = &sample,
                                  .fd = sample.fd,
                                  .depth = 33,
                                  .alignment = 1,
                                  .bytes_max = 200000,
                                  .reads = 60,
                                  .seed = seed});
    }
}

/* A file that is opened again is not tried again: the first result holds. */
static void what_is_known_of_direct_reads_is_not_tried(void **state)
{
    (void)state;
    static const uint32_t known[] = {1, 512, 4096};
    uint32_t found;
    close(io_open(sample.path, true, &found, NULL));
    for (size_t i = 0; i < RP_ARRAY_COUNT(known) && found != 1; i++) {
        const struct rp_io_place place = {
            .path = sample.path, .o_direct = true, .known_alignment = known[i]};
        struct rp_io_object object;
        assert_int_equal(rp_io_open_file(&object, &place, NULL), 0);
        assert_int_equal(object.alignment, known[i]);
        assert_int_equal((fcntl(object.fd, F_GETFL) & O_DIRECT) != 0, known[i] > 1);
        rp_io_close_file(&object);
    }
}

static void test_direct_reads(void **state)
{
    uint32_t alignment;
    (void)state;
    int fd = io_open(sample.path, true, &alignment, NULL);
    assert_true(fd >= 0);
    if (alignment == 1)
        print_message("/tmp has no O_DIRECT: read through the page cache instead\n");
    else
        assert_true((fcntl(fd, F_GETFL) & O_DIRECT) != 0);
    for (uint64_t seed = 1; seed <= 3; seed++)
        check_run((struct io_run){.sample = &sample,
                                  .fd = fd,
                                  .depth = seed == 1 ? 1 : 64,
                                  .alignment = alignment,
                                  .bytes_max = 100000,
                                  .reads = seed == 1 ? 50 : 300,
                                  .in_region = seed != 2,
                                  .seed = seed});
    close(fd);
}

static struct rp_io_done read_at(const struct rp_io_method *method, int fd, uint32_t alignment,
                                 uint64_t offset, uint32_t bytes, uint32_t needed, void *buffer)
{
    struct rp_io_read read = {.object = fd,
                              .bytes = bytes,
                              .bytes_needed = needed,
                              .alignment = alignment,
                              .offset = offset,
                              .buffer = buffer,
                              .tag = 0xfeedfacecafe};
    struct rp_io_done done = io_read_once(method, &read, NULL);
    assert_true(done.tag == read.tag);
    return done;
}

static void check_end(const struct rp_io_method *method, int fd, uint32_t alignment)
{
    uint64_t offset = rp_align_down(SAMPLE_BYTES - 5000, 4096);
    uint32_t left = (uint32_t)(SAMPLE_BYTES - offset);
    uint8_t *buffer = rp_calloc_aligned(4096, 16384);
    struct rp_io_done done = read_at(method, fd, alignment, offset, 16384, left, buffer);
    assert_int_equal(done.result, 0);
    assert_int_equal(done.bytes, left);
    assert_memory_equal(buffer, sample.bytes + offset, left);

    done = read_at(method, fd, alignment, offset, 16384, left + 1, buffer);
    assert_int_equal(done.result, -ENODATA);
    assert_int_equal(done.bytes, left);

    done = read_at(method, fd, alignment, rp_align_up(SAMPLE_BYTES, 4096), 4096, 1, buffer);
    assert_int_equal(done.result, -ENODATA);
    assert_int_equal(done.bytes, 0);
    free(buffer);
}

static void test_end_of_file(void **state)
{
    (void)state;
    for (size_t i = 0; i < method_count; i++)
        for (int direct = 0; direct < 2; direct++) {
            uint32_t alignment;
            int fd = io_open(sample.path, direct, &alignment, NULL);
            assert_true(fd >= 0);
            check_end(methods[i], fd, alignment);
            close(fd);
        }
}

static void test_empty_file(void **state)
{
    struct io_sample empty;
    uint8_t buffer[16];
    (void)state;
    io_sample_make(&empty, 0, 1);
    for (size_t i = 0; i < method_count; i++) {
        assert_int_equal(read_at(methods[i], empty.fd, 1, 0, 16, 1, buffer).result, -ENODATA);
        assert_int_equal(read_at(methods[i], empty.fd, 1, 0, 16, 0, buffer).result, 0);
    }
    io_sample_free(&empty);
}

static void test_error_of_the_kernel_comes_back(void **state)
{
    uint8_t buffer[16];
    (void)state;
    for (size_t i = 0; i < method_count; i++) {
        struct rp_io_done done = read_at(methods[i], -1, 1, 0, 16, 16, buffer);
        assert_int_equal(done.result, -EBADF);
        assert_int_equal(done.bytes, 0);
    }
}

/* The file becomes shorter while it is read: no signal, no old bytes, but -ENODATA. */
static void test_truncated_while_reading(void **state)
{
    (void)state;
    for (size_t i = 0; i < method_count; i++) {
        struct io_sample victim;
        uint8_t *buffer = rp_calloc(8, 4096);
        struct rp_io_options options = {.depth = 8};
        struct rp_io_done done[8];
        struct rp_io *io;
        io_sample_make(&victim, 8 * 4096, 1);
        assert_int_equal(rp_io_open(&io, methods[i], &options, NULL), 0);
        for (uint32_t at = 0; at < 8; at++) {
            struct rp_io_read read = {.object = victim.fd,
                                      .bytes = 4096,
                                      .bytes_needed = 4096,
                                      .alignment = 1,
                                      .offset = (uint64_t)at * 4096,
                                      .buffer = buffer + (size_t)at * 4096,
                                      .tag = at};
            if (at == 4)
                assert_int_equal(truncate(victim.path, 4 * 4096 + 100), 0);
            rp_io_submit(io, &read, 1);
            assert_int_equal(rp_io_wait(io, done, 8, 1), 1);
            assert_int_equal(done[0].result, at < 4 ? 0 : -ENODATA);
            assert_int_equal(done[0].bytes, at < 4 ? 4096 : at == 4 ? 100 : 0);
        }
        rp_io_close(io);
        io_sample_free(&victim);
        free(buffer);
    }
}

/* A caller that closes with reads in flight gets its memory when the kernel is done with it. */
static void test_close_waits(void **state)
{
    (void)state;
    for (size_t i = 0; i < method_count; i++) {
        struct rp_io_options options = {.depth = 64};
        uint8_t *buffer = rp_calloc(64, 32768);
        struct rp_io *io;
        posix_fadvise(sample.fd, 0, 0, POSIX_FADV_DONTNEED);
        assert_int_equal(rp_io_open(&io, methods[i], &options, NULL), 0);
        for (uint32_t at = 0; at < 64; at++) {
            struct rp_io_read read = {.object = sample.fd,
                                      .bytes = 32768,
                                      .bytes_needed = 32768,
                                      .alignment = 1,
                                      .offset = (uint64_t)at * 32768,
                                      .buffer = buffer + (size_t)at * 32768};
            rp_io_submit(io, &read, 1);
        }
        struct rp_io_done done;
        assert_int_equal(rp_io_wait(io, &done, 1, 1), 1); /* all are under way */
        rp_io_close(io);
        memset(buffer, 0x11, 64 * 32768);
        usleep(2000);
        for (size_t at = 0; at < 64 * 32768; at++)
            assert_int_equal(buffer[at], 0x11);
        free(buffer);
    }
}

/* ---- files that refuse RWF_NOWAIT, as on tmpfs ----------------------------------------- */

static int refuser = -1;
static unsigned asked_refuser, asked_others;

/* In the place of the C library's. */
ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    static ssize_t (*next)(int, const struct iovec *, int, off_t, int);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "preadv2");
    unsigned *asked = fd == refuser ? &asked_refuser : &asked_others;
    ++*asked;
    if (fd != refuser)
        return next(fd, parts, count, offset, flags);
    errno = EOPNOTSUPP;
    return -1;
}

static void read_again(struct rp_io *io, int fd)
{
    uint8_t buffer[512];
    struct rp_io_done done;
    struct rp_io_read read = {.object = fd,
                              .bytes = sizeof buffer,
                              .bytes_needed = sizeof buffer,
                              .alignment = 1,
                              .buffer = buffer};
    rp_io_submit(io, &read, 1);
    assert_int_equal(rp_io_wait(io, &done, 1, 1), 1);
    assert_int_equal(done.result, 0);
    assert_memory_equal(buffer, sample.bytes, sizeof buffer);
}

/* It is tried once, and the other files of the pool still at each read. */
static void test_a_file_that_refuses_the_page_cache(void **state)
{
    struct rp_io_options options = {.depth = 8};
    struct rp_error error;
    struct rp_io *io;
    (void)state;
    assert_int_equal(rp_io_open(&io, &rp_io_method_pread, &options, &error), 0);
    refuser = dup(sample.fd);
    assert_true(refuser >= 0);
    asked_refuser = asked_others = 0;
    for (unsigned i = 0; i < 10; i++) {
        read_again(io, refuser);
        read_again(io, sample.fd);
    }
    assert_int_equal(asked_refuser, 1);
    assert_int_equal(asked_others, 10);
    rp_io_close(io);
    close(refuser);
    refuser = -1;
}

static void test_depth_is_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < method_count; i++) {
        struct rp_io_options options = {.depth = 0};
        struct rp_error error;
        struct rp_io *io;
        assert_int_equal(rp_io_open(&io, methods[i], &options, &error), -RP_E_USAGE);
        assert_null(io);
        options.depth = 4097;
        assert_int_equal(rp_io_open(&io, methods[i], &options, &error), -RP_E_USAGE);
        assert_non_null(strstr(error.message, "4097"));
        options.depth = 4096;
        assert_int_equal(rp_io_open(&io, methods[i], &options, &error), 0);
        assert_int_equal(rp_io_room(io), 4096);
        assert_int_equal(rp_io_wait(io, NULL, 0, 5), 0); /* no read in flight: no wait */
        rp_io_close(io);
    }
    rp_io_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_reads),
        cmocka_unit_test(test_cold_reads),
        cmocka_unit_test(test_direct_reads),
        cmocka_unit_test(what_is_known_of_direct_reads_is_not_tried),
        cmocka_unit_test(test_end_of_file),
        cmocka_unit_test(test_empty_file),
        cmocka_unit_test(test_error_of_the_kernel_comes_back),
        cmocka_unit_test(test_truncated_while_reading),
        cmocka_unit_test(test_close_waits),
        cmocka_unit_test(test_a_file_that_refuses_the_page_cache),
        cmocka_unit_test(test_depth_is_checked),
    };
    return cmocka_run_group_tests(tests, make_sample, free_sample);
}
