/* SPDX-License-Identifier: Apache-2.0 */
/* index_corpus.c — `ringpack index -c CONFIG`: one index of all sources of a config, by several
 * threads (corpus/index/build.h). A config that names none gets the sidecars of its shards. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/thread.h"
#include "cmd.h"
#include "corpus/index/build.h"
#include "object/url.h"
#include "index_corpus.h"
#include "stream.h"

/* ---- threads --------------------------------------------------------------------------------- */

struct crew;

/* A thread, and how far it is. */
struct worker {
    struct crew *crew;
    pthread_t thread;
    struct rp_a64 bytes; /* sum of its finished shards and of the one it reads */
    uint64_t finished_bytes;
    struct rp_error error;
    int code;
};

/* One step of the build, for every number below `count`. */
struct crew {
    struct rp_indexing *build;
    bool is_quiet;
    int (*step)(struct worker *worker, uint64_t number);
    uint64_t count;
    struct rp_a64 next, failed, running;
    struct worker workers[RP_INDEX_WORKERS_MAX];
    uint32_t worker_count;
};

static void report(void *context, uint64_t done, uint64_t total)
{
    struct worker *worker = context;
    (void)total;
    rp_a64_store_relaxed(&worker->bytes, worker->finished_bytes + done);
}

static int scan(struct worker *worker, uint64_t number)
{
    struct rp_indexing *build = worker->crew->build;
    const struct rp_progress progress = {report, worker};
    int code = rp_indexing_scan(build, number, &progress, &worker->error);
    worker->finished_bytes += rp_indexing_bytes(build, number);
    report(worker, 0, 0);
    return code;
}

static int write_entries(struct worker *worker, uint64_t number)
{
    int code = rp_indexing_write(worker->crew->build, number, &worker->error);
    rp_a64_add_relaxed(&worker->bytes, 1);
    return code;
}

static int hash(struct worker *worker, uint64_t number)
{
    rp_indexing_hash(worker->crew->build, number);
    rp_a64_add_relaxed(&worker->bytes, 1);
    return 0;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct crew *crew = worker->crew;
    while (!rp_a64_load_relaxed(&crew->failed)) {
        uint64_t number = rp_a64_add_relaxed(&crew->next, 1);
        if (number >= crew->count)
            break;
        worker->code = rp_stop_check(&worker->error);
        if (worker->code == 0)
            worker->code = crew->step(worker, number);
        if (worker->code < 0)
            rp_a64_store_relaxed(&crew->failed, 1);
    }
    rp_a64_add_relaxed(&crew->running, UINT64_MAX);
    return NULL;
}

/* Run a step to its end. The first error counts. */
static int run(struct crew *crew, struct rp_cmd_progress *progress, uint64_t total,
               struct rp_error *error)
{
    uint32_t started = 0;
    rp_a64_store_relaxed(&crew->next, 0);
    rp_a64_store_relaxed(&crew->running, crew->worker_count);
    for (; started < crew->worker_count; started++) {
        struct worker *worker = &crew->workers[started];
        *worker = (struct worker){.crew = crew};
        if (rp_thread_start(&worker->thread, work, worker) != 0)
            break;
    }
    rp_a64_add_relaxed(&crew->running, started - (uint64_t)crew->worker_count);
    while (rp_a64_load_relaxed(&crew->running) > 0 && progress->shown) {
        uint64_t done = 0;
        for (uint32_t i = 0; i < started; i++)
            done += rp_a64_load_relaxed(&crew->workers[i].bytes);
        rp_cmd_progress(progress, done, total);
        rp_sleep_ns(50000000);
    }
    int code = started ? 0 : rp_fail(error, -EAGAIN, NULL, "cannot start a thread");
    for (uint32_t i = 0; i < started; i++) {
        struct worker *worker = &crew->workers[i];
        pthread_join(worker->thread, NULL);
        if (worker->code < 0 && code == 0) {
            *error = worker->error;
            code = worker->code;
        }
    }
    return code;
}

static int run_step(struct crew *crew, const char *label, int (*step)(struct worker *, uint64_t),
                    uint64_t count, uint64_t bytes, struct rp_error *error)
{
    struct rp_cmd_progress progress;
    rp_cmd_progress_begin(&progress, label, bytes > 0);
    progress.shown &= !crew->is_quiet;
    crew->step = step;
    crew->count = count;
    int code = count ? run(crew, &progress, bytes ? bytes : count, error) : 0;
    rp_cmd_progress_end(&progress);
    return code;
}

/* ---- the build ------------------------------------------------------------------------------- */

static int build_all(struct rp_indexing *build, const struct rp_declared *arguments,
                     struct rp_indexed *built, struct rp_error *error)
{
    struct crew *crew = rp_calloc(1, sizeof *crew);
    if (!crew)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for threads");
    crew->build = build;
    crew->is_quiet = arguments->quiet;
    crew->worker_count = arguments->workers
                             ? (uint32_t)arguments->workers
                             : (uint32_t)rp_min_u64(rp_cpus_allowed(), RP_INDEX_WORKERS_MAX);
    uint64_t shards = rp_indexing_shards(build), bytes = 1;
    for (uint64_t i = 0; i < shards; i++)
        bytes += rp_indexing_bytes(build, i);
    int code = run_step(crew, "indexing", scan, shards, bytes, error);
    if (code == 0)
        code = rp_indexing_lay_out(build, error);
    if (code == 0)
        code = run_step(crew, "writing the index: shards", write_entries, shards, 0, error);
    if (code == 0)
        code = run_step(crew, "hashing the index: parts", hash, rp_indexing_parts(build), 0, error);
    free(crew);
    return code < 0 ? code : rp_indexing_finish(build, built, error);
}

