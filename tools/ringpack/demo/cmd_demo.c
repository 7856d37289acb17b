/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_demo.c — `ringpack demo`: kill and resume a run, and compare, in a minute.
 *
 * First, four ranks take the stream undisturbed for some seconds; the rows that all of them have
 * received are compared later. Then the same stream begins again, and engine and trainers are
 * killed with SIGKILL about half-way. An engine and two ranks resume from the newest checkpoint. At
 * the end the digests of both streams are compared. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "cmd.h"
#include "demo/demo.h"
#include "options.h"

#define SECONDS_STANDARD 6u
#define SECONDS_MAX 3600u
#define TOKENS_LEAST (UINT64_C(20) * 1000 * 1000)
#define CHECKPOINT_STEPS 100u
#define POLL_NS 5000000u

struct demo {
    struct rp_cmd_line line;
    const char *corpus, *python, *dir;
    uint64_t seconds;
    bool verbose;

    struct rp_job job;
    struct rp_child engine;
    char *prefix;
    struct rp_demo_ranks continuous, killed, resumed;
    uint64_t rows; /* rows [0, rows) are compared */
    uint64_t checkpoint_bytes;
    size_t state_bytes;
    double ready_seconds, first_seconds; /* the resume's, counted from the start of the engine */
};

static const struct rp_option options[] = {
    {RP_TEXT("corpus", "PATH", struct demo, corpus),
     .help = "a token file or Megatron prefix (otherwise one is made)"},
    {RP_TEXT("python", "PYTHON", struct demo, python),
     .help = "run half of the trainers in it (otherwise all are in C)"},
    {RP_LOCAL("dir", "DIR", struct demo, dir),
     .help = "make the corpus in DIR, and leave it there"},
    {RP_COUNT("seconds", "N", struct demo, seconds), .least = 1, .most = SECONDS_MAX,
     .help = "length of the undisturbed run (6); the other takes as long"},
    {RP_FLAG("verbose", struct demo, verbose), .letter = 'v',
     .help = "show the output of engines and trainers"},
    {0},
};

/* ---- corpus ---------------------------------------------------------------------------------- */

static int find_corpus(struct demo *demo, struct rp_error *error)
{
    uint64_t tokens = 0, documents = 0, begin_ns = rp_now_ns();
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES];
    /* `convert` locks the folder of its output, and the job has its own locked while it lives */
    char *folder = demo->dir ? rp_asprintf("%s", demo->dir) : rp_job_path(&demo->job, "made");
    int code = folder ? rp_dir_make(folder, error) : 0;
    if (code >= 0 && folder)
        demo->prefix = demo->corpus ? rp_asprintf("%s", demo->corpus)
                                    : rp_asprintf("%s/corpus", folder);
    free(folder);
    if (code < 0)
        return code;
    if (!demo->prefix)
        return rp_fail(error, -ENOMEM, NULL, "out of memory");
    if (!demo->corpus)
        code = rp_demo_make_corpus(&demo->job, demo->prefix, TOKENS_LEAST, error);
    if (code >= 0)
        code = rp_demo_measure_corpus(demo->prefix, &tokens, &documents, error);
    if (code < 0)
        return code;
    printf("corpus       %s tokens in %s documents", rp_cmd_count_text(tokens, a),
           rp_cmd_count_text(documents, b));
    if (!demo->corpus)
        printf(" from the text on this machine, %s",
               rp_cmd_seconds_text((double)(rp_now_ns() - begin_ns) / 1e9, a));
    putchar('\n');
    return 0;
}

/* ---- engine and ranks ------------------------------------------------------------------------ */

static int serve(struct demo *demo, uint32_t world, bool checkpoints, struct rp_error *error)
{
    struct rp_words words = {.count = 0};
    rp_words_add(&words, "--sources=%s", demo->prefix);
    rp_words_add(&words, "--seq-len=%u", RP_DEMO_SEQ_LEN);
    rp_words_add(&words, "--num-epochs=endless");
    rp_words_add(&words, "--batch-size=%u", RP_DEMO_BATCH_ROWS);
    rp_words_add(&words, "--dp-world-size=%u", world);
    rp_words_add(&words, "--global-batch-size=%u", RP_DEMO_STEP_ROWS);
    rp_words_add(&words, "--prefetch-factor=16");
    if (checkpoints) {
        rp_words_add(&words, "--checkpoint-dir=%s/checkpoints", demo->job.dir);
        rp_words_add(&words, "--checkpoint-steps=%u", CHECKPOINT_STEPS);
    }
    int code = rp_job_serve(&demo->job, &demo->engine, &words, error);
    rp_words_free(&words);
    return code < 0 ? code : rp_job_wait_ready(&demo->job, &demo->engine, error);
}

