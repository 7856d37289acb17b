/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_read.c — `ringpack read`: read the batches of one rank as a trainer does, and report them.
 *
 * Digest, log and state token of a batch are written before its lease is released, so that after a
 * kill the log has every row that the engine counts as consumed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/out_dir.h"
#include "base/text.h"
#include "read_row.h"
#include "read_wait.h"
#include "cmd.h"
#include "cmd_state.h"
#include "interrupt.h"
#include "options.h"
#include "ringpack/client.h"

#define CHECK_NS 200000000 /* how often a waiting drain checks for Ctrl-C */
#define SECOND_NS 1000000000u
#define SILENCE_NS (RP_READ_SILENCE_S * (uint64_t)SECOND_NS)
#define DIGEST_STEPS 100u /* between two entries of --digest-log */

struct arguments {
    struct rp_cmd_line line;
    struct rp_client_options client;
    const char *state_path, *save_path, *log_path;
    uint64_t batches, save_every, hold;
    bool digest, digest_steps_given, print_rows, json;
};

/* At least 1 ns, because the library takes 0 for its default. */
static bool take_seconds(const char *text, void *place)
{
    uint64_t seconds;
    if (!rp_text_count(text, &seconds) || seconds > UINT32_MAX)
        return false;
    *(uint64_t *)place = seconds ? seconds * SECOND_NS : 1;
    return true;
}

static const struct rp_option options[] = {
    {RP_COUNT("rank", "R", struct arguments, client.rank), .help = "the rank to read (default 0)"},
    {RP_COUNT("replica", "P", struct arguments, client.replica),
     .help = "be this replica of the rank (default 0)"},
    {RP_COUNT("world", "N", struct arguments, client.world),
     .help = "refuse an engine with another dp_world_size"},
    {RP_COUNT("batches", "N", struct arguments, batches), .least = 1,
     .help = "stop after N batches (default: at the end of the stream)"},
    {RP_TEXT("state", "FILE", struct arguments, state_path),
     .help = "continue at the state token, or checkpoint, in FILE"},
    {RP_TEXT("save-state", "FILE", struct arguments, save_path),
     .help = "at the end, write the state token after the last batch to FILE"},
    {RP_COUNT("save-every", "N", struct arguments, save_every),
     .help = "also write the state token after every N batches"},
    {RP_FLAG("digest", struct arguments, digest), .help = "compute the digest of the rows"},
    {RP_LOCAL("digest-log", "FILE", struct arguments, client.digest_log),
     .help = "append digests of the rank's rows to FILE, for `ringpack audit`"},
    {RP_COUNT("digest-steps", "N", struct arguments, client.digest_steps), .most = UINT32_MAX,
     .given = offsetof(struct arguments, digest_steps_given),
     .help = "every N steps (default 100)"},
    {RP_LOCAL("rows-log", "FILE", struct arguments, log_path),
     .help = "append a line per row: row, fragments, tokens, hash"},
    {RP_FLAG("print-rows", struct arguments, print_rows),
     .help = "print a line per row, with its first ids"},
    {RP_COUNT("hold", "N", struct arguments, hold), .most = UINT32_MAX,
     .help = "keep N leases before returning the oldest"},
    {RP_TAKE("timeout", "S", struct arguments, client.connect_timeout_ns, take_seconds),
     .expected = "a whole number", .help = "seconds to wait for the engine (default 10)"},
    {RP_TAKE("restart-timeout", "S", struct arguments, client.restart_timeout_ns, take_seconds),
     .expected = "a whole number",
     .help = "seconds to wait for the successor of a dead engine (default 60)"},
    {RP_FLAG("json", struct arguments, json), .help = "print JSON"},
    {0},
};

/* Options that need another one. */
static int check(void *argument)
{
    const struct arguments *a = argument;
    if (a->save_every && !a->save_path)
        return rp_cmd_misuse("read", "--save-every needs --save-state");
    if (a->digest_steps_given && !a->client.digest_log)
        return rp_cmd_misuse("read", "--digest-steps needs --digest-log");
    return RP_EXIT_FINE;
}

/* ---- one batch ------------------------------------------------------------------------------- */

struct drain {
    const struct arguments *arguments;
    struct rp_client *client;
    FILE *log;
    struct rp_hash128 digest, labelled;
    bool has_labels;
    uint64_t begin_ns, first_ns, last_ns; /* start, first batch, last batch */
    struct rp_batch *held;                /* [hold] oldest first */
    uint64_t held_count;
    bool ended, interrupted;
};

