/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped files that are cut short: the thread that reads is taken out of its work, the file has a
 * name for everybody, and a process without a guard ends with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/available.h"
#include "base/bits.h"
#include "base/file.h"
#include "base/mapped.h"

#define BYTES 65536u    /* more than the copied part */
#define SAID_MAX 65536u /* sanitizers also print a lot */

static char path[] = "/tmp/rp-mapped-XXXXXX";

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 || ftruncate(fd, BYTES) != 0 || close(fd) != 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

struct work {
    const uint8_t *data;
    bool is_done;
};

static void look(void *argument)
{
    struct work *work = argument;
    (void)*(volatile const uint8_t *)(work->data + BYTES - 1);
    work->is_done = true;
}

static struct rp_map open_map(void)
{
    struct rp_error error;
    struct rp_map map;
    rp_mapped_watch(); /* cmocka has put its own handler there for this test */
    assert_int_equal(truncate(path, BYTES), 0);
    if (rp_map_open(&map, path, &error) != 0)
        fail_msg("%s", error.message);
    return map;
}

static void check_lost(void)
{
    struct rp_error error;
    assert_int_equal(rp_mapped_lost(&error), -RP_E_CHANGED);
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, "truncated"));
    assert_non_null(strstr(error.message, "expected 65536, found 0"));
    assert_true(error.hint[0] != '\0');
}

static void a_lost_file_is_named(void **state)
{
    (void)state;
    struct rp_map map = open_map();
    struct work work = {.data = map.data};
    assert_true(rp_mapped_guard(look, &work));
    assert_true(work.is_done);
    assert_int_equal(rp_mapped_lost(NULL), 0);
    assert_int_equal(truncate(path, 0), 0);
    for (int again = 0; again < 3; again++) { /* the signal stays deliverable */
        work.is_done = false;
        assert_false(rp_mapped_guard(look, &work));
        assert_false(work.is_done);
        check_lost();
    }
    rp_map_close(&map);
    assert_int_equal(rp_mapped_lost(NULL), 0);
}

static void look_twice(void *argument)
{
    struct work *work = argument;
    assert_false(rp_mapped_guard(look, work));
    look(work);
    work->is_done = true;
}

static void the_outer_guard_is_back(void **state)
{
    (void)state;
    struct rp_map map = open_map();
    struct work work = {.data = map.data};
    assert_int_equal(truncate(path, 0), 0);
    assert_false(rp_mapped_guard(look_twice, &work));
    assert_false(work.is_done);
    rp_map_close(&map);
}

/* ---- work that may be called again ----------------------------------------------------------- */

#define PAGE 4096u
#define PAGES 8u

/* The file has as many bytes as its mapping is said to have, and the pages that are read are past
 * its end, as if a disk could not read them. After that number of reads each the file has them. */
struct patient {
    uint8_t *map;
    unsigned looks, looks_each;
    bool is_done;
};

static void look_patiently(void *argument)
{
    struct patient *p = argument;
    p->looks++;
    for (unsigned page = 1; page < PAGES; page++) {
        if (p->looks_each && p->looks > page * p->looks_each)
            assert_int_equal(truncate(path, (page + 1) * PAGE), 0);
        (void)*(volatile const uint8_t *)(p->map + page * PAGE);
    }
    p->is_done = true;
}

static bool work_patiently(struct patient *p)
{
    rp_mapped_watch();
    assert_int_equal(truncate(path, PAGE), 0);
    int fd = open(path, O_RDONLY);
    p->map = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(p->map != MAP_FAILED);
    close(fd);
    struct rp_mapped_file *files[PAGES];
    for (unsigned page = 1; page < PAGES; page++)
        assert_non_null(files[page] = rp_mapped_add(p->map + page * PAGE, PAGE, path));
    bool is_whole = rp_mapped_guard_again(look_patiently, p);
    struct rp_error error = {0};
    assert_int_equal(rp_mapped_lost(&error), is_whole ? 0 : -RP_E_CHANGED);
    if (!is_whole) /* the disk, and not a size that is the same */
        assert_non_null(
            strstr(error.message, "cannot be read any more, though the file is as long"));
    for (unsigned page = 1; page < PAGES; page++)
        rp_mapped_remove(files[page]);
    munmap(p->map, PAGES * PAGE);
    assert_int_equal(p->is_done, is_whole);
    return is_whole;
}

static void a_disk_may_fail_at_many_pages_for_a_moment(void **state)
{
    (void)state;
    struct patient p = {.looks_each = 4}; /* 28 in all */
    assert_true(work_patiently(&p));
    assert_int_equal(p.looks, 4 * (PAGES - 1) + 1);
}

