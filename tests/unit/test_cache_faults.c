/* SPDX-License-Identifier: Apache-2.0 */
/* The block cache when its process dies at any call that changes the disk, when these calls fail,
 * and when several engines are at it: no other bytes, no more room than it may take, and no error.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/log.h"
#include "cache_kit.h"
#include "run_with_faults.h"

#define DIED 9

/* ---- calls that fail, or after which the process is gone ------------------------------------- */

enum fault { NO_FAULT, FAIL, DIE_BEFORE, DIE_HALFWAY };
static struct {
    enum fault kind;
    unsigned at; /* the first affected call, counted over pwrite, fallocate and ftruncate */
    unsigned calls;
    int error;
} orders;

/* Calls that read: opening names that end like this, reading a directory, and bytes of a file. */
static struct {
    const char *name; /* NULL: each can be opened */
    int open_error, readdir_error;
    off_t first, last;
} unreadable;

#ifndef __SANITIZE_THREAD__
static bool is_due(void)
{
    if (orders.kind == NO_FAULT || orders.calls++ < orders.at)
        return false;
    if (orders.kind == DIE_BEFORE)
        _exit(DIED);
    errno = orders.error;
    return true;
}

#define NEXT(name, type, ...)                                                                      \
    static type (*next)(__VA_ARGS__);                                                              \
    if (!next)                                                                                     \
    *(void **)&next = dlsym(RTLD_NEXT, #name)

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    NEXT(pwrite, ssize_t, int, const void *, size_t, off_t);
    if (is_due()) {
        if (orders.kind == FAIL)
            return -1;
        (void)!next(fd, data, bytes / 2, offset);
        _exit(DIED);
    }
    return next(fd, data, bytes, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    NEXT(fallocate, int, int, int, off_t, off_t);
    if (is_due()) {
        if (orders.kind == FAIL)
            return -1;
        _exit(DIED);
    }
    return next(fd, mode, offset, bytes);
}

int ftruncate(int fd, off_t bytes)
{
    NEXT(ftruncate, int, int, off_t);
    if (is_due()) {
        if (orders.kind == FAIL)
            return -1;
        _exit(DIED);
    }
    return next(fd, bytes);
}

int openat(int directory_fd, const char *name, int flags, ...)
{
    NEXT(openat, int, int, const char *, int, ...);
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    size_t end = unreadable.name ? strlen(unreadable.name) : SIZE_MAX;
    if (end <= strlen(name) && !strcmp(name + strlen(name) - end, unreadable.name)) {
        errno = unreadable.open_error;
        return -1;
    }
    return next(directory_fd, name, flags, mode);
}

struct dirent *readdir(DIR *dir)
{
    NEXT(readdir, struct dirent *, DIR *);
    if (unreadable.readdir_error) {
        errno = unreadable.readdir_error;
        return NULL;
    }
    return next(dir);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    NEXT(pread, ssize_t, int, void *, size_t, off_t);
    if (offset < unreadable.last && offset + (off_t)bytes > unreadable.first) {
        errno = EIO;
        return -1;
    }
    return next(fd, data, bytes, offset);
}
#endif

/* ---- failures -------------------------------------------------------------------------------- */

enum { WORLD = 14, ROOM = 10 };
static const struct rp_cache_object world = {"w", "1", WORLD *CHUNK - 1000};

static uint32_t length_of(uint32_t chunk)
{
    return chunk == WORLD - 1 ? CHUNK - 1000 : CHUNK;
}

/* Chunks that come later are needed sooner. */
static void need_last_first(void)
{
    for (uint32_t c = 0; c < WORLD; c++)
        next_uses[c] = WORLD - c;
}

/* Fill the cache, and more than that. */
static void fill_world(void)
{
    need_last_first();
    struct rp_cache *cache = open_cache(ROOM * CHUNK, &world, 1);
    struct rp_entry *kept = rp_entry_open(cache, 0);
    for (uint32_t c = 0; c < WORLD; c++)
        keep(cache, kept, "w", (uint64_t)c * CHUNK, length_of(c));
    rp_entry_close(kept);
    rp_cache_close(cache);
}

/* Whatever happened: no other bytes, no more room, and all can be kept again. */
static void hold_world(const char *after, unsigned at)
{
    need_last_first();
    struct rp_cache *cache = open_cache(ROOM * CHUNK, &world, 1);
    struct rp_entry *kept = rp_entry_open(cache, 0);
    uint64_t there = 0;
    for (uint32_t c = 0; c < WORLD; c++)
        there += holds(kept, "w", (uint64_t)c * CHUNK, length_of(c));
    uint64_t held = counts_of(cache).held_bytes, on_disk = bytes_on_disk();
    if (held < there * (CHUNK - PAGE) || held > ROOM * CHUNK || on_disk > ROOM * CHUNK + 64 * PAGE)
        fail_msg("%s, call %u: %llu chunks, %llu bytes counted, %llu on the disk", after, at,
                 (unsigned long long)there, (unsigned long long)held, (unsigned long long)on_disk);
    for (uint32_t c = WORLD - ROOM; c < WORLD; c++) {
        keep(cache, kept, "w", (uint64_t)c * CHUNK, length_of(c));
        if (!holds(kept, "w", (uint64_t)c * CHUNK, length_of(c)))
            fail_msg("%s, call %u: chunk %u is not kept afterwards", after, at, c);
    }
    rp_entry_close(kept);
    rp_cache_close(cache);
}

/* The process is gone before each call that changes the disk, and in the middle of it. */
static void test_a_crash_at_every_call(void **state)
{
    (void)state;
    for (enum fault kind = DIE_BEFORE; kind <= DIE_HALFWAY; kind++) {
        for (unsigned at = 0;; at += 1 + at / 24) {
            leave(NULL);
            assert_int_equal(enter(NULL), 0);
            fflush(NULL);
            pid_t child = fork();
            if (child == 0) {
                orders.kind = kind;
                orders.at = at;
                fill_world();
                _exit(0);
            }
            int status;
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFEXITED(status));
            hold_world(kind == DIE_BEFORE ? "a crash before" : "a crash in", at);
            if (WEXITSTATUS(status) == 0)
                break;
            assert_int_equal(WEXITSTATUS(status), DIED);
        }
    }
}

