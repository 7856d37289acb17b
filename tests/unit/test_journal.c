/* SPDX-License-Identifier: Apache-2.0 */
/* The run journal of an engine that ends while the disk hangs: its thread uses no memory of the
 * engine any more, and writes no queued entry, nor the start that it had not begun to write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fail.h"
#include "checkpoint/run_journal.h"
#include "server/journal.h"

static sem_t hangs, may_go_on;
static int entries;
static bool look_back_hangs;
static char directory_found[32];

/* In the place of checkpoint/run_journal.c's: the disk hangs at the second entry, the first one
 * after the start. */
int __wrap_rp_checkpoint_journal_append(const char *directory, json_t *entry,
                                        struct rp_error *error);
int __wrap_rp_checkpoint_journal_append(const char *directory, json_t *entry,
                                        struct rp_error *error)
{
    (void)error;
    json_decref(entry);
    if (__atomic_add_fetch(&entries, 1, __ATOMIC_SEQ_CST) == 2) {
        sem_post(&hangs);
        while (sem_wait(&may_go_on) < 0)
            continue;
        memcpy(directory_found, directory, strlen(directory) + 1);
        sem_post(&hangs);
    }
    return 0;
}

/* In the place of the same file's: the entries of the engine before. */
void __wrap_rp_checkpoint_journal_find_last(const char *directory,
                                            struct rp_run_journal_last *last);
void __wrap_rp_checkpoint_journal_find_last(const char *directory, struct rp_run_journal_last *last)
{
    (void)directory;
    *last = (struct rp_run_journal_last){0};
    if (!look_back_hangs)
        return;
    sem_post(&hangs);
    while (sem_wait(&may_go_on) < 0)
        continue;
    sem_post(&hangs);
}

/* No wait of 5 seconds here: the time is over at once. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    (void)condition;
    (void)mutex;
    (void)until;
    return ETIMEDOUT;
}

static void wait_for(sem_t *event)
{
    while (sem_wait(event) < 0)
        continue;
}

static char name[] = "/no/such/checkpoints", run[] = "test", text[] = "";
static const struct rp_engine_options options = {.keep_journal = true};
static struct rp_config config;
static struct rp_engine engine;
static struct rp_numbering_part part = {.batch_rows = 1, .step_rows = 1};

static void begin(void)
{
    sem_init(&hangs, 0, 0);
    sem_init(&may_go_on, 0, 0);
    __atomic_store_n(&entries, 0, __ATOMIC_SEQ_CST);
    config = (struct rp_config){.run = run, .checkpoint_dir = strdup(name)};
    assert_non_null(config.checkpoint_dir);
    engine = (struct rp_engine){.config = &config,
                                .saving.config = &config,
                                .options = &options,
                                .delivery.numbering = {.parts = &part, .count = 1},
                                .config_text = text,
                                .stream.start_row = 1};
    rp_engine_journal_start(&engine);
}

static void a_disk_that_hangs_at_the_end_gets_nothing_more(void **state)
{
    (void)state;
    begin();
    rp_saving_journal_finish_start(&engine.saving);
    assert_int_equal(entries, 1);
    rp_engine_journal_rollback(&engine, 7);
    wait_for(&hangs);
    rp_engine_journal_rollback(&engine, 8);
    rp_engine_journal_close(&engine);
    memset(config.checkpoint_dir, 'x', strlen(name));
    free(config.checkpoint_dir);
    sem_post(&may_go_on);
    wait_for(&hangs);
    rp_sleep_ns(20000000); /* enough for a thread that would write more */
    assert_string_equal(directory_found, name);
    assert_int_equal(__atomic_load_n(&entries, __ATOMIC_SEQ_CST), 2);
}

static void a_disk_that_hangs_at_the_start_gets_no_entry(void **state)
{
    (void)state;
    look_back_hangs = true;
    begin();
    wait_for(&hangs);
    rp_engine_journal_close(&engine);
    free(config.checkpoint_dir);
    sem_post(&may_go_on);
    wait_for(&hangs);
    rp_sleep_ns(20000000); /* enough for a thread that would write one */
    assert_int_equal(__atomic_load_n(&entries, __ATOMIC_SEQ_CST), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_that_hangs_at_the_end_gets_nothing_more),
        cmocka_unit_test(a_disk_that_hangs_at_the_start_gets_no_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
