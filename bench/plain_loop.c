/* SPDX-License-Identifier: Apache-2.0 */
/* plain_loop.c — the baseline of the engine: one core, and nothing between a corpus and its
 * batches.
 *
 *     ringpack_loop pack,concat sources=c.bin seq_len=4096 batch_size=8 profile=hf
 *     ringpack_loop seek sources=c.bin seq_len=4096 batch_size=8 row=100000 state=FILE
 *
 * One process, one thread, private memory on huge pages; the token files are read into it first,
 * or, with `mapped=1`, mapped from the page cache. The keys are the same as of `ringpack serve`, so
 * both have the same task. Each stage goes over the whole stream once:
 *
 *     pack     the plain loop: plan, then widen every document into a batch with the sections of
 *              the profile (loop.h); `slots` batches are filled in turn (1: it stays in the cache)
 *     slices   pack, for so long as standard input says (slice.h)
 *     concat   the same with packing: concat
 *     digest   pack, not timed, with the digest that `ringpack read --digest` prints
 *     seek     plan up to `row`, then write the state token to the file `state`
 *
 * It is compiled for this very machine. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/file.h"
#include "loop.h"
#include "slice.h"

#define SECOND_NS 1e9

struct result {
    double seconds, cpu_seconds;
    uint64_t tokens, rows, documents;
    struct rp_hash128 digest;
};

static double cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / SECOND_NS;
}

/* A stage begins; stop_clock turns the time in `result` into the elapsed one. */
static void start_clock(struct result *result)
{
    result->cpu_seconds = cpu_now();
    result->seconds = (double)rp_now_ns() / SECOND_NS;
}

static void stop_clock(struct result *result)
{
    result->seconds = (double)rp_now_ns() / SECOND_NS - result->seconds;
    result->cpu_seconds = cpu_now() - result->cpu_seconds;
}

static struct rp_plan *open_plan(const struct bench *b)
{
    struct rp_error error;
    struct rp_plan *plan;
    check(rp_stream_open_plan(&plan, &b->config, b->corpus, &error), &error);
    return plan;
}

static void close_plan(struct rp_plan *plan, struct result *result)
{
    struct rp_plan_counts counts;
    rp_plan_counts(plan, &counts);
    result->documents = counts.documents;
    rp_plan_close(plan);
}

static struct result run_pack(const struct bench *b, bool digest)
{
    struct result result = {0};
    struct loop loop = {.plan = open_plan(b)};
    start_clock(&result);
    while (pack_batch(b, &loop, digest))
        ;
    stop_clock(&result);
    result.tokens = loop.tokens;
    result.rows = loop.rows;
    result.digest = loop.digest;
    close_plan(loop.plan, &result);
    return result;
}

static void run_slices(const struct bench *b)
{
    struct loop loop = {.plan = open_plan(b)};
    struct slice slice;
    while (slice_begin(&slice)) {
        uint64_t tokens = loop.tokens, rows = loop.rows;
        while (slice_lasts(&slice))
            if (!pack_batch(b, &loop, false))
                refuse("slices need num_epochs=endless");
        slice_end(&slice);
        slice.tokens = loop.tokens - tokens;
        slice.rows = loop.rows - rows;
        slice_report(&slice);
    }
    rp_plan_close(loop.plan);
}

/* ---- the program ----------------------------------------------------------------------------- */

struct arguments {
    const char *stages, *state;
    uint64_t row, slots, mapped;
    char **keys; /* key=value, of the config */
    int key_count;
};

static void read_config(struct rp_config *config, const struct arguments *a, const char *packing)
{
    struct rp_error error;
    rp_config_init(config);
    for (int i = 0; i < a->key_count; i++) {
        char key[64];
        const char *equals = strchr(a->keys[i], '=');
        if (!equals || (size_t)(equals - a->keys[i]) >= sizeof key)
            refuse("expected key=value");
        snprintf(key, sizeof key, "%.*s", (int)(equals - a->keys[i]), a->keys[i]);
        check(rp_config_set(config, key, equals + 1, &error), &error);
    }
    if (packing)
        check(rp_config_set(config, "packing", packing, &error), &error);
    check(rp_config_finish(config, &error), &error);
}