/* From some call on, every call fails: as on a disk that is full, or gone. */
static void test_calls_that_fail_are_no_failure(void **state)
{
    (void)state;
    static const int errors[] = {ENOSPC, EIO, EROFS};
    rp_log_set_level(RP_LOG_ERROR);
    for (size_t e = 0; e < RP_ARRAY_COUNT(errors); e++)
        for (unsigned at = 0; at < 100; at += 7) {
            leave(NULL);
            assert_int_equal(enter(NULL), 0);
            need_last_first();
            struct rp_cache *cache = open_cache(ROOM * CHUNK, &world, 1);
            struct rp_entry *kept = rp_entry_open(cache, 0);
            orders.calls = 0;
            orders.at = at;
            orders.error = errors[e];
            orders.kind = FAIL;
            for (uint32_t c = 0; c < WORLD; c++) {
                keep(cache, kept, "w", (uint64_t)c * CHUNK, length_of(c));
                (void)holds(kept, "w", (uint64_t)c * CHUNK, length_of(c));
            }
            assert_true(counts_of(cache).failures > 0 || at > 60);
            rp_entry_close(kept);
            rp_cache_close(cache);
            orders.kind = NO_FAULT;
            hold_world("failing calls", at);
        }
    rp_log_set_level(RP_LOG_INFO);
}

/* A page that a disk cannot read is given up, so that it is written again; if these are
 * hashes, all their pages are. */
static void test_pages_that_cannot_be_read_are_given_up(void **state)
{
    (void)state;
    static const struct rp_cache_object small = {"a", "1", 3 * PAGE};
    struct rp_cache *cache = open_cache(ROOM * CHUNK, &small, 1);
    struct rp_entry *kept = rp_entry_open(cache, 0);
    for (int has_hashes = 0; has_hashes < 2; has_hashes++) {
        keep(cache, kept, "a", 0, 3 * PAGE);
        uint64_t damaged = counts_of(cache).damaged_bytes;
        unreadable.first = (off_t)rp_entry_data_offset(kept) + (has_hashes ? 1 : -1) * (off_t)PAGE;
        unreadable.last = unreadable.first + 1;
        rp_entry_doubt(kept, 0, 3 * PAGE);
        rp_cache_flush(cache);
        unreadable.last = unreadable.first = 0;
        struct rp_cache_held held = rp_entry_view(kept, 0, 3 * PAGE);
        assert_int_equal(held.head, has_hashes ? PAGE : 0);
        assert_int_equal(held.tail, has_hashes ? PAGE : 0);
        assert_int_equal(counts_of(cache).damaged_bytes - damaged, has_hashes ? PAGE : 3 * PAGE);
        assert_int_equal(counts_of(cache).failures, 0);
        keep(cache, kept, "a", 0, 3 * PAGE);
        assert_true(holds(kept, "a", 0, 3 * PAGE));
    }
    rp_entry_close(kept);
    rp_cache_close(cache);
}