static void note_row(struct drain *drain, const struct rp_cmd_row *row)
{
    char hash[RP_HASH_HEX_BYTES];
    if (row->info.fragments)
        drain->digest = rp_hash128_sum(drain->digest, rp_row_digest(row->planned, row->hash));
    if (drain->log)
        fprintf(drain->log, "%" PRIu64 " %" PRIu32 " %" PRIu32 " %s\n", row->info.row,
                row->info.fragments, row->info.tokens, rp_hash128_hex(row->hash, hash));
    if (drain->arguments->print_rows)
        rp_cmd_row_print(row);
}

static int save_state(const struct drain *drain, struct rp_error *error)
{
    size_t bytes = rp_client_state(drain->client, NULL, 0);
    void *state = malloc(bytes + 1);
    if (!state)
        return rp_fail(error, -ENOMEM, NULL, "the state token: out of memory");
    rp_client_state(drain->client, state, bytes);
    int code = rp_file_replace(drain->arguments->save_path, state, bytes, error);
    free(state);
    return code;
}

static int note_batch(struct drain *drain, const struct rp_batch *batch, uint64_t count,
                      struct rp_error *error)
{
    const struct arguments *a = drain->arguments;
    const struct rp_geometry *g = rp_client_geometry(drain->client);
    for (uint32_t i = 0; (a->digest || drain->log || a->print_rows) && i < batch->rows; i++) {
        struct rp_cmd_row row = rp_cmd_row_view(g, batch, i);
        note_row(drain, &row);
    }
    uint64_t sum[2] = {drain->labelled.low, drain->labelled.high};
    if (a->digest && rp_batch_labelled_digest(g, batch, sum, NULL) == 0) {
        drain->labelled = (struct rp_hash128){sum[0], sum[1]};
        drain->has_labels = true;
    }
    if (drain->log && fflush(drain->log) != 0)
        return rp_fail(error, -errno, NULL, "%s: %s", a->log_path, strerror(errno));
    return a->save_every && count % a->save_every == 0 ? save_state(drain, error) : 0;
}

/* Hold the newest `hold` leases, and release the one before them. */
static void hold_batch(struct drain *drain, const struct rp_batch *batch)
{
    uint64_t hold = drain->arguments->hold;
    struct rp_batch oldest = *batch;
    if (drain->held_count < hold) {
        drain->held[drain->held_count++] = *batch;
        return;
    }
    if (hold > 0) {
        oldest = drain->held[0];
        memmove(drain->held, drain->held + 1, (hold - 1) * sizeof *drain->held);
        drain->held[hold - 1] = *batch;
    }
    rp_client_release(drain->client, &oldest);
}

/* ---- all batches ----------------------------------------------------------------------------- */

/* Report once that no batch comes. The reason may be another rank that is not attached, because
 * ranks advance together. */
static void note_silence(const struct drain *drain, struct rp_cmd_progress *progress, bool *said)
{
    uint64_t since_ns = rp_max_u64(drain->begin_ns, drain->last_ns);
    if (*said || rp_now_ns() - since_ns < SILENCE_NS)
        return;
    *said = true;
    const struct rp_client_options *client = &drain->arguments->client;
    bool shown = progress->shown;
    rp_cmd_progress_end(progress);
    progress->shown = shown;
    fprintf(stderr, "ringpack: no batch for %u s: `ringpack stat %s%s%s` shows what it waits for\n",
            RP_READ_SILENCE_S, RP_TEXT_SHELL(client->run), client->run_dir ? " --run-dir " : "",
            client->run_dir ? RP_TEXT_SHELL(client->run_dir) : "");
}

static int drain_all(struct drain *drain, struct rp_error *error)
{
    const struct arguments *a = drain->arguments;
    struct rp_cmd_progress progress;
    struct rp_batch batch = {.struct_size = sizeof batch};
    uint64_t tokens = 0;
    bool silence_said = false;
    int code = 0;
    rp_cmd_progress_begin(&progress, "tokens", false);
    for (uint64_t count = 0; code >= 0 && !(a->batches && count == a->batches);) {
        if (rp_interrupted()) {
            drain->interrupted = true;
            break;
        }
        code = rp_client_next(drain->client, CHECK_NS, &batch, error);
        if (code == RP_NEXT_END) {
            drain->ended = true;
            break;
        }
        if (code != RP_NEXT_BATCH) {
            note_silence(drain, &progress, &silence_said);
            continue;
        }
        drain->last_ns = rp_now_ns();
        if (count++ == 0)
            drain->first_ns = drain->last_ns;
        code = note_batch(drain, &batch, count, error);
        if (code >= 0) /* otherwise its lease is not released, and the next trainer gets it again */
            hold_batch(drain, &batch);
        tokens += batch.tokens_real;
        rp_cmd_progress(&progress, tokens, 0);
    }
    rp_cmd_progress_end(&progress);
    return code < 0 ? code : 0;
}

