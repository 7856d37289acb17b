/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_verify.c — `ringpack verify`: a validation before a long training.
 *
 * An undisturbed run gives the hash of every row. A second run is killed and resumed K times, with
 * other numbers of ranks, readers and packers each time, and must give the same rows, each once and
 * in order. The report names the first row that differs. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/random.h>

#include "cmd.h"
#include "stream.h"
#include "verify/verify.h"

#define KILLS_STANDARD 20u
#define KILLS_MAX 1000000u
#define ROWS_STANDARD 16384u

struct arguments {
    struct rp_cmd_line line;
    struct rp_verify verify;
    bool json;
};

static const struct rp_option own_options[] = {
    {RP_COUNT("kills", "K", struct arguments, verify.kills), .least = 1, .most = KILLS_MAX,
     .help = "kill something K times (20)"},
    {RP_COUNT("rows", "N", struct arguments, verify.rows), .least = 1,
     .help = "compare rows 0 to N-1 (16384, or the whole stream if shorter)"},
    {RP_COUNT("random", "S", struct arguments, verify.seed), .least = 1,
     .help = "seed of the kills and their times (otherwise drawn, and printed)"},
    {RP_FLAG("json", struct arguments, json), .help = "print JSON"},
    {RP_FLAG("verbose", struct arguments, verify.verbose), .letter = 'v',
     .help = "report every kill, and show the output of engines and trainers"},
    {RP_TEXT("binary", "PATH", struct arguments, verify.binary)}, /* the program that serves */
    {RP_TEXT("points", "FILE", struct arguments, verify.points)}, /* see tests/kill */
    {0},
};

/* ---- report ---------------------------------------------------------------------------------- */

static bool identical(const struct rp_verify *v)
{
    return v->rows_different + v->rows_misplaced + v->duplicates + v->skips + v->states_different +
                   v->checkpoints_lost + v->files_left ==
               0 &&
           rp_hash128_equal(v->digest, v->reference.digest);
}

/* The fragment that the plan has at the place of the first difference. False without one. */
static bool find_fragment(struct rp_verify *v, struct rp_fragment *fragment)
{
    struct rp_error error;
    struct rp_row row;
    if (rp_plan_seek(v->plan, v->first.row, &error) < 0 ||
        rp_plan_next(v->plan, &row, &error) <= 0 || v->first.fragment >= row.count)
        return false;
    *fragment = row.fragments[v->first.fragment];
    return true;
}

static void print_difference(struct rp_verify *v)
{
    const struct rp_difference *d = &v->first;
    struct rp_fragment fragment;
    printf("first difference: row %" PRIu64 ", rank %u, life %" PRIu64 ", fragment %u: ", d->row,
           d->rank, d->life, d->fragment);
    if (d->sides_alone)
        printf("its side columns differ\n");
    else if (d->labels_alone)
        printf("the labels of its %u tokens differ\n", d->expected_length);
    else if (d->expected_length == d->found_length && d->expected_length > 0)
        printf("%u tokens that differ\n", d->expected_length);
    else if (d->expected_length == d->found_length)
        printf("the row is right, but its place is not\n");
    else
        printf("expected %u tokens, found %u\n", d->expected_length, d->found_length);
    if (find_fragment(v, &fragment))
        printf("  the plan has there: source %s, document %" PRIu64 ", tokens %" PRIu64
               " to %" PRIu64 "\n",
               rp_source_name(rp_corpus_source(v->corpus, fragment.source)), fragment.document,
               fragment.offset, fragment.offset + fragment.length - 1);
    else
        printf("  the plan has no fragment there\n");
}

