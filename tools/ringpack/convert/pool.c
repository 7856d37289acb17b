/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c — threads that take tasks, each with a worker process of its own, and the progress. The
 * calling thread draws, and waits.
 *
 * After a failure no task is begun, and those under way are finished: their parts are kept. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cmd.h"
#include "convert/parts.h"

#define WORKERS_USUAL 8u
#define DRAW_NS 100000000u
#define LINE_NS UINT64_C(30000000000) /* where stderr is no terminal */

struct pool {
    struct rp_conversion *conversion;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    size_t next, running; /* under the lock, as the next fields */
    int code;
    struct rp_error error;
    uint64_t started_ns, drawn_ns;
    bool terminal;
};
struct thread {
    struct pool *pool;
    struct rp_convert *convert;
    uint32_t tokenizer_threads;
    pthread_t id;
};

static struct rp_task *take_task(struct pool *pool)
{
    struct rp_conversion *conversion = pool->conversion;
    struct rp_task *task = NULL;
    pthread_mutex_lock(&pool->lock);
    while (!task && pool->code == 0 && pool->next < conversion->task_count &&
           !rp_tasks_enough(conversion)) {
        task = &conversion->tasks[pool->next++];
        if (!task->mine || task->finished)
            task = NULL;
    }
    pthread_mutex_unlock(&pool->lock);
    return task;
}

static void end_thread(struct pool *pool, int code, const struct rp_error *error)
{
    pthread_mutex_lock(&pool->lock);
    if (code < 0 && pool->code == 0) {
        pool->code = code;
        pool->error = *error;
    }
    pool->running--;
    pthread_cond_signal(&pool->ended);
    pthread_mutex_unlock(&pool->lock);
}

static void *run_thread(void *argument)
{
    struct thread *thread = argument;
    struct pool *pool = thread->pool;
    struct rp_error error = {0};
    int code = 0;
    if (!thread->convert->tokenizer.choice.name)
        code = rp_tokenizer_open(&thread->convert->tokenizer, &pool->conversion->options->tokenizer,
                                 thread->tokenizer_threads, rp_convert_sink, thread->convert,
                                 &error);
    for (struct rp_task *task; code == 0 && (task = take_task(pool)) != NULL;)
        code = rp_task_run(pool->conversion, thread->convert, task, &error);
    rp_tokenizer_close(&thread->convert->tokenizer);
    rp_span_list_release(&thread->convert->runs);
    free(thread->convert->queue.bytes);
    end_thread(pool, code, &error);
    return NULL;
}

static size_t finished_tasks(const struct rp_conversion *conversion)
{
    size_t finished = 0;
    for (size_t i = 0; i < conversion->task_count; i++)
        finished += conversion->tasks[i].finished;
    return finished;
}

/* Bytes are counted when they are read, and a worker may have read all of them before it returns
 * its first tokens: no share is known before those, and 100 % is for the end. */
static double converted_share(const struct rp_conversion *conversion, size_t finished)
{
    if (conversion->total_bytes == 0 || conversion->done_tokens == 0)
        return 0;
    double share = (double)conversion->done_bytes / (double)conversion->total_bytes;
    double limit = finished < conversion->task_count ? 0.99 : 1;
    return share < limit ? share : limit;
}

/* One line: drawn over itself on a terminal, else written again now and then. */
static void draw(struct pool *pool)
{
    struct rp_conversion *conversion = pool->conversion;
    uint64_t now = rp_now_ns(), tokens = conversion->done_tokens;
    if (conversion->options->quiet || now - pool->drawn_ns < (pool->terminal ? DRAW_NS : LINE_NS))
        return;
    pool->drawn_ns = now;
    double seconds = (double)(now - pool->started_ns) / 1e9;
    size_t finished = finished_tasks(conversion);
    double share = converted_share(conversion, finished);
    char done[RP_CMD_TEXT_BYTES], rate[RP_CMD_TEXT_BYTES], left[RP_CMD_TEXT_BYTES] = "?";
    if (share > 0)
        rp_cmd_seconds_text(seconds * (1 - share) / share, left);
    rp_cmd_short_text((double)tokens, done);
    rp_cmd_short_text((double)tokens / seconds, rate);
    fprintf(stderr, "%sconverting  %3.0f %%  %s tokens  %s/s  %zu of %zu parts  %s left%s",
            pool->terminal ? "\r\033[K" : "ringpack: ", 100 * share, done, rate, finished,
            conversion->task_count, left, pool->terminal ? "" : "\n");
    fflush(stderr);
}

static void wait_for_threads(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    while (pool->running > 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += DRAW_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&pool->ended, &pool->lock, &until);
        draw(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    if (pool->terminal && pool->drawn_ns > pool->started_ns)
        fputs("\r\033[K", stderr);
}

static uint32_t thread_count(const struct rp_conversion *conversion)
{
    uint64_t tasks = 0;
    uint32_t wanted = conversion->options->workers;
    for (size_t i = 0; i < conversion->task_count; i++)
        tasks += conversion->tasks[i].mine && !conversion->tasks[i].finished;
    if (wanted == 0)
        wanted = (uint32_t)rp_min_u64(rp_cpus_allowed(), WORKERS_USUAL);
    return (uint32_t)rp_min_u64(wanted, tasks);
}

/* The first thread has a tokenizer already; it takes all tasks if no other thread can start. */
static int run_threads(struct pool *pool, struct thread *threads, uint32_t count,
                       struct rp_convert *first, struct rp_error *error)
{
    struct rp_convert *converts = rp_calloc(count, sizeof *converts);
    if (!converts)
        return rp_fail(error, -ENOMEM, "give fewer --workers", "no memory for %" PRIu32 " workers",
                       count);
    uint32_t started = 0, tokenizer_threads = count > 1 ? rp_cpus_allowed() / count + 1 : 0;
    for (; started < count; started++) {
        struct thread *thread = &threads[started];
        converts[started] = rp_task_convert(pool->conversion);
        *thread = (struct thread){pool, started ? &converts[started] : first, tokenizer_threads, 0};
        pthread_mutex_lock(&pool->lock);
        int code = rp_thread_start(&thread->id, run_thread, thread);
        pool->running += code == 0;
        pthread_mutex_unlock(&pool->lock);
        if (code != 0)
            break;
    }
    wait_for_threads(pool);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i].id, NULL);
    free(converts);
    if (started == 0)
        return rp_fail(error, -RP_E_RESOURCE, NULL, "cannot start a thread");
    *error = pool->error;
    return pool->code;
}

int rp_pool_run(struct rp_conversion *conversion, struct rp_convert *first, struct rp_error *error)
{
    struct pool pool = {
        .conversion = conversion,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .ended = PTHREAD_COND_INITIALIZER,
        .started_ns = rp_now_ns(),
        .terminal = isatty(STDERR_FILENO) == 1,
    };
    pool.drawn_ns = pool.started_ns;
    uint32_t count = thread_count(conversion);
    if (count == 0)
        return 0;
    struct thread *threads = rp_calloc(count, sizeof *threads);
    if (!threads)
        return rp_fail(error, -ENOMEM, "give fewer --workers", "no memory for %" PRIu32 " workers",
                       count);
    int code = run_threads(&pool, threads, count, first, error);
    free(threads);
    return code;
}
