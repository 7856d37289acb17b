/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c — the speed of this machine at each part of the work: memcpy, planning, plain reads.
 *
 * The engine's pipeline is not used. Reads are long requests in file order by engine/io, the
 * easiest task for a disk. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/file.h"
#include "bench/bench.h"
#include "io/io.h"
#include "stream.h"
#include "interrupt.h"

#define SECOND_NS 1e9
#define COPY_BYTES_MAX (256u << 20)
#define READ_BYTES (512u << 10)
#define READ_DEPTH 32u
#define ROWS_A_CHECK 256u /* rows planned between two reads of the clock */

struct window {
    uint64_t begin_ns, until_ns;
    double cpu_begin;
};

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / SECOND_NS;
}

static struct window begin_window(const struct rp_bench *bench)
{
    uint64_t now = rp_now_ns();
    return (struct window){now, now + (uint64_t)(bench->seconds / 4 * SECOND_NS), cpu_now()};
}

static bool is_open(const struct window *window)
{
    return rp_now_ns() < window->until_ns && !rp_interrupted();
}

static void end_window(struct rp_bench_limit *limit, const struct window *window, double tokens)
{
    double seconds = (double)(rp_now_ns() - window->begin_ns) / SECOND_NS;
    if (tokens <= 0 || seconds <= 0)
        return;
    limit->measured = true;
    limit->tokens_per_second = tokens / seconds;
    limit->cpu_seconds = (cpu_now() - window->cpu_begin) / tokens * 1e9;
}

/* Memory whose pages are all allocated, as huge pages if possible. NULL when out of memory. */
static void *take_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes);
    return memory;
}

/* ---- memory, plan ---------------------------------------------------------------------------- */

static int measure_memcpy(struct rp_bench *bench, struct rp_bench_limit *limit,
                          struct rp_error *error)
{
    size_t bytes = (size_t)rp_min_u64(COPY_BYTES_MAX, rp_max_u64(bench->bytes, 1));
    uint8_t *from = take_memory(bytes), *to = take_memory(bytes);
    uint64_t copied = 0;
    struct window window = begin_window(bench);
    while (from && to && is_open(&window)) {
        memcpy(to, from, bytes);
        __asm__ volatile("" ::: "memory"); /* so that the compiler keeps every copy */
        copied += bytes;
    }
    end_window(limit, &window, (double)copied * (double)bench->tokens / (double)bench->bytes);
    bool failed = !from || !to;
    if (from)
        munmap(from, bytes);
    if (to)
        munmap(to, bytes);
    return failed ? rp_fail(error, -ENOMEM, NULL, "out of memory for a copy of %zu bytes", bytes)
                  : 0;
}

/* Plan until the window is over or the stream ends. Opening the plan is left out of the window. */
static int plan_rows(const struct rp_bench *bench, struct window *window, uint64_t *tokens,
                     struct rp_error *error)
{
    struct rp_plan *plan = NULL;
    struct rp_row row;
    uint64_t opening_ns = rp_now_ns();
    double opening_cpu = cpu_now();
    int code = rp_stream_open_plan(&plan, bench->config, bench->corpus, error);
    window->begin_ns += rp_now_ns() - opening_ns;
    window->until_ns += rp_now_ns() - opening_ns;
    window->cpu_begin += cpu_now() - opening_cpu;
    for (uint64_t rows = 0; code >= 0; rows++) {
        if (rows % ROWS_A_CHECK == 0 && !is_open(window))
            break;
        code = rp_plan_next(plan, &row, error);
        if (code == 0)
            break;
        *tokens += code > 0 ? row.tokens : 0;
    }
    rp_plan_close(plan);
    return code;
}