/* Poll the ranks and the engine once. */
static int poll_all(struct demo *demo, struct rp_demo_ranks *ranks, struct rp_error *error)
{
    int code = rp_demo_poll_ranks(ranks, &demo->job, error);
    if (code >= 0 && !rp_child_runs(&demo->engine))
        code = rp_job_explain(&demo->job, &demo->engine, error);
    rp_sleep_ns(POLL_NS);
    return code;
}

static int kill_all(struct demo *demo, struct rp_demo_ranks *ranks, struct rp_error *error)
{
    rp_child_signal(&demo->engine, SIGKILL, true);
    return rp_demo_kill_ranks(ranks, error);
}

static const char *ranks_text(const struct demo *demo, uint32_t world, char text[64])
{
    if (demo->python)
        snprintf(text, 64, "%u ranks (%u C, %u Python)", world, world / 2, world - world / 2);
    else
        snprintf(text, 64, "%u ranks (C; give --python for others)", world);
    return text;
}

/* ---- the three runs -------------------------------------------------------------------------- */

static int run_continuously(struct demo *demo, struct rp_error *error)
{
    char text[64];
    struct rp_demo_ranks *ranks = &demo->continuous;
    *ranks = (struct rp_demo_ranks){.world = RP_DEMO_RANKS_MAX};
    printf("continuous   %s, %u rows of %u tokens a batch\n",
           ranks_text(demo, RP_DEMO_RANKS_MAX, text), RP_DEMO_BATCH_ROWS, RP_DEMO_SEQ_LEN);
    fflush(stdout);
    int code = serve(demo, RP_DEMO_RANKS_MAX, false, error);
    if (code >= 0)
        code = rp_demo_start_ranks(ranks, &demo->job, demo->python, "continuous", UINT64_MAX,
                                   error);
    uint64_t until_ns = UINT64_MAX;
    while (code >= 0 && rp_now_ns() < until_ns) {
        code = poll_all(demo, ranks, error);
        if (until_ns == UINT64_MAX && rp_demo_common_row(ranks) > 0)
            until_ns = rp_now_ns() + demo->seconds * UINT64_C(1000000000);
    }
    if (code < 0)
        return code;
    code = kill_all(demo, ranks, error); /* also reads the rest of the journals */
    demo->rows = rp_demo_common_row(ranks) / RP_DEMO_STEP_ROWS * RP_DEMO_STEP_ROWS;
    return code;
}

static int run_until_killed(struct demo *demo, struct rp_error *error)
{
    char text[64];
    struct rp_demo_ranks *ranks = &demo->killed;
    *ranks = (struct rp_demo_ranks){.world = RP_DEMO_RANKS_MAX};
    printf("again        %s\n", ranks_text(demo, RP_DEMO_RANKS_MAX, text));
    fflush(stdout);
    uint64_t kill_row = demo->rows * (40 + rp_now_ns() % 20) / 100;
    int code = serve(demo, RP_DEMO_RANKS_MAX, true, error);
    if (code >= 0)
        code = rp_demo_start_ranks(ranks, &demo->job, demo->python, "killed", demo->rows, error);
    while (code >= 0 && rp_demo_common_row(ranks) < kill_row)
        code = poll_all(demo, ranks, error);
    if (code >= 0)
        code = kill_all(demo, ranks, error);
    if (code >= 0)
        printf("killed       engine and %u trainers, with SIGKILL, at row %s\n", RP_DEMO_RANKS_MAX,
               rp_cmd_count_text(rp_demo_common_row(ranks), text));
    return code;
}

static int measure_checkpoint(struct demo *demo, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint = NULL;
    struct stat status;
    char *directory = rp_job_path(&demo->job, "checkpoints");
    int code = directory ? rp_checkpoint_newest(&checkpoint, directory, false, error)
                         : rp_fail(error, -ENOMEM, NULL, "out of memory");
    if (code > 0) {
        (void)rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &demo->state_bytes);
        if (stat(rp_checkpoint_path(checkpoint), &status) == 0)
            demo->checkpoint_bytes = (uint64_t)status.st_size;
    }
    rp_checkpoint_close(checkpoint);
    free(directory);
    return code;
}

