/* SPDX-License-Identifier: Apache-2.0 */
/* The block cache on a disk that stays broken: it is tried less and less often, that is said once,
 * and when the disk works, it is used again. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <time.h>

#include "cache_kit.h"
#include "run_with_faults.h"

#define ROOM (10 * CHUNK)

static struct {
    bool writes, reads; /* reads: only of words */
    unsigned write_calls, read_calls;
} broken;
static uint64_t later_s; /* lead of the clock */

#ifndef __SANITIZE_THREAD__
#define NEXT(name, type, ...)                                                                      \
    static type (*next)(__VA_ARGS__);                                                              \
    if (!next)                                                                                     \
    *(void **)&next = dlsym(RTLD_NEXT, #name)

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    NEXT(pwrite, ssize_t, int, const void *, size_t, off_t);
    if (broken.writes) {
        broken.write_calls++;
        errno = EIO;
        return -1;
    }
    return next(fd, data, bytes, offset);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    NEXT(pread, ssize_t, int, void *, size_t, off_t);
    if (broken.reads && offset == PAGE) {
        broken.read_calls++;
        errno = EIO;
        return -1;
    }
    return next(fd, data, bytes, offset);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    NEXT(clock_gettime, int, clockid_t, struct timespec *);
    int code = next(clock, time);
    time->tv_sec += (time_t)later_s;
    return code;
}
#endif

static const struct rp_cache_object world = {"w", "1", 3 * CHUNK};

static unsigned lines_with(const char *path, const char *text)
{
    char line[512];
    unsigned found = 0;
    FILE *log = fopen(path, "r");
    assert_non_null(log);
    while (fgets(line, sizeof line, log))
        found += strstr(line, text) != NULL;
    fclose(log);
    return found;
}

/* For two hours no write succeeds, and there is one to do every second: 5 + 10 + … s of pauses,
 * then 10 minutes each, are less than 20 attempts. Meanwhile no block is copied. */
static void test_a_disk_that_stays_broken_is_left_alone(void **state)
{
    (void)state;
    char log[96];
    snprintf(log, sizeof log, "%s/log", directory);
    struct rp_cache *cache = open_cache(ROOM, &world, 1);
    struct rp_entry *kept = rp_entry_open(cache, 0);
    fflush(stderr);
    int before = dup(STDERR_FILENO);
    assert_true(freopen(log, "w", stderr) != NULL);
    broken.writes = true;
    for (uint32_t second = 0; second < 7200; second++, later_s++)
        keep(cache, kept, "w", 0, CHUNK);
    uint64_t failures = counts_of(cache).failures, declined = counts_of(cache).declined_bytes;
    unsigned calls = broken.write_calls;
    rp_entry_keep(kept, 0, bytes_of_chunk, CHUNK); /* not handed to the thread at all */
    uint64_t declined_at_once = counts_of(cache).declined_bytes - declined;
    bool is_left_alone = broken.write_calls == calls;
    broken.writes = false;
    later_s += 600;
    keep(cache, kept, "w", 0, CHUNK);
    bool holds_again = holds(kept, "w", 0, CHUNK);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    assert_in_range(failures, 10, 20);
    assert_int_equal(declined_at_once, CHUNK);
    assert_true(is_left_alone && holds_again);
    assert_int_equal(lines_with(log, "cannot be kept"), 1);
    assert_int_equal(lines_with(log, "kept there again"), 1);
    rp_entry_close(kept);
    rp_cache_close(cache);
}

/* The words of a file cannot be read: the disk is not tried each time, and no block is fetched to
 * be kept, because readers would fetch it again. */
static void test_words_that_cannot_be_read_are_left_alone(void **state)
{
    (void)state;
    struct rp_cache *cache = open_cache(ROOM, &world, 1);
    struct rp_entry *kept = rp_entry_open(cache, 0);
    keep(cache, kept, "w", 0, CHUNK);
    assert_true(rp_cache_may_prefill(cache, PAGE));
    broken.reads = true;
    broken.read_calls = 0;
    for (uint32_t second = 0; second < 7200; second++, later_s++) {
        assert_int_equal(rp_entry_view(kept, 0, CHUNK).head, 0);
        assert_false(rp_cache_may_prefill(cache, PAGE));
    }
    assert_in_range(broken.read_calls, 10, 20);
    broken.reads = false;
    later_s += 600;
    assert_true(holds(kept, "w", 0, CHUNK));
    assert_true(rp_cache_may_prefill(cache, PAGE));
    rp_entry_close(kept);
    rp_cache_close(cache);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, enter, leave)
    const struct CMUnitTest tests[] = {
        CASE(test_a_disk_that_stays_broken_is_left_alone),
        CASE(test_words_that_cannot_be_read_are_left_alone),
    };
    return run_with_faults("cache_backoff", tests, NULL, NULL);
}
