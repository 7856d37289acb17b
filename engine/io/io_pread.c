/* SPDX-License-Identifier: Apache-2.0 */
/* io_pread.c — reads by a pool of threads, for machines and containers without io_uring.
 *
 *   submit ──► jobs ──► threads ──► results ──► reap
 *      └── bytes in the page cache are copied at once ──┘
 *
 * A thread blocks in pread for every read in flight, up to THREADS_MAX (measured, cold, 36 KiB:
 * 0.9 of io_uring's bandwidth at three times its processor time). A thread is started when more
 * reads wait than threads are free, so a small depth or a fast disk keeps few. Buffered reads are
 * first tried with RWF_NOWAIT in the caller's thread: a hit costs one copy and no switch of
 * threads, which is also what io_uring does.
 *
 * Invariant: jobs + running + results <= depth, as io.c guarantees, so neither queue overflows.
 *
 * Threads: the lock protects all members below it; the others are set at open, or used by the owner
 * only. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/thread.h"
#include "io/io.h"

enum { THREADS_MAX = 32, REFUSERS = 64 };

struct job {
    struct rp_io_read read;
    uint32_t arrived; /* copied from the page cache before the thread takes it */
};

struct result {
    uint64_t tag;
    int64_t value;
};

struct pool {
    uint32_t depth, threads_max;
    /* Files whose file system (tmpfs) or sandbox refuses RWF_NOWAIT: 1 + descriptor, at index
     * descriptor modulo REFUSERS. A try at each read would cost a tenth of the read. If the
     * descriptor is reused, its new file only loses the fast path. */
    intptr_t refusers[REFUSERS];
    pthread_t threads[THREADS_MAX];
    uint32_t thread_count; /* the owner's only, as is `threads` */

    pthread_mutex_t lock;
    pthread_cond_t work;     /* jobs, or stop */
    pthread_cond_t finished; /* result_count reached `awaited` */
    struct job *jobs;        /* ring of depth, from job_first */
    uint32_t job_first, job_count;
    struct result *results; /* ring of depth, from result_first */
    uint32_t result_first, result_count;
    uint32_t awaited; /* by reap; 0 = reap is not waiting */
    uint32_t busy;    /* threads that are reading */
    bool stop;
};

static int64_t read_some(const struct job *job)
{
    const struct rp_io_read *read = &job->read;
    ssize_t count = pread((int)read->object, (uint8_t *)read->buffer + job->arrived,
                          read->bytes - job->arrived, (off_t)(read->offset + job->arrived));
    if (count < 0 && job->arrived == 0)
        return -errno;
    /* An error after some bytes is deferred: the read of the rest returns it. */
    return (int64_t)job->arrived + (count > 0 ? count : 0);
}

/* The lock is held. */
static void add_result(struct pool *pool, uint64_t tag, int64_t value)
{
    RP_ASSERT(pool->result_count < pool->depth);
    uint32_t at = (pool->result_first + pool->result_count++) % pool->depth;
    pool->results[at] = (struct result){tag, value};
}

/* The lock is held. */
static struct job take_job(struct pool *pool)
{
    struct job job = pool->jobs[pool->job_first];
    pool->job_first = (pool->job_first + 1) % pool->depth;
    pool->job_count--;
    return job;
}

static void *work(void *argument)
{
    struct pool *pool = argument;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->job_count && !pool->stop)
            pthread_cond_wait(&pool->work, &pool->lock);
        if (!pool->job_count)
            break;
        struct job job = take_job(pool);
        pool->busy++;
        pthread_mutex_unlock(&pool->lock);
        int64_t value = read_some(&job);
        pthread_mutex_lock(&pool->lock);
        pool->busy--;
        add_result(pool, job.read.tag, value);
        if (pool->result_count == pool->awaited)
            pthread_cond_signal(&pool->finished);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* The main thread handles signals, so the new thread blocks them all. Returns 0 or -errno. */
static int start_thread(struct pool *pool)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = rp_thread_start(&pool->threads[pool->thread_count], work, pool);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pool->thread_count += code == 0;
    return -code;
}

