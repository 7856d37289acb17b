/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/saves.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "bench/processes.h"
#include "checkpoint/storage.h"
#include "cmd_run.h"
#include "interrupt.h"
#include "ringpack/client.h"

#define SECOND_NS 1e9
#define CALLS_MAX (1u << 20) /* each trainer's */
#define SAVES_MIN 3u
#define SAVES_MAX 256u
#define WAIT_NS UINT64_C(60000000000) /* for a save */
#define POLL_NS UINT64_C(5000000)
#define QUIET_NS_MIN UINT64_C(50000000)
#define QUIET_NS_MAX UINT64_C(2000000000)
#define PLAIN_NAME "plain"
#define FULL 0.9 /* share of the slots: batches in hand and under way count as free */

struct window {
    uint64_t begin_ns, end_ns;
};

/* One save, and its plain write for comparison. */
struct turn {
    struct window quiet, save; /* save: until it is read back */
    double bytes, seconds, plain_seconds, parts[RP_BENCH_PART_COUNT];
};

struct saving {
    struct rp_bench_processes processes;
    char *run_dir, *directory; /* directory: of the checkpoints */
    uint8_t *pages;            /* that are written plainly */
    size_t page_bytes;
    uint64_t saves; /* that the engine has counted */
    struct turn turns[SAVES_MAX];
    size_t count;
};

/* ---- the engine ------------------------------------------------------------------------------ */

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static bool are_full(const json_t *stat)
{
    size_t i;
    const json_t *rank;
    json_array_foreach(json_object_get(stat, "ranks"), i, rank)
    {
        double filled = number_of(rank, "tail") - number_of(rank, "release");
        if (filled < FULL * number_of(rank, "slots"))
            return false;
    }
    return true;
}

/* Contents hold prefetched rows, so saves of rings that are not full yet are cheaper. */
static int wait_for_full_rings(struct saving *saving, uint64_t ns, bool *are,
                               struct rp_error *error)
{
    uint64_t until_ns = rp_now_ns() + ns;
    int code = 0;
    while (code == 0 && !*are && rp_now_ns() < until_ns) {
        json_t *stat;
        rp_sleep_ns(POLL_NS);
        code = rp_bench_check(&saving->processes, error);
        if (code == 0)
            code = rp_cmd_run_stat(saving->run_dir, RP_JOB_RUN, &stat, error);
        if (code == 0) {
            *are = are_full(stat);
            json_decref(stat);
        }
    }
    return code;
}

/* ---- one save -------------------------------------------------------------------------------- */

/* Wait until the save was read back. */
static int wait_for_end(struct saving *saving, json_t **stat, struct rp_error *error)
{
    for (;;) {
        int code = rp_bench_check(&saving->processes, error);
        if (code >= 0)
            code = rp_cmd_run_stat(saving->run_dir, RP_JOB_RUN, stat, error);
        if (code < 0 || json_is_false(json_object_get(*stat, "save_under_way")))
            return code;
        json_decref(*stat);
        rp_sleep_ns(POLL_NS);
    }
}

/* Save once. Returns 1, or 0 if the engine had no new row to save. */
static int save(struct saving *saving, struct turn *turn, struct rp_error *error)
{
    static const char *const keys[] = {
#define PART_KEY(name, key, what) "save_" key "_seconds",
        RP_BENCH_PARTS(PART_KEY)
#undef PART_KEY
    };
    char *path;
    json_t *stat;
    turn->save.begin_ns = rp_now_ns();
    int code = rp_run_checkpoint(saving->run_dir, RP_JOB_RUN, &path, error);
    turn->seconds = (double)(rp_now_ns() - turn->save.begin_ns) / SECOND_NS;
    if (code < 0)
        return code;
    rp_text_free(path);
    code = wait_for_end(saving, &stat, error);
    if (code < 0)
        return code;
    turn->save.end_ns = rp_now_ns();
    uint64_t count = (uint64_t)number_of(stat, "saves");
    bool is_new = count > saving->saves;
    saving->saves = count;
    turn->bytes = number_of(stat, "save_bytes");
    for (int i = 0; i < RP_BENCH_PART_COUNT; i++)
        turn->parts[i] = number_of(stat, keys[i]);
    json_decref(stat);
    return is_new;
}