static void a_page_that_never_comes_is_lost(void **state)
{
    (void)state;
    struct patient p = {.looks_each = 0};
    assert_false(work_patiently(&p));
    assert_int_equal(p.looks, 11);
}

static void a_file_that_is_cut_is_not_tried_again(void **state)
{
    (void)state;
    struct rp_map map = open_map();
    struct patient p = {.map = (uint8_t *)(uintptr_t)map.data};
    assert_int_equal(truncate(path, 0), 0);
    assert_false(rp_mapped_guard_again(look_patiently, &p));
    assert_int_equal(p.looks, 1);
    check_lost();
    rp_map_close(&map);
}

/* Exit status of a child that reads, with or without a guard; its output goes into `said`. */
static int run_child(const struct rp_map *map, bool guarded, char *said)
{
    int ends[2], status;
    struct work work = {.data = map->data};
    fflush(NULL);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        if (!guarded)
            look(&work);
        _exit(rp_mapped_guard(look, &work) ? 0 : 1);
    }
    close(ends[1]);
    size_t bytes = 0;
    for (ssize_t got = 1; got > 0; bytes += got > 0 ? (size_t)got : 0)
        got = read(ends[0], said + bytes, SAID_MAX - 1 - bytes);
    said[bytes] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_child_tells_its_parent(void **state)
{
    (void)state;
    char said[SAID_MAX];
    struct rp_map map = open_map();
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(rp_mapped_lost(NULL), 0);
    assert_int_equal(run_child(&map, true, said), 1);
    check_lost();
    rp_map_close(&map);
}

static void without_a_guard_it_is_the_end(void **state)
{
    (void)state;
    char said[SAID_MAX];
    struct rp_map map = open_map();
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(run_child(&map, false, said), 2);
    assert_non_null(strstr(said, "RP_E_CHANGED"));
    assert_non_null(strstr(said, path));
    assert_non_null(strstr(said, "\n  next: "));
    rp_map_close(&map);
}

#define MAPS_MAX 100000u

/* Files of the least size that is mapped are opened until the limit of the kernel is near. They are
 * closed in the order of their opening: the list of mappings has the newest first. */
static void the_limit_of_mappings_is_named(void **state)
{
    (void)state;
    uint64_t limit;
    if (!rp_read_number("/proc/sys/vm/max_map_count", "", &limit) || limit > MAPS_MAX)
        skip();
    struct rp_map *maps = calloc(MAPS_MAX, sizeof *maps);
    assert_non_null(maps);
    assert_int_equal(truncate(path, RP_MAP_COPY_BYTES_MAX + 1), 0);
    struct rp_error error;
    uint64_t count = 0;
    int code;
    while ((code = rp_map_open(&maps[count], path, &error)) == 0)
        assert_true(++count < limit);
    assert_int_equal(rp_mapped_count(), count);
    assert_int_equal(code, -RP_E_RESOURCE);
    char found[64], wanted[96];
    snprintf(found, sizeof found, "found %" PRIu64, limit);
    snprintf(wanted, sizeof wanted, "sysctl -w vm.max_map_count=%" PRIu64,
             rp_pow2_at_least(limit + 1));
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, "vm.max_map_count"));
    assert_non_null(strstr(error.message, found));
    assert_non_null(strstr(error.hint, wanted));
    void *room = malloc(1 << 20); /* there is some left for the rest of the program */
    assert_non_null(room);
    free(room);
    for (uint64_t i = 0; i < count; i++)
        rp_map_close(&maps[i]);
    assert_int_equal(rp_mapped_count(), 0);
    free(maps);
}

/* As many as there are shards, so they take no mappings. */
static void small_files_are_copied(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_map map;
    assert_int_equal(truncate(path, RP_MAP_COPY_BYTES_MAX), 0);
    assert_int_equal(rp_map_open(&map, path, &error), 0);
    assert_int_equal(rp_mapped_count(), 0);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(map.data[RP_MAP_COPY_BYTES_MAX - 1], 0); /* no SIGBUS */
    rp_map_close(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_file_is_named),
        cmocka_unit_test(the_limit_of_mappings_is_named),
        cmocka_unit_test(small_files_are_copied),
        cmocka_unit_test(the_outer_guard_is_back),
        cmocka_unit_test(a_child_tells_its_parent),
        cmocka_unit_test(without_a_guard_it_is_the_end),
        cmocka_unit_test(a_disk_may_fail_at_many_pages_for_a_moment),
        cmocka_unit_test(a_page_that_never_comes_is_lost),
        cmocka_unit_test(a_file_that_is_cut_is_not_tried_again),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