static void pread_close(void *self)
{
    struct pool *pool = self;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->thread_count; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    free(pool->results);
    free(pool->jobs);
    free(pool);
}

static int pread_open(void **self, const struct rp_io_options *options, struct rp_error *error)
{
    struct pool *pool = rp_calloc(1, sizeof *pool);
    if (!pool)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a pool of reading threads");
    pool->depth = options->depth;
    pool->threads_max = (uint32_t)rp_min_u64(options->depth, THREADS_MAX);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->finished, NULL);
    pool->jobs = rp_calloc(pool->depth, sizeof *pool->jobs);
    pool->results = rp_calloc(pool->depth, sizeof *pool->results);
    /* One thread suffices for progress, so only the first must start. */
    int code = pool->jobs && pool->results ? start_thread(pool) : -ENOMEM;
    if (code < 0) {
        pread_close(pool);
        return rp_fail(error, code, "raise the limit of processes (`ulimit -u`) or of memory",
                       "cannot start a reading thread: %s", rp_strerror(code));
    }
    *self = pool;
    return 0;
}

/* Copy bytes that are in the page cache. Returns true if the read is complete. */
static bool read_cached(struct pool *pool, struct job *job)
{
    const struct rp_io_read *read = &job->read;
    intptr_t *refuser = &pool->refusers[(size_t)read->object % REFUSERS];
    if (*refuser == read->object + 1 || read->alignment != 1)
        return false;
    struct iovec target = {read->buffer, read->bytes};
    ssize_t count = preadv2((int)read->object, &target, 1, (off_t)read->offset, RWF_NOWAIT);
    if (count < 0) { /* a refusal is permanent */
        if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)
            *refuser = read->object + 1;
        return false;
    }
    job->arrived = (uint32_t)count;
    return job->arrived == read->bytes;
}

/* The lock is held. */
static void add_job(struct pool *pool, const struct job *job)
{
    RP_ASSERT(pool->job_count < pool->depth);
    pool->jobs[(pool->job_first + pool->job_count++) % pool->depth] = *job;
    pthread_cond_signal(&pool->work);
}

static int pread_submit(void *self, const struct rp_io_read *reads, unsigned count)
{
    struct pool *pool = self;
    for (unsigned i = 0; i < count; i++) {
        struct job job = {.read = reads[i]};
        bool cached = read_cached(pool, &job);
        pthread_mutex_lock(&pool->lock);
        if (cached)
            add_result(pool, job.read.tag, job.arrived);
        else
            add_job(pool, &job);
        bool crowded = pool->job_count > pool->thread_count - pool->busy;
        pthread_mutex_unlock(&pool->lock);
        if (crowded && pool->thread_count < pool->threads_max)
            (void)start_thread(pool); /* else the next read retries the start */
    }
    return (int)count;
}

static int pread_reap(void *self, uint64_t *tags, int64_t *results, unsigned max, unsigned wait_min)
{
    struct pool *pool = self;
    pthread_mutex_lock(&pool->lock);
    pool->awaited = wait_min;
    while (pool->result_count < wait_min)
        pthread_cond_wait(&pool->finished, &pool->lock);
    pool->awaited = 0;
    unsigned taken = 0;
    for (; taken < max && pool->result_count; taken++) {
        struct result result = pool->results[pool->result_first];
        pool->result_first = (pool->result_first + 1) % pool->depth;
        pool->result_count--;
        tags[taken] = result.tag;
        results[taken] = result.value;
    }
    pthread_mutex_unlock(&pool->lock);
    return (int)taken;
}

static void pread_describe(const void *self, char *text, size_t text_bytes)
{
    const struct pool *pool = self;
    snprintf(text, text_bytes, "pread, up to %u threads", pool->threads_max);
}

const struct rp_io_method rp_io_method_pread = {
    .name = "pread",
    .open_object = rp_io_open_file,
    .close_object = rp_io_close_file,
    .open = pread_open,
    .close = pread_close,
    .submit = pread_submit,
    .reap = pread_reap,
    .describe = pread_describe,
};