/* Every node plans the rows of all ranks, but only the tokens of local ranks count. */
static int measure_plan(struct rp_bench *bench, struct rp_bench_limit *limit,
                        struct rp_error *error)
{
    uint64_t tokens = 0;
    int code = 0;
    struct window window = begin_window(bench);
    while (code >= 0 && is_open(&window))
        code = plan_rows(bench, &window, &tokens, error);
    double share = (double)bench->config->rank_count / (double)bench->config->dp_world_size;
    end_window(limit, &window, (double)tokens * share);
    return code < 0 ? code : 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The state of reading all token files. */
struct reading {
    struct rp_bench *bench;
    const struct rp_io_method *method;
    struct rp_io *io;
    uint8_t *memory; /* [READ_DEPTH][READ_BYTES] */
    uint32_t free[READ_DEPTH], free_count;
    uint64_t bytes; /* read so far */
    bool direct;
    bool failed;
};

static void take_done(struct reading *r, unsigned wait_min)
{
    struct rp_io_done done[READ_DEPTH];
    unsigned count = rp_io_wait(r->io, done, READ_DEPTH, wait_min);
    for (unsigned i = 0; i < count; i++) {
        r->free[r->free_count++] = (uint32_t)done[i].tag;
        r->bytes += done[i].bytes;
        r->failed = r->failed || done[i].result < 0;
    }
}

/* Read one file to its end, or until the window (may be NULL) is over. At least one request is
 * made, even if a busy machine has used up the window. */
static int read_file(struct reading *r, const struct rp_shard *shard, const struct window *window,
                     struct rp_error *error)
{
    const struct rp_io_place place = {.path = shard->url ? shard->url : shard->path,
                                      .o_direct = r->direct,
                                      .bytes = shard->bytes,
                                      .identity = shard->identity};
    struct rp_io_object object;
    int code = r->method->open_object(&object, &place, error);
    if (code < 0)
        return code;
    uint64_t offset = 0;
    while (offset < shard->bytes && !r->failed && !rp_interrupted() &&
           (!window || is_open(window) || (offset == 0 && r->bytes == 0))) {
        while (r->free_count == 0)
            take_done(r, 1);
        uint64_t bytes = rp_min_u64(READ_BYTES, shard->bytes - offset);
        uint32_t slot = r->free[--r->free_count];
        struct rp_io_read read = {.object = object.handle,
                                  .bytes = (uint32_t)rp_align_up(bytes, object.alignment),
                                  .bytes_needed = (uint32_t)bytes,
                                  .alignment = object.alignment,
                                  .offset = offset,
                                  .buffer = r->memory + (size_t)slot * READ_BYTES,
                                  .tag = slot};
        rp_io_submit(r->io, &read, 1);
        offset += bytes;
    }
    while (r->free_count < READ_DEPTH)
        take_done(r, 1);
    r->method->close_object(&object);
    return r->failed
               ? rp_fail(error, -EIO, "check the disk (dmesg)", "%s: a read failed", shard->path)
               : 0;
}

static int open_reading(struct reading *r, struct rp_bench *bench, bool direct,
                        struct rp_error *error)
{
    char why[RP_STREAM_WHY_BYTES];
    struct rp_io_chosen chosen = {0};
    *r = (struct reading){.bench = bench, .direct = direct, .free_count = READ_DEPTH};
    for (uint32_t i = 0; i < READ_DEPTH; i++)
        r->free[i] = i;
    r->memory = take_memory((size_t)READ_DEPTH * READ_BYTES);
    if (!r->memory)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for reads");
    int code = rp_stream_choose_io(&chosen, bench->config, bench->corpus, why, error);
    const struct rp_io_options options = {.depth = READ_DEPTH,
                                          .file_method = chosen.file_method,
                                          .may_fall_back = chosen.may_fall_back};
    r->method = chosen.method;
    if (code == 0)
        code = rp_io_open(&r->io, r->method, &options, error);
    if (code == 0)
        rp_io_use_region(r->io, r->memory, (size_t)READ_DEPTH * READ_BYTES);
    return code;
}

static void close_reading(struct reading *r)
{
    rp_io_close(r->io);
    if (r->memory)
        munmap(r->memory, (size_t)READ_DEPTH * READ_BYTES);
}

/* Read all files once, or, with a window, again and again until it is over. */
static int read_files(struct reading *r, const struct window *window, struct rp_error *error)
{
    int code = 0;
    do
        for (uint32_t i = 0; i < rp_corpus_data_count(r->bench->corpus) && code >= 0; i++)
            code = read_file(r, rp_corpus_shard(r->bench->corpus, i), window, error);
    while (code >= 0 && window && is_open(window) && r->bytes);
    return code;
}

static int measure_read(struct rp_bench *bench, struct rp_bench_limit *limit, bool cold,
                        struct rp_error *error)
{
    struct reading r;
    int code = open_reading(&r, bench, cold, error);
    struct window window = begin_window(bench);
    if (code >= 0)
        code = read_files(&r, &window, error);
    if (code >= 0)
        end_window(limit, &window, (double)r.bytes * (double)bench->tokens / (double)bench->bytes);
    close_reading(&r);
    return code;
}

int rp_bench_warm(struct rp_bench *bench, struct rp_error *error)
{
    struct reading r;
    int code = open_reading(&r, bench, false, error);
    if (code >= 0)
        code = read_files(&r, NULL, error);
    close_reading(&r);
    return code;
}

int rp_bench_cool(struct rp_bench *bench, struct rp_error *error)
{
    for (uint32_t i = 0; i < rp_corpus_data_count(bench->corpus); i++) {
        uint64_t bytes;
        int fd = rp_file_open_read(rp_corpus_shard(bench->corpus, i)->path, &bytes, error);
        if (fd < 0)
            return fd;
        (void)fdatasync(fd); /* dirty pages cannot be dropped */
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    return 0;
}

int rp_bench_measure_limit(struct rp_bench *bench, int which, struct rp_error *error)
{
    struct rp_bench_limit *limit = &bench->limits[which];
    switch (which) {
    case RP_BENCH_MEMCPY:
        return measure_memcpy(bench, limit, error);
    case RP_BENCH_PLAN:
        return measure_plan(bench, limit, error);
    default:
        return measure_read(bench, limit, which == RP_BENCH_READ_COLD, error);
    }
}