static void print_text(struct rp_verify *v)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], hex[RP_HASH_HEX_BYTES];
    printf("continuous run   %s rows, %s\n", rp_cmd_count_text(v->rows, a),
           rp_cmd_seconds_text(v->reference_seconds, b));
    printf("kills            %" PRIu64 " in %" PRIu64 " lives and %" PRIu64
           " pass%s, %s; seed %" PRIu64 "\n",
           v->kill_count, v->lives, v->passes, v->passes == 1 ? "" : "es",
           rp_cmd_seconds_text(v->lives_seconds, a), v->seed);
    for (enum rp_kill kind = 0; kind < RP_KILL_COUNT; kind++)
        if (kind != RP_KILL_ITSELF || v->points)
            printf("  %-34s%6" PRIu64 "\n", rp_kill_name(kind), v->kill_counts[kind]);
    printf("stopped          %" PRIu64 " processes for some milliseconds\n", v->stops);
    printf("rows compared    %s, of which delivered again after a kill: %s\n",
           rp_cmd_count_text(v->rows_compared, a), rp_cmd_count_text(v->rows_redelivered, b));
    printf("differences      %" PRIu64 " rows, %" PRIu64 " out of place, %" PRIu64
           " state tokens\n",
           v->rows_different, v->rows_misplaced, v->states_different);
    printf("committed stream %" PRIu64 " duplicates, %" PRIu64 " skips", v->duplicates, v->skips);
    if (v->skips)
        printf(", the first from row %" PRIu64 " to %" PRIu64, v->first_skip, v->last_skip);
    putchar('\n');
    printf("left behind      %" PRIu64 " files, %" PRIu64 " saved checkpoints not used\n",
           v->files_left, v->checkpoints_lost);
    if (v->has_difference)
        print_difference(v);
    printf("continuous       %s\n", rp_hash128_hex(v->reference.digest, hex));
    printf("resumed          %s\n", rp_hash128_hex(v->digest, hex));
    printf("verify: %s\n", identical(v) ? "identical" : "DIFFERENT");
}

static json_t *difference_object(struct rp_verify *v)
{
    const struct rp_difference *d = &v->first;
    struct rp_fragment fragment;
    if (!v->has_difference)
        return json_null();
    json_t *object = json_pack(
        "{sI sI sI sI sI sI sb sb}", "row", (json_int_t)d->row, "rank", (json_int_t)d->rank, "life",
        (json_int_t)d->life, "fragment", (json_int_t)d->fragment, "expected_tokens",
        (json_int_t)d->expected_length, "found_tokens", (json_int_t)d->found_length, "labels_alone",
        d->labels_alone, "sides_alone", d->sides_alone);
    if (find_fragment(v, &fragment)) {
        const struct rp_source *source = rp_corpus_source(v->corpus, fragment.source);
        json_object_set_new(object, "source", rp_cmd_json_text(rp_source_name(source)));
        json_object_set_new(object, "document", json_integer((json_int_t)fragment.document));
        json_object_set_new(object, "offset", json_integer((json_int_t)fragment.offset));
    }
    return object;
}

static json_t *skips_object(const struct rp_verify *v)
{
    return v->skips ? json_pack("[I, I]", (json_int_t)v->first_skip, (json_int_t)v->last_skip)
                    : json_null();
}