/* The delivered batches in numbers. */
struct summary {
    struct rp_client_counts counts;
    uint64_t next_row;
    double seconds, first_seconds, tokens_per_second, fill;
    char digest[RP_HASH_HEX_BYTES], labelled[RP_HASH_HEX_BYTES];
};

static struct summary summarise(const struct drain *drain)
{
    struct summary s = {.counts.struct_size = sizeof s.counts,
                        .next_row = rp_client_next_row(drain->client)};
    const struct rp_geometry *g = rp_client_geometry(drain->client);
    rp_client_counts(drain->client, &s.counts);
    if (s.counts.batches) {
        s.first_seconds = (double)(drain->first_ns - drain->begin_ns) / SECOND_NS;
        s.seconds = (double)(drain->last_ns - drain->begin_ns) / SECOND_NS;
        s.tokens_per_second = s.seconds > 0 ? (double)s.counts.tokens / s.seconds : 0;
        s.fill = (double)s.counts.tokens / ((double)s.counts.rows * g->seq_len);
    }
    rp_hash128_hex(drain->digest, s.digest);
    rp_hash128_hex(drain->labelled, s.labelled);
    return s;
}

static void print_json(const struct drain *drain, const struct summary *s)
{
    const struct arguments *a = drain->arguments;
    json_t *object = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:I, s:f, s:I, s:b, s:b}", "run",
        a->client.run, "rank", (json_int_t)a->client.rank, "batches", (json_int_t)s->counts.batches,
        "rows", (json_int_t)s->counts.rows, "tokens", (json_int_t)s->counts.tokens, "next_row",
        (json_int_t)s->next_row, "seconds", s->seconds, "first_batch_seconds", s->first_seconds,
        "tokens_per_second", s->tokens_per_second, "fill", s->fill, "waits",
        (json_int_t)s->counts.waits, "wait_seconds", (double)s->counts.wait_ns / SECOND_NS,
        "reattaches", (json_int_t)s->counts.reattaches, "ended", drain->ended, "interrupted",
        drain->interrupted);
    if (a->digest)
        json_object_set_new(object, "digest", json_string(s->digest));
    if (drain->has_labels)
        json_object_set_new(object, "labelled_digest", json_string(s->labelled));
    rp_cmd_print_json(object);
}

static void print_text(const struct drain *drain, const struct summary *s)
{
    char batches[RP_CMD_TEXT_BYTES], rows[RP_CMD_TEXT_BYTES], tokens[RP_CMD_TEXT_BYTES];
    char seconds[RP_CMD_TEXT_BYTES], rate[RP_CMD_TEXT_BYTES], waited[RP_CMD_TEXT_BYTES];
    const char *how = drain->ended         ? "the end of the stream"
                      : drain->interrupted ? "interrupted"
                                           : "stopped";
    printf("run `%s`, rank %" PRIu32 ": %s\n", drain->arguments->client.run,
           drain->arguments->client.rank, how);
    printf("  %-16s%s batches, %s rows, %s tokens\n", "delivered",
           rp_cmd_count_text(s->counts.batches, batches), rp_cmd_count_text(s->counts.rows, rows),
           rp_cmd_count_text(s->counts.tokens, tokens));
    printf("  %-16s%s tokens/s over %s, first batch after %s\n", "speed",
           rp_cmd_short_text(s->tokens_per_second, rate), rp_cmd_seconds_text(s->seconds, seconds),
           rp_cmd_seconds_text(s->first_seconds, waited));
    printf("  %-16s%.3f %%\n", "fill", 100 * s->fill);
    printf("  %-16s%s, %s in all\n", "waits", rp_cmd_count_text(s->counts.waits, batches),
           rp_cmd_seconds_text((double)s->counts.wait_ns / SECOND_NS, waited));
    printf("  %-16s%s\n", "reattaches", rp_cmd_count_text(s->counts.reattaches, batches));
    printf("  %-16s%s\n", "next row", rp_cmd_count_text(s->next_row, rows));
    if (drain->arguments->digest)
        printf("  %-16s%s\n", "digest", s->digest);
    if (drain->has_labels)
        printf("  %-16s%s\n", "labelled digest", s->labelled);
}