/* Files that could not be counted are still there: taken for none, the cache would be filled a
 * second time. */
static void test_a_scan_that_fails_counts_no_less(void **state)
{
    (void)state;
    fill_world();
    for (int i = 0; i < 3; i++) {
        unreadable.name = i == 0 ? "." : i == 1 ? ".blocks" : NULL;
        unreadable.open_error = EMFILE;
        unreadable.readdir_error = i == 2 ? EIO : 0;
        struct rp_cache *cache = open_cache(ROOM * CHUNK, &world, 1);
        uint64_t held = counts_of(cache).held_bytes;
        unreadable.name = NULL;
        unreadable.readdir_error = 0;
        assert_in_range(held, ROOM * CHUNK, ROOM * CHUNK + 64 * PAGE);
        rp_cache_close(cache);
    }
    hold_world("failing scans", 0);
}

static void test_a_directory_that_cannot_be_used_is_refused(void **state)
{
    (void)state;
    struct rp_cache *cache;
    struct rp_error error = {0};
    struct rp_cache_options options = {.directory = "/proc/none",
                                       .bytes = ROOM * CHUNK,
                                       .objects = &world,
                                       .object_count = 1,
                                       .next_use = next_use};
    assert_true(rp_cache_open(&cache, &options, &error) < 0);
    assert_non_null(strstr(error.message, "/proc/none"));
    assert_null(cache);
    orders.kind = FAIL; /* a file system that cannot punch */
    orders.error = EOPNOTSUPP;
    orders.at = orders.calls = 0;
    options.directory = directory;
    assert_true(rp_cache_open(&cache, &options, &error) < 0);
    assert_non_null(strstr(error.message, "cannot give back parts"));
    orders.kind = NO_FAULT;
}

/* ---- several engines ------------------------------------------------------------------------- */

/* Two engines keep chunks of one object and of one each, in one directory, and one of them dies. */
static void test_engines_share_one_directory(void **state)
{
    (void)state;
    pid_t children[2];
    need_last_first();
    fflush(NULL);
    for (unsigned engine = 0; engine < 2; engine++) {
        children[engine] = fork();
        if (children[engine] == 0) {
            const struct rp_cache_object objects[] = {world, {engine ? "x" : "y", "1", 60 * CHUNK}};
            struct rp_cache *cache = open_cache(ROOM * CHUNK, objects, 2);
            struct rp_entry *both = rp_entry_open(cache, 0);
            struct rp_entry *own = rp_entry_open(cache, 1);
            for (unsigned turn = 0; turn < (engine ? 6 : 1000000); turn++)
                for (uint32_t c = 0; c < WORLD; c++) {
                    keep(cache, both, "w", (uint64_t)c * CHUNK, length_of(c));
                    (void)holds(both, "w", (uint64_t)c * CHUNK, length_of(c));
                    keep(cache, own, engine ? "x" : "y", (uint64_t)c * CHUNK, CHUNK);
                    if (counts_of(cache).held_bytes > ROOM * CHUNK)
                        _exit(1);
                }
            _exit(0);
        }
    }
    int status;
    assert_int_equal(waitpid(children[1], &status, 0), children[1]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(kill(children[0], SIGKILL), 0);
    assert_int_equal(waitpid(children[0], &status, 0), children[0]);
    assert_true(WIFSIGNALED(status));
    assert_true(bytes_on_disk() <= ROOM * CHUNK + 3 * 64 * PAGE);
    hold_world("two engines", 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, enter, leave)
    const struct CMUnitTest tests[] = {
        CASE(test_a_crash_at_every_call),
        CASE(test_calls_that_fail_are_no_failure),
        CASE(test_pages_that_cannot_be_read_are_given_up),
        CASE(test_a_scan_that_fails_counts_no_less),
        CASE(test_a_directory_that_cannot_be_used_is_refused),
        CASE(test_engines_share_one_directory),
    };
    return run_with_faults("cache_faults", tests, NULL, NULL);
}