/* ---- the same bytes, plainly ----------------------------------------------------------------- */

static int write_file(struct rp_storage *storage, int fd, const uint8_t *data, size_t bytes)
{
    int code = storage->reserve(storage, fd, bytes);
    for (size_t done = 0; code == 0 && done < bytes;) {
        ssize_t put = storage->write(storage, fd, data + done, bytes - done, done);
        if (put <= 0)
            return put < 0 ? (int)put : -EIO;
        done += (size_t)put;
    }
    return code == 0 ? storage->sync(storage, fd) : code;
}

static int fail_plain(const struct saving *saving, int code, struct rp_error *error)
{
    return rp_fail(error, code, NULL, "%s/" PLAIN_NAME ": %s", saving->directory,
                   rp_strerror(code));
}

/* The memory is there before the clock runs. */
static int take_pages(struct saving *saving, size_t bytes, struct rp_error *error)
{
    if (bytes <= saving->page_bytes)
        return 0;
    rp_give_pages(saving->pages, saving->page_bytes);
    saving->page_bytes = bytes + bytes / 8;
    saving->pages = rp_take_pages(saving->page_bytes);
    if (!saving->pages)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a plain write");
    memset(saving->pages, 1, saving->page_bytes);
    return 0;
}

static int write_plainly(struct saving *saving, struct turn *turn, struct rp_error *error)
{
    struct rp_storage *storage = &rp_storage_system;
    size_t bytes = (size_t)turn->bytes;
    int code = take_pages(saving, bytes, error);
    if (code < 0)
        return code;
    int dir = open(saving->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return fail_plain(saving, -errno, error);
    uint64_t begin_ns = rp_now_ns();
    int fd = storage->create(storage, dir, PLAIN_NAME);
    code = fd < 0 ? fd : write_file(storage, fd, saving->pages, bytes);
    turn->plain_seconds = (double)(rp_now_ns() - begin_ns) / SECOND_NS;
    if (fd >= 0) {
        storage->close(storage, fd);
        storage->unlink(storage, dir, PLAIN_NAME);
    }
    close(dir);
    return code < 0 ? fail_plain(saving, code, error) : 0;
}

/* ---- all saves ------------------------------------------------------------------------------- */

/* Wait. */
static int be_quiet(struct saving *saving, struct window *window, uint64_t ns,
                    struct rp_error *error)
{
    int code = 0;
    window->begin_ns = rp_now_ns();
    while (rp_now_ns() < window->begin_ns + ns && code >= 0) {
        rp_sleep_ns(POLL_NS);
        code = rp_bench_check(&saving->processes, error);
    }
    window->end_ns = rp_now_ns();
    return code;
}

static int take_turns(struct saving *saving, double seconds, struct rp_error *error)
{
    uint64_t quiet_ns = 4 * QUIET_NS_MIN, last_ns = rp_now_ns();
    uint64_t until_ns = last_ns + (uint64_t)(seconds * SECOND_NS);
    while (saving->count < SAVES_MAX && (saving->count < SAVES_MIN || rp_now_ns() < until_ns)) {
        struct turn turn;
        struct window pause;
        int code = be_quiet(saving, &turn.quiet, quiet_ns, error);
        if (code >= 0)
            code = save(saving, &turn, error);
        if (code == 0 && rp_now_ns() - last_ns > WAIT_NS)
            return rp_fail(error, -RP_E_TIMEOUT, "give more ranks or a smaller global_batch_size",
                           "no step ended within %.0f s, so there were no new rows to save",
                           (double)WAIT_NS / SECOND_NS);
        if (code == 0)
            continue;
        if (code > 0)
            code = be_quiet(saving, &pause, QUIET_NS_MIN, error);
        if (code >= 0)
            code = write_plainly(saving, &turn, error);
        if (code < 0)
            return code;
        saving->turns[saving->count++] = turn;
        last_ns = rp_now_ns();
        quiet_ns = rp_max_u64(QUIET_NS_MIN,
                              rp_min_u64(turn.save.end_ns - turn.save.begin_ns, QUIET_NS_MAX));
    }
    return 0;
}

/* ---- figures --------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double rank_of(double *values, size_t count, double share)
{
    qsort(values, count, sizeof *values, ascending);
    return values[(size_t)((double)(count - 1) * share + 0.5)];
}

#define MEDIAN(saving, expression)                                                                 \
    ({                                                                                             \
        double values_[SAVES_MAX] = {0};                                                           \
        for (size_t i_ = 0; i_ < (saving)->count; i_++) {                                          \
            const struct turn *turn = &(saving)->turns[i_];                                        \
            values_[i_] = (expression);                                                            \
        }                                                                                          \
        rank_of(values_, (saving)->count, 0.5);                                                    \
    })

/* The calls of all trainers that overlap a window: how long each took, appended to `values`. The
 * result is how long a trainer was in next() during the window, in seconds. */
static double add_calls(const struct saving *saving, const struct window *window, double *values,
                        size_t *count)
{
    double inside = 0;
    for (uint32_t r = 0; r < saving->processes.rank_count; r++) {
        const struct rp_bench_rank *rank = &saving->processes.ranks[r];
        uint64_t calls = rp_a64_load_acquire(&rank->counts->calls); /* PAIRS bench-calls */
        for (uint64_t i = 0; i < calls; i++) {
            const struct rp_bench_call *call = &rank->calls[i];
            uint64_t begin_ns = rp_max_u64(call->begin_ns, window->begin_ns);
            uint64_t end_ns = rp_min_u64(call->begin_ns + call->ns, window->end_ns);
            if (begin_ns >= end_ns)
                continue;
            inside += (double)(end_ns - begin_ns) / SECOND_NS;
            values[(*count)++] = (double)call->ns / SECOND_NS;
        }
    }
    return inside / saving->processes.rank_count;
}

static struct rp_bench_pause pause_of(double *values, size_t count)
{
    if (count == 0)
        return (struct rp_bench_pause){.calls = 0};
    return (struct rp_bench_pause){.calls = count,
                                   .median = rank_of(values, count, 0.5),
                                   .p99 = rank_of(values, count, 0.99),
                                   .longest = rank_of(values, count, 1)};
}

static double seconds_of(const struct window *window)
{
    return (double)(window->end_ns - window->begin_ns) / SECOND_NS;
}

/* The cost for trainers. A save costs the time in next() that is more than in a quiet window of the
 * same length. */
static int find_pauses(const struct saving *saving, struct rp_bench_saves *saves,
                       struct rp_error *error)
{
    size_t room = (size_t)saving->processes.rank_count * CALLS_MAX * 2;
    double *quiet = rp_calloc(room, sizeof *quiet), *during = rp_calloc(room, sizeof *during);
    size_t quiet_count = 0, during_count = 0;
    double lost[SAVES_MAX] = {0}, quiet_seconds = 0;
    if (quiet && during) {
        for (size_t i = 0; i < saving->count; i++) {
            const struct turn *turn = &saving->turns[i];
            double share = add_calls(saving, &turn->quiet, quiet, &quiet_count) /
                           seconds_of(&turn->quiet);
            double inside = add_calls(saving, &turn->save, during, &during_count);
            lost[i] = inside - share * seconds_of(&turn->save);
            quiet_seconds += seconds_of(&turn->quiet);
        }
        double lost_seconds = rank_of(lost, saving->count, 0.5);
        saves->lost_seconds = lost_seconds > 0 ? lost_seconds : 0;
        saves->quiet = pause_of(quiet, quiet_count);
        saves->saving = pause_of(during, during_count);
        saves->batch_seconds =
            quiet_count ? quiet_seconds * saving->processes.rank_count / (double)quiet_count : 0;
    }
    bool failed = !quiet || !during;
    free(quiet);
    free(during);
    return failed ? rp_fail(error, -ENOMEM, NULL, "out of memory for the calls of trainers") : 0;
}

static int find_figures(const struct saving *saving, struct rp_bench_saves *saves,
                        struct rp_error *error)
{
    const struct rp_config *config = saving->processes.bench->config;
    saves->count = saving->count;
    if (saving->count == 0)
        return 0;
    saves->bytes = MEDIAN(saving, turn->bytes);
    saves->seconds = MEDIAN(saving, turn->seconds);
    saves->busy_seconds = MEDIAN(saving, seconds_of(&turn->save));
    saves->plain_seconds = MEDIAN(saving, turn->plain_seconds);
    saves->per_plain = MEDIAN(saving, turn->plain_seconds / turn->seconds);
    for (int part = 0; part < RP_BENCH_PART_COUNT; part++)
        saves->parts[part] = MEDIAN(saving, turn->parts[part]);
    saves->step_batches = (double)config->global_batch_size /
                          ((double)config->batch_size * config->dp_world_size);
    int code = find_pauses(saving, saves, error);
    double least = saves->lost_seconds * 1000; /* and saves do not overlap */
    saves->cheap_seconds = least > saves->busy_seconds ? least : saves->busy_seconds;
    return code;
}

/* ---- the directory --------------------------------------------------------------------------- */

/* A directory of our own on the disk of checkpoint_dir, which need not exist yet. */
static char *make_directory(const char *wanted, struct rp_error *error)
{
    char *parent = strdup(wanted), *at = parent, *made;
    while (at && access(at, F_OK) != 0 && strcmp(at, ".") != 0 && strcmp(at, "/") != 0)
        at = dirname(at);
    made = at ? rp_asprintf("%s/.ringpack-bench-XXXXXX", at) : NULL;
    free(parent);
    if (!made) {
        rp_fail(error, -ENOMEM, NULL, "out of memory");
    } else if (!mkdtemp(made)) {
        rp_fail(error, -errno, "give --checkpoint-dir DIR, where you may write", "%s: %s", made,
                rp_strerror(-errno));
        free(made);
        made = NULL;
    }
    return made;
}

int rp_bench_measure_saves(struct rp_bench *bench, double step_seconds,
                           struct rp_bench_saves *saves, struct rp_error *error)
{
    if (!bench->config->checkpoint_dir)
        return rp_fail(error, -RP_E_USAGE, "give --checkpoint-dir DIR, a directory on that disk",
                       "the config has no checkpoint_dir, so the disk of checkpoints is not known");
    struct saving *saving = rp_calloc(1, sizeof *saving);
    if (!saving)
        return rp_fail(error, -ENOMEM, NULL, "out of memory");
    saving->directory = make_directory(bench->config->checkpoint_dir, error);
    saving->run_dir = rp_job_path(&bench->job, "run");
    saving->processes = (struct rp_bench_processes){.bench = bench,
                                                    .checkpoint_dir = saving->directory,
                                                    .step_ns = (uint64_t)(step_seconds * SECOND_NS),
                                                    .calls_max = CALLS_MAX};
    int code = saving->directory && saving->run_dir ? rp_bench_start(&saving->processes, error)
                                                    : error->code;
    if (code >= 0)
        code = rp_bench_wait_for_batches(&saving->processes, error);
    if (code >= 0)
        code = wait_for_full_rings(saving, (uint64_t)(bench->seconds * SECOND_NS),
                                   &saves->began_full, error);
    if (code >= 0)
        code = take_turns(saving, bench->seconds, error);
    if (code >= 0 || rp_interrupted())
        code = find_figures(saving, saves, error);
    if (saving->directory) {
        rp_bench_end(&saving->processes);
        rp_job_remove(saving->directory);
    }
    rp_give_pages(saving->pages, saving->page_bytes);
    free(saving->run_dir);
    free(saving->directory);
    free(saving);
    return code;
}