static const char *const outcomes[] = {
    [RP_INDEXED_NEW] = "new",
    [RP_INDEXED_APPENDED] = "appended",
    [RP_INDEXED_REWRITTEN] = "rewritten",
    [RP_INDEXED_UNCHANGED] = "unchanged",
};

static void print(const char *path, const struct rp_indexed *built, double seconds)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES], hex[RP_HASH_HEX_BYTES];
    printf("%s: %s", path, outcomes[built->outcome]);
    if (built->why[0])
        printf(" (%s)", built->why);
    printf("\n  shards       %s, of which %s are new in this file and %s were read\n",
           rp_cmd_count_text(built->shards, a), rp_cmd_count_text(built->shards_added, b),
           rp_cmd_count_text(built->shards_read, c));
    printf("  documents    %s, %s tokens in %s\n", rp_cmd_count_text(built->documents, a),
           rp_cmd_count_text(built->tokens, b), rp_cmd_bytes_text(built->bytes, c));
    printf("  root         %s\n", rp_hash128_hex(built->root, hex));
    printf("  fingerprint  %s, full\n", rp_hash128_hex(built->fingerprint.full, hex));
    printf("  time         %s\n", rp_cmd_seconds_text(seconds, a));
}

static void print_json(const char *path, const struct rp_indexed *built, double seconds)
{
    char root[RP_HASH_HEX_BYTES], full[RP_HASH_HEX_BYTES];
    rp_cmd_print_json(json_pack(
        "{s:o, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:f}", "path",
        rp_cmd_json_text(path), "outcome", outcomes[built->outcome], "why",
        rp_cmd_json_text(built->why), "shards", (json_int_t)built->shards, "shards_added",
        (json_int_t)built->shards_added, "shards_read", (json_int_t)built->shards_read, "documents",
        (json_int_t)built->documents, "tokens", (json_int_t)built->tokens, "bytes",
        (json_int_t)built->bytes, "root", rp_hash128_hex(built->root, root), "fingerprint_full",
        rp_hash128_hex(built->fingerprint.full, full), "seconds", seconds));
}

static int make(const struct rp_declared *arguments, const struct rp_indexing_options *options)
{
    struct rp_indexing *build;
    struct rp_indexed built;
    struct rp_error error = {0};
    uint64_t started_ns = rp_now_ns();
    int code = rp_indexing_open(&build, options, &error);
    if (code == 0) {
        code = build_all(build, arguments, &built, &error);
        rp_indexing_close(build);
    }
    if (code < 0)
        return rp_cmd_report(&error);
    double seconds = (double)(rp_now_ns() - started_ns) / 1e9;
    if (built.columns_lost)
        fprintf(stderr,
                "%s: warning: its columns are gone, because the index was rewritten: "
                "run `ringpack annotate` again\n",
                options->path);
    if (arguments->json)
        print_json(options->path, &built, seconds);
    else
        print(options->path, &built, seconds);
    return RP_EXIT_FINE;
}

/* The sidecar of each shard, declared as its source is. */
static int index_shards(const struct rp_declared_verb *sidecars,
                        const struct rp_declared *arguments, const struct rp_config *config)
{
    const struct rp_declared common = {.index_dir = rp_config_index_dir(config),
                                       .json = arguments->json,
                                       .quiet = arguments->quiet};
    struct rp_error error;
    struct rp_source_spec *specs = rp_stream_sources(config);
    if (!specs) {
        (void)rp_fail(&error, -ENOMEM, NULL, "out of memory for %u sources", config->source_count);
        return rp_cmd_report(&error);
    }
    int status = rp_declared_sources(sidecars, &common, specs, config->source_count);
    free(specs);
    return status;
}

int rp_cmd_index_config(const struct rp_declared_verb *sidecars,
                        const struct rp_declared *arguments, const struct rp_config *config)
{
    const char *path = arguments->output ? arguments->output : rp_config_index_file(config);
    struct rp_error error;
    if (!path)
        return index_shards(sidecars, arguments, config);
    if (rp_url_is(path)) {
        char *name = rp_url_name(path);
        (void)rp_fail(&error, -RP_E_USAGE, "write it to a file with `-o FILE`, and copy FILE there",
                      "%s: ringpack does not write to stores", name ? name : "the index");
        free(name);
        return rp_cmd_report(&error);
    }
    struct rp_source_spec *specs = rp_stream_sources(config);
    struct rp_index_patterns *patterns = rp_calloc(config->source_count, sizeof *patterns);
    int status = RP_EXIT_TROUBLE;
    if (specs && patterns) {
        for (uint32_t i = 0; i < config->source_count; i++)
            patterns[i] = (struct rp_index_patterns){
                .patterns = (const char *const *)config->sources[i].patterns,
                .count = config->sources[i].pattern_count};
        const struct rp_indexing_options options = {.path = path,
                                                    .sources = specs,
                                                    .patterns = patterns,
                                                    .source_count = config->source_count,
                                                    .index_dir = rp_config_index_dir(config),
                                                    .cache_dir = config->cache_dir};
        status = make(arguments, &options);
    }
    free(specs);
    free(patterns);
    return status;
}