static void print_json(struct rp_verify *v)
{
    char continuous[RP_HASH_HEX_BYTES], resumed[RP_HASH_HEX_BYTES];
    json_t *kinds = json_object();
    for (enum rp_kill kind = 0; kind < RP_KILL_COUNT; kind++)
        json_object_set_new(kinds, rp_kill_name(kind),
                            json_integer((json_int_t)v->kill_counts[kind]));
    json_t *report = json_pack(
        "{sb sI sI so sI sI sI sI sI sI sI sI sI so sI sI sI so ss ss sI}", "identical",
        identical(v), "rows", (json_int_t)v->rows, "kills", (json_int_t)v->kill_count,
        "kills_by_kind", kinds, "lives", (json_int_t)v->lives, "passes", (json_int_t)v->passes,
        "rows_compared", (json_int_t)v->rows_compared, "rows_redelivered",
        (json_int_t)v->rows_redelivered, "rows_different", (json_int_t)v->rows_different,
        "rows_misplaced", (json_int_t)v->rows_misplaced, "states_different",
        (json_int_t)v->states_different, "duplicates", (json_int_t)v->duplicates, "skips",
        (json_int_t)v->skips, "first_skips", skips_object(v), "stops", (json_int_t)v->stops,
        "checkpoints_lost", (json_int_t)v->checkpoints_lost, "files_left",
        (json_int_t)v->files_left, "first_difference", difference_object(v), "digest_continuous",
        rp_hash128_hex(v->reference.digest, continuous), "digest_resumed",
        rp_hash128_hex(v->digest, resumed), "random", (json_int_t)v->seed);
    rp_cmd_print_json(report);
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Where seq_len changes at a stage, a run ends, and a trainer that has reached the next stage
 * cannot return to its engine. So the last step before it is not compared. */
static int leave_stage_end(struct rp_verify *v, struct rp_error *error)
{
    if (rp_plan_version(v->plan) == 1)
        return 0;
    struct rp_plan *plan = NULL;
    struct rp_row row;
    int code = rp_stream_open_plan(&plan, v->config, v->corpus, error), more = code >= 0;
    while (more > 0 && rp_plan_row(plan) < v->rows)
        more = rp_plan_next(plan, &row, error);
    code = code < 0 ? code : more;
    if (code == 0 && rp_plan_is_stage_end(plan)) {
        uint64_t end = rp_plan_row(plan);
        v->rows = end - rp_min_u64(end - 1, v->config->global_batch_size);
        fprintf(stderr,
                "verify: a stage with another seq_len begins at row %" PRIu64
                ", where a run ends: rows 0 to %" PRIu64 " are compared\n",
                end, v->rows - 1);
    }
    rp_plan_close(plan);
    return code;
}

static int check_deals(const struct rp_config *config, struct rp_error *error)
{
    for (uint32_t i = 0; i < config->stages.count; i++)
        if (rp_verify_is_of_job(&config->stages.stages[i].deal))
            return rp_fail(error, -RP_E_CONFIG,
                           "write `tier` into the deal of the stage: `ringpack plan` lists it",
                           "the deal of stage %" PRIu32
                           " follows from the ranks of the job, and verify runs many jobs",
                           i);
    return 0;
}

static int run(struct rp_verify *v, struct rp_error *error)
{
    v->rows = v->rows ? v->rows : ROWS_STANDARD;
    int code = leave_stage_end(v, error);
    while (rp_plan_skips(v->plan, v->rows, 1)) /* a trainer ends at a batch from this row on */
        v->rows++;
    if (code >= 0)
        code = rp_job_open(&v->job, v->binary, v->verbose, error);
    if (code >= 0)
        code = rp_verify_continuous_run(v, error);
    if (code < 0)
        return code;
    v->rows = rp_min_u64(v->rows, v->reference.last_row);
    return v->rows ? rp_verify_killed_run(v, error)
                   : rp_fail(error, -RP_E_EMPTY, "see `ringpack plan`", "the stream has no row");
}

static int verify(void *argument, const struct rp_config *config)
{
    struct arguments *arguments = argument;
    struct rp_error error = {0};
    struct rp_verify *v = &arguments->verify;
    v->arguments = &arguments->line;
    v->config = config;
    while (v->seed == 0)
        if (getrandom(&v->seed, 4, 0) != 4) /* short enough to be typed */
            v->seed = 1;
    int code = check_deals(config, &error);
    if (code >= 0)
        code = rp_stream_open_corpus(&v->corpus, config, false, &error);
    if (code >= 0)
        code = rp_stream_open_plan(&v->plan, config, v->corpus, &error);
    if (code >= 0)
        v->reference.plan = v->plan;
    if (code >= 0)
        code = run(v, &error);
    rp_job_close(&v->job);
    if (code >= 0 && arguments->json)
        print_json(v);
    else if (code >= 0)
        print_text(v);
    rp_plan_close(v->plan);
    rp_corpus_close(v->corpus);
    rp_reference_free(&v->reference);
    if (code < 0) {
        if (v->kill_count)
            fprintf(stderr, "verify: after %" PRIu64 " kills, with --random %" PRIu64 "\n",
                    v->kill_count, v->seed);
        return rp_cmd_report(&error);
    }
    return identical(v) ? RP_EXIT_FINE : RP_EXIT_DIFFERS;
}

int rp_cmd_verify(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "verify",
        .help = "Run a config twice, once undisturbed and once killed and resumed again and again "
                "with changing ranks, readers and packers, and compare every row.",
        .notes = "Exit status 0: identical, 1: a row differs, was skipped or came twice, 2: "
                 "trouble.",
        .options = own_options,
        .takes = RP_TAKES_CONFIG,
        .run = verify,
    };
    struct arguments arguments = {.verify.kills = KILLS_STANDARD};
    return rp_cmd_config_run(&verb, &arguments, argc, argv);
}