/* A token that could not be written after hours of batches would be lost. */
static int try_save_path(const char *path, struct rp_error *error)
{
    struct rp_new_file trial;
    struct stat found;
    if (stat(path, &found) < 0 && errno != ENOENT)
        return rp_file_fail(error, path, "write the state token (--save-state)");
    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode))
        return rp_fail(error, -EISDIR, NULL,
                       "--save-state %s: expected a file for the state token, found a directory",
                       path);
    int code = rp_new_file_open(&trial, path, error);
    if (code == 0)
        rp_new_file_discard(&trial);
    return code < 0 ? rp_fail_context(error, code, "--save-state") : 0;
}

static int open_files(struct drain *drain, char **state, struct rp_client_options *client,
                      struct rp_error *error)
{
    const struct arguments *a = drain->arguments;
    int log = a->log_path
                  ? rp_out_file_open(a->log_path, O_WRONLY | O_APPEND | O_CREAT, 0666, error)
                  : 0;
    if (log < 0)
        return log;
    if (a->log_path && !(drain->log = fdopen(log, "a")))
        return rp_fail(error, -errno, NULL, "%s: %s", a->log_path, strerror(errno));
    int code = a->save_path ? try_save_path(a->save_path, error) : 0;
    if (code < 0 || !a->state_path)
        return code;
    code = rp_cmd_read_state(a->state_path, state, &client->state_bytes, error);
    client->state = *state;
    return code;
}

static int start(struct drain *drain, const struct rp_client_options *client,
                 struct rp_error *error)
{
    uint64_t hold = drain->arguments->hold;
    int code = rp_cmd_attach(&drain->client, client, error);
    if (code < 0)
        return code;
    uint32_t slots = rp_client_geometry(drain->client)->slots;
    if (hold >= slots)
        return rp_fail(error, -RP_E_USAGE,
                       "hold fewer, or give the engine a larger prefetch_factor",
                       "--hold %" PRIu64 ": the batch ring has %" PRIu32
                       " slots, so at most %" PRIu32 " leases can be kept",
                       hold, slots, slots - 1);
    drain->held = rp_calloc(hold, sizeof *drain->held);
    return drain->held ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory");
}

/* The summary is also printed after a failure, because delivered batches are valid. */
static int finish(struct drain *drain, int code, struct rp_error *error)
{
    struct rp_error second;
    struct summary summary = summarise(drain);
    if (drain->arguments->json)
        print_json(drain, &summary);
    else
        print_text(drain, &summary);
    if (drain->arguments->save_path && save_state(drain, code < 0 ? &second : error) < 0 &&
        code == 0)
        code = error->code;
    return code;
}

static int read_rank(const struct arguments *arguments)
{
    struct rp_error error = {0};
    struct drain drain = {.arguments = arguments, .begin_ns = rp_now_ns()};
    struct rp_client_options client = arguments->client;
    char *state = NULL;
    int code = open_files(&drain, &state, &client, &error);
    if (code >= 0)
        code = start(&drain, &client, &error);
    if (code >= 0)
        code = finish(&drain, drain_all(&drain, &error), &error);
    for (uint64_t i = 0; i < drain.held_count; i++)
        rp_client_release(drain.client, &drain.held[i]);
    rp_client_detach(drain.client);
    if (drain.log)
        fclose(drain.log); /* flushed after each batch */
    free(drain.held);
    free(state);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_read(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "read",
        .usage = "[RUN]",
        .help = "Read the batches of one rank as a trainer does, and report tokens/s, waits and a "
                "digest of the rows.",
        .notes = "The rank is attached, and its rows are consumed. Ctrl-C ends the verb with the "
                 "report, and at once while no engine runs. `attach` is another name of it.",
        .options = options,
        .takes = RP_TAKES_RUN,
        .words_most = 1,
        .check = check};
    struct arguments arguments = {
        .client = {.struct_size = sizeof arguments.client, .digest_steps = DIGEST_STEPS}};
    if (rp_cmd_parse(&verb, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    arguments.client.run = arguments.line.count ? arguments.line.words[0] : "default";
    arguments.client.run_dir = arguments.line.run_dir;
    return read_rank(&arguments);
}
