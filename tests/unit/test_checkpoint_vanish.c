/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that is listed may be gone when it is opened, because a run has pruned it. No reader
 * may call that damage, or miss the ones that are still there. */
#include "checkpoint_sample.h"

#include <dlfcn.h>

#include "storage_fakes.h"

static char
    vanishing[64]; /* the file that somebody removes right before it is opened, or removed */

static void spoil_name(unsigned sequence)
{
    snprintf(vanishing, sizeof vanishing, "checkpoint-%012u.rpc", sequence);
}

static bool has_vanished(void)
{
    bool vanished = vanishing[0] == '\0';
    vanishing[0] = '\0';
    return vanished;
}

/* The newest of a directory comes when the one that vanishes does. */
static char coming[2][96]; /* from, to */

static void come(const char *directory, unsigned sequence)
{
    snprintf(coming[0], sizeof coming[0], "%s-to-come", directory);
    snprintf(coming[1], sizeof coming[1], "%s/checkpoint-%012u.rpc", directory, sequence);
    assert_int_equal(rename(coming[1], coming[0]), 0);
}

/* ---- in front of the C library --------------------------------------------------------------- */

int unlinkat(int dir, const char *name, int flags)
{
    static int (*next)(int dir, const char *name, int flags);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "unlinkat");
    if (vanishing[0] && !strcmp(name, vanishing)) {
        vanishing[0] = '\0';
        assert_int_equal(next(dir, name, 0), 0);
        assert_true(!coming[0][0] || rename(coming[0], coming[1]) == 0);
        coming[0][0] = '\0';
    }
    return next(dir, name, flags);
}

int openat(int dir, const char *name, int flags, ...)
{
    static int (*next)(int dir, const char *name, int flags, ...);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "openat");
    if (vanishing[0] && !strcmp(name, vanishing))
        (void)unlinkat(dir, name, 0); /* the second time, it is not there */
    return next(dir, name, flags, 0600);
}

/* ---------------------------------------------------------------------------------------------- */

static bool exists(const char *directory, unsigned sequence)
{
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoint-%012u.rpc", directory, sequence);
    return access(path, F_OK) == 0;
}

static void the_one_before_is_taken(void **state)
{
    (void)state;
    struct rp_checkpoint *checkpoint;
    struct rp_error error;
    sample_fill("newest", 3);
    spoil_name(3);
    hear_log();
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "newest", true, &error), 1);
    assert_string_equal(log_heard(), "");
    assert_true(has_vanished());
    assert_int_equal(rp_checkpoint_info(checkpoint)->next_row, 20);
    sample_check(checkpoint);
    rp_checkpoint_close(checkpoint);
    assert_int_equal(count_names("newest", ".bad"), 0);
}

/* A run that saves and prunes during a read: listed files are gone, the present ones are newer. */
static void those_that_came_meanwhile_are_found(void **state)
{
    (void)state;
    struct rp_checkpoint *checkpoint;
    struct rp_error error;
    for (unsigned before = 1; before <= 2; before++) {
        sample_fill("moving", before + 1);
        come("moving", before + 1);
        spoil_name(before);
        hear_log();
        assert_int_equal(rp_checkpoint_newest(&checkpoint, "moving", true, &error), 1);
        assert_string_equal(log_heard(), "");
        assert_int_equal(rp_checkpoint_info(checkpoint)->next_row, 10 * (before + 1));
        rp_checkpoint_close(checkpoint);
        remove_directory("moving");
    }
}

static void the_only_one_is_missed(void **state)
{
    (void)state;
    struct rp_checkpoint *checkpoint;
    struct rp_error error;
    sample_fill("only", 1);
    spoil_name(1);
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "only", true, &error), -RP_E_CORRUPT);
    assert_true(has_vanished());
    assert_null(checkpoint);
    assert_non_null(strstr(error.message, "only: none of its checkpoints verifies (0 damaged, 0"));
}

static void the_others_are_listed(void **state)
{
    (void)state;
    struct rp_checkpoint_entry *entries;
    struct rp_error error;
    size_t count;
    for (unsigned gone = 1; gone <= 3; gone++) {
        sample_fill("list", 3);
        spoil_name(gone);
        assert_int_equal(rp_checkpoint_list("list", &entries, &count, &error), 0);
        assert_true(has_vanished());
        assert_int_equal(count, 2);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(entries[i].status, RP_CHECKPOINT_GOOD);
            assert_int_equal(entries[i].info.next_row, 10 * entries[i].sequence);
            assert_int_not_equal(entries[i].sequence, gone);
        }
        rp_checkpoint_list_free(entries, count);
        remove_directory("list");
    }
}

/* A checkpoint that has gone does not count as kept: another one is kept in its place. */
static void as_many_are_kept(void **state)
{
    (void)state;
    struct rp_checkpoint_dir *dir;
    struct rp_error error;
    sample_fill("keep", 4);
    assert_int_equal(sample_open(&dir, "keep", 2, NULL, &error), 0);
    spoil_name(3);
    rp_checkpoint_prune(dir);
    assert_true(has_vanished());
    rp_checkpoint_dir_close(dir);
    assert_true(exists("keep", 4) && exists("keep", 2));
    assert_false(exists("keep", 1));
}

static void what_somebody_else_has_removed_is_no_failure(void **state)
{
    (void)state;
    struct rp_checkpoint_dir *dir;
    struct rp_error error;
    sample_fill("removed", 4);
    assert_int_equal(sample_open(&dir, "removed", 2, NULL, &error), 0);
    spoil_name(2);
    hear_log();
    rp_checkpoint_prune(dir);
    assert_string_equal(log_heard(), "");
    assert_true(has_vanished());
    rp_checkpoint_dir_close(dir);
    assert_true(exists("removed", 4) && exists("removed", 3));
    assert_false(exists("removed", 2) || exists("removed", 1));
}

/* The target of a rewind has gone: no file is renamed. */
static void nothing_is_rewound(void **state)
{
    (void)state;
    struct rp_error error;
    sample_fill("rewind", 3);
    spoil_name(2);
    assert_int_equal(rp_checkpoint_rewind("rewind", 2, &error), -ENOENT);
    assert_true(has_vanished());
    assert_non_null(strstr(error.message, "rewind/checkpoint-000000000002.rpc"));
    assert_int_equal(count_names("rewind", ".rewound"), 0);
    assert_int_equal(newest_row("rewind"), 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_one_before_is_taken),
        cmocka_unit_test(those_that_came_meanwhile_are_found),
        cmocka_unit_test(the_only_one_is_missed),
        cmocka_unit_test(the_others_are_listed),
        cmocka_unit_test(as_many_are_kept),
        cmocka_unit_test(what_somebody_else_has_removed_is_no_failure),
        cmocka_unit_test(nothing_is_rewound),
    };
    return cmocka_run_group_tests_name("checkpoint_vanish", tests, sample_enter_memory,
                                       sample_leave);
}