static json_t *as_json(const struct result *r, const struct bench *b)
{
    return json_pack("{s:f, s:f, s:I, s:I, s:I, s:f, s:f}", "seconds", r->seconds, "cpu_seconds",
                     r->cpu_seconds, "tokens", (json_int_t)r->tokens, "rows", (json_int_t)r->rows,
                     "documents", (json_int_t)r->documents, "tokens_per_second",
                     (double)r->tokens / r->seconds, "fill",
                     r->rows ? (double)r->tokens / ((double)r->rows * b->config.seq_len) : 1.0);
}

static void seek(const struct bench *b, const struct arguments *a, json_t *report)
{
    struct rp_error error;
    struct result result = {0};
    struct rp_plan *plan = open_plan(b);
    void *token = malloc(rp_plan_state_bytes_max(plan));
    start_clock(&result);
    check(rp_plan_seek(plan, a->row, &error), &error);
    stop_clock(&result);
    if (!token || !a->state)
        refuse("seek needs state=FILE");
    size_t bytes = rp_plan_save(plan, token);
    check(rp_file_replace(a->state, token, bytes, &error), &error);
    close_plan(plan, &result);
    free(token);
    json_object_set_new(report, "seek",
                        json_pack("{s:I, s:f, s:I, s:I}", "row", (json_int_t)a->row, "seconds",
                                  result.seconds, "documents", (json_int_t)result.documents,
                                  "state_bytes", (json_int_t)bytes));
}

static void run_stage(struct bench *b, const char *stage, const struct arguments *a, json_t *report)
{
    char digest[RP_HASH_HEX_BYTES];
    struct result result;
    if (!strcmp(stage, "seek")) {
        seek(b, a, report);
        return;
    }
    if (!b->shards)
        load_shards(b);
    if (!strcmp(stage, "slices")) {
        make_batches(b);
        run_slices(b);
        exit(0);
    } else if (!strcmp(stage, "pack") || !strcmp(stage, "concat") || !strcmp(stage, "digest")) {
        if (!b->batches)
            make_batches(b);
        struct bench other = *b;
        if (!strcmp(stage, "concat")) {
            read_config(&other.config, a, "concat");
            other.config.max_docs_per_row = b->max_docs_per_row; /* as the batches are cut */
        }
        result = run_pack(&other, !strcmp(stage, "digest"));
    } else {
        refuse("the stages are pack, concat, digest, slices and seek");
    }
    json_t *entry = as_json(&result, b);
    if (!strcmp(stage, "digest"))
        json_object_set_new(entry, "digest", json_string(rp_hash128_hex(result.digest, digest)));
    json_object_set_new(report, stage, entry);
}

int main(int argc, char **argv)
{
    struct arguments a = {.slots = 1, .stages = argc > 1 ? argv[1] : "", .keys = argv + 2};
    for (int i = 2; i < argc; i++) {
        if (!strncmp(argv[i], "row=", 4))
            a.row = strtoull(argv[i] + 4, NULL, 10);
        else if (!strncmp(argv[i], "slots=", 6))
            a.slots = strtoull(argv[i] + 6, NULL, 10);
        else if (!strncmp(argv[i], "mapped=", 7))
            a.mapped = strtoull(argv[i] + 7, NULL, 10);
        else if (!strncmp(argv[i], "state=", 6))
            a.state = argv[i] + 6;
        else
            a.keys[a.key_count++] = argv[i];
    }
    struct bench b = {.batch_count = rp_max_u64(a.slots, 1), .mapped = a.mapped != 0};
    struct rp_error error;
    read_config(&b.config, &a, NULL);
    check(rp_stream_open_corpus(&b.corpus, &b.config, false, &error), &error);
    struct rp_plan *plan = open_plan(&b);
    b.max_docs_per_row = rp_plan_max_docs_per_row(plan);
    rp_plan_close(plan);
    json_t *report = json_object();
    char *stages = strdup(a.stages), *rest = stages;
    for (char *stage; (stage = strsep(&rest, ",")) != NULL;)
        run_stage(&b, stage, &a, report);
    json_dumpf(report, stdout, JSON_INDENT(2));
    putchar('\n');
    return 0;
}
