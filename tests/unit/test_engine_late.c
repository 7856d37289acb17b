/* SPDX-License-Identifier: Apache-2.0 */
/* A whole engine that ends while two of its threads hang at a disk: dispatch, which checks a token
 * file, and the planner of far rows. It does not wait for them; and when the disk answers after
 * all, they find everything that they use: freed memory is overwritten here. */
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/file.h"
#include "server/server.h"

static int run_until_threads_end(const struct rp_engine_options *options, struct rp_error *error);
#define rp_engine_run run_until_threads_end
#include "engine_kit.h"
#undef rp_engine_run

/* Memory that the test and its engine share. */
static struct {
    struct rp_a32 hangs;        /* 1: the disk gives no answer */
    struct rp_a32 met[2];       /* how often a thread has met that: CHECKS, PLANS */
    struct rp_a32 threads_left; /* when rp_engine_run returned */
} * disk;

enum { CHECKS, PLANS };

static void meet_disk(const char *thread, uint32_t number)
{
    char name[16] = "";
    if (disk && rp_a32_load_acquire(&disk->hangs) &&
        pthread_getname_np(pthread_self(), name, sizeof name) == 0 && strcmp(name, thread) == 0) {
        rp_a32_add_relaxed(&disk->met[number], 1);
        while (rp_a32_load_acquire(&disk->hangs))
            rp_sleep_ns(1000000);
    }
}

int __real_fstat(int fd, struct stat *info);
int __wrap_fstat(int fd, struct stat *info);
int __wrap_fstat(int fd, struct stat *info)
{
    meet_disk("plan", CHECKS);
    return __real_fstat(fd, info);
}

int __real_rp_plan_seek(struct rp_plan *plan, uint64_t row, struct rp_error *error);
int __wrap_rp_plan_seek(struct rp_plan *plan, uint64_t row, struct rp_error *error);
int __wrap_rp_plan_seek(struct rp_plan *plan, uint64_t row, struct rp_error *error)
{
    meet_disk("far plan", PLANS);
    return __real_rp_plan_seek(plan, row, error);
}

static bool has_name_of_process(const char *task)
{
    char path[64], own[32] = "", name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%.16s/comm", task);
    return rp_file_head("/proc/self/comm", own, sizeof own) == 0 ||
           rp_file_head(path, name, sizeof name) == 0 || /* it has ended */
           strcmp(own, name) == 0;
}

/* Threads of the engine, which have names: a sanitizer has others. */
static uint32_t threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    uint32_t count = 0;
    for (struct dirent *entry; tasks && (entry = readdir(tasks));)
        count += entry->d_name[0] != '.' && !has_name_of_process(entry->d_name);
    closedir(tasks);
    return count;
}

/* Such an engine joins no thread. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "report_thread_leaks=0";
}

static int run_until_threads_end(const struct rp_engine_options *options, struct rp_error *error)
{
    mallopt(M_PERTURB, 0x5a);
    int code = rp_engine_run(options, error);
    rp_a32_store_relaxed(&disk->threads_left, threads());
    rp_a32_store_release(&disk->hangs, 0);
    for (uint32_t i = 0; threads() > 0 && i < PATIENCE_MS; i++)
        rp_sleep_ns(1000000);
    return threads() > 0 ? -1 : code;
}

static void threads_that_hang_outlive_the_engine(void **state)
{
    (void)state;
    static const char *const endless[] = {"num_epochs", "0", NULL};
    struct engine engine = engine_start(endless);
    struct rp_client *client = trainer(0, NULL, 0);
    take_batches(client, 0, 0, 2);
    rp_client_detach(client);
    rp_a32_store_release(&disk->hangs, 1);
    int far = ask_for_row(1, UINT64_C(1) << 60);
    while (rp_a32_load_relaxed(&disk->met[PLANS]) == 0)
        rp_sleep_ns(1000000);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    close(far);
    assert_true(rp_a32_load_relaxed(&disk->met[CHECKS]) > 0);
    assert_true(rp_a32_load_relaxed(&disk->threads_left) >= 2);
}

static int enter(void **state)
{
    disk = mmap(NULL, sizeof *disk, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return disk == MAP_FAILED ? -1 : engine_enter(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(threads_that_hang_outlive_the_engine, end_newest),
    };
    return cmocka_run_group_tests(tests, enter, engine_leave);
}