static int resume(struct demo *demo, struct rp_error *error)
{
    char text[64], row[RP_CMD_TEXT_BYTES];
    struct rp_demo_ranks *ranks = &demo->resumed;
    *ranks = (struct rp_demo_ranks){.world = RP_DEMO_RANKS_MAX / 2};
    int code = measure_checkpoint(demo, error);
    uint64_t begin_ns = rp_now_ns();
    if (code >= 0)
        code = serve(demo, RP_DEMO_RANKS_MAX / 2, true, error);
    demo->ready_seconds = (double)(rp_now_ns() - begin_ns) / 1e9;
    if (code >= 0)
        code = rp_demo_start_ranks(ranks, &demo->job, demo->python, "resumed", demo->rows, error);
    while (code >= 0 && ranks->first_ns == 0)
        code = poll_all(demo, ranks, error);
    if (code < 0)
        return code;
    demo->first_seconds = (double)(ranks->first_ns - begin_ns) / 1e9;
    printf("resumed      %s, from the newest checkpoint, at row %s\n",
           ranks_text(demo, RP_DEMO_RANKS_MAX / 2, text), rp_cmd_count_text(ranks->start_row, row));
    while (code >= 0 && !rp_demo_ranks_done(ranks))
        code = poll_all(demo, ranks, error);
    rp_child_signal(&demo->engine, SIGTERM, true);
    return code;
}

/* ---- report ---------------------------------------------------------------------------------- */

static int report(const struct demo *demo)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], hex[RP_HASH_HEX_BYTES];
    struct rp_hash128 continuous = {0, 0}, resumed = {0, 0};
    uint64_t continuous_rows = 0, resumed_rows = 0, cut = demo->resumed.start_row;
    rp_demo_sum(&demo->continuous, 0, demo->rows, &continuous_rows, &continuous);
    rp_demo_sum(&demo->killed, 0, cut, &resumed_rows, &resumed);
    rp_demo_sum(&demo->resumed, cut, demo->rows, &resumed_rows, &resumed);
    const struct rp_demo_ranks *ranks = &demo->continuous;
    printf("speed        %stok/s at four ranks, fill %.3f %%\n",
           rp_cmd_short_text((double)ranks->tokens / (double)demo->seconds, a),
           100 * (double)ranks->tokens / ((double)ranks->rows * RP_DEMO_SEQ_LEN));
    printf("resume       engine ready in %s, first batch at a trainer after %s\n",
           rp_cmd_seconds_text(demo->ready_seconds, a),
           rp_cmd_seconds_text(demo->first_seconds, b));
    printf("state token  %zu bytes\n", demo->state_bytes);
    printf("checkpoint   %s, with the contents of the rings\n",
           rp_cmd_bytes_text(demo->checkpoint_bytes, a));
    printf("continuous   %s  %s rows\n", rp_hash128_hex(continuous, hex),
           rp_cmd_count_text(continuous_rows, a));
    printf("resumed      %s  %s rows\n", rp_hash128_hex(resumed, hex),
           rp_cmd_count_text(resumed_rows, a));
    bool same = rp_hash128_equal(continuous, resumed) && continuous_rows == demo->rows &&
                resumed_rows == demo->rows;
    printf("resume: %s\n", same ? "identical" : "DIFFERENT");
    return same ? RP_EXIT_FINE : RP_EXIT_DIFFERS;
}

static int play(struct demo *demo, struct rp_error *error)
{
    int code = find_corpus(demo, error);
    if (code >= 0)
        code = run_continuously(demo, error);
    if (code >= 0)
        code = run_until_killed(demo, error);
    return code < 0 ? code : resume(demo, error);
}

int rp_cmd_demo(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "demo",
        .help = "Serve a corpus to four trainers, kill everything in mid-stream, resume with two, "
                "and compare.",
        .notes = "Exit status 0: identical, 1: different, 2: trouble.",
        .options = options};
    struct demo demo = {.seconds = SECONDS_STANDARD, .engine = RP_NO_CHILD};
    struct rp_error error = {0};
    if (rp_cmd_parse(&verb, argc, argv, &demo) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    int code = rp_job_open(&demo.job, NULL, demo.verbose, &error);
    if (code >= 0)
        code = play(&demo, &error);
    int status = code < 0 ? RP_EXIT_TROUBLE : report(&demo);
    rp_child_signal(&demo.engine, SIGKILL, true);
    rp_demo_release_ranks(&demo.continuous);
    rp_demo_release_ranks(&demo.killed);
    rp_demo_release_ranks(&demo.resumed);
    rp_job_close(&demo.job);
    free(demo.prefix);
    return code < 0 ? rp_cmd_report(&error) : status;
}
