/* SPDX-License-Identifier: Apache-2.0 */
/* live_records.c — weights and documents that change in a running engine.
 *
 * Rows are planned ahead of the trainers. So a record stops the flow, replaces the calendar of all
 * plans, and starts the flow at the first batch that is not published: consumers see nothing.
 *
 * Invariants:
 *
 *   - The row is at or above every row that was published, and the end of every deal window of
 *     which a row was: no rank has begun it.
 *   - The record is in the run journal before a row is planned with it. A start appends the
 *     journal's records to the calendar that checkpoint and config give.
 *   - Until the entry is written, only stream->plan has the record; the flow that uses this plan is
 *     stopped. So a refusal gives it the calendar of the probe again. */
#include "server/live_records.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "flow/catch_up.h"
#include "server/journal.h"
#include "server/kept_records.h"
#include "server/live_corpus.h"
#include "server/probe.h"
#include "server/rings.h"
#include "server/save.h"
#include "server/seats.h"
#include "server/shutdown.h"
#include "server/start.h"

/* ---- the command ----------------------------------------------------------------------------- */

/* A request of `ringpack weights` or `ringpack grow`. Its arrays are by source of the config. */
struct command {
    uint64_t step;
    struct rp_plan_record record;
    uint32_t *weights;   /* reduced; NULL: it has documents */
    uint64_t *documents; /* NULL: it has weights */
    char *text;          /* `web=3 books=1`: the sources with a value, in the order of the config */
};

static const char *kind_of(const struct command *command)
{
    return rp_kept_record_kind(command->documents);
}

static void free_command(struct command *command)
{
    free(command->weights);
    free(command->documents);
    free(command->text);
}

/* Divide the weights, in millionths, by their greatest common divisor. */
static int reduce(uint32_t *weights, const uint64_t *millionths, uint32_t count,
                  struct rp_error *error)
{
    uint64_t divisor = 0;
    for (uint32_t s = 0; s < count; s++)
        divisor = rp_gcd_u64(divisor, millionths[s]);
    if (divisor == 0)
        return rp_fail(error, -RP_E_USAGE, "give at least one source a weight above 0",
                       "all weights are 0");
    for (uint32_t s = 0; s < count; s++) {
        if (millionths[s] / divisor > UINT32_MAX)
            return rp_fail(error, -RP_E_USAGE,
                           "use fewer digits: only the ratios of weights count, as of 7.2 and 1.3",
                           "the weights have no common scale below 2^32");
        weights[s] = (uint32_t)(millionths[s] / divisor);
    }
    return 0;
}

static int fail_name(const struct rp_config *config, const char *name, struct rp_error *error)
{
    struct rp_text_near near = {.word = name};
    char hint[160];
    for (uint32_t s = 0; s < config->source_count; s++)
        rp_text_offer(&near, config->sources[s].name);
    snprintf(hint, sizeof hint, "did you mean `%.60s`? the first source of the run is `%.60s`",
             near.best ? near.best : config->sources[0].name, config->sources[0].name);
    return rp_fail(error, -RP_E_USAGE, hint, "the run has no source `%.200s`", name);
}

static int parse_value(const char *name, const char *text, bool is_documents, uint64_t *value,
                       struct rp_error *error)
{
    const char *found = text ? text : "";
    if (is_documents && text && rp_text_u64(text, value) && *value > 0)
        return 0;
    if (is_documents)
        return rp_fail(error, -RP_E_USAGE, "as in web=120000; `ringpack inspect` counts them",
                       "%.200s: expected a number of documents, found \"%.100s\"", name, found);
    if (text && rp_text_decimal(text, 6, value) == RP_DECIMAL_FINE)
        return 0;
    return rp_fail(error, -RP_E_USAGE, "as in web=3 or web=0.25",
                   "%.200s: expected a weight with at most 6 decimals, found \"%.100s\"", name,
                   found);
}

static int parse_values(const struct rp_config *config, json_t *given, bool is_documents,
                        uint64_t *values, struct rp_error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach(given, name, value)
    {
        uint32_t s = 0;
        while (s < config->source_count && strcmp(config->sources[s].name, name) != 0)
            s++;
        if (s == config->source_count)
            return fail_name(config, name, error);
        int code = parse_value(name, json_string_value(value), is_documents, &values[s], error);
        if (code < 0)
            return code;
    }
    return 0;
}

static int parse_list(struct command *command, const struct rp_config *config, json_t *given,
                      bool is_documents, struct rp_error *error)
{
    uint32_t count = rp_config_numbered(config);
    uint64_t *values = rp_calloc(count, sizeof *values);
    int code = values ? parse_values(config, given, is_documents, values, error)
                      : rp_kept_record_no_memory(error);
    if (code == 0 && is_documents) {
        command->documents = values;
        values = NULL;
    } else if (code == 0) {
        command->weights = rp_calloc(count, sizeof *command->weights);
        code = command->weights ? reduce(command->weights, values, count, error)
                                : rp_kept_record_no_memory(error);
    }
    free(values);
    command->record.weights = command->weights;
    command->record.documents = command->documents;
    return code < 0 ? code : rp_kept_record_text(&command->text, config, &command->record, error);
}

/* Steps are counted from row 0, as in the config, so that the row is the same on all nodes. */
static int parse(struct command *command, const struct rp_config *config, const uint8_t *body,
                 uint64_t bytes, struct rp_error *error)
{
    json_t *request = json_loadb((const char *)body, bytes, JSON_REJECT_DUPLICATES, NULL);
    json_t *weights = json_object_get(request, "weights");
    json_t *documents = json_object_get(request, "documents");
    json_int_t step = json_integer_value(json_object_get(request, "step"));
    json_t *given = weights ? weights : documents;
    int code = 0;
    if (step < 0 || !json_is_object(given) || (weights && documents))
        code = rp_fail(error, -RP_E_PROTOCOL, NULL,
                       "a step and weights or documents were expected");
    command->step = code == 0 ? (uint64_t)step : 0;
    if (code == 0 && !rp_config_row_of_step(config, command->step, &command->record.row))
        code = rp_fail(error, -RP_E_USAGE, "name an earlier step",
                       "step %" PRIu64 " has rows above 2^63", command->step);
    if (code == 0)
        code = parse_list(command, config, given, documents != NULL, error);
    json_decref(request);
    return code;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Can this run take such a record at any time? */
static int check_run(const struct rp_engine *engine, bool is_documents, struct rp_error *error)
{
    const struct rp_stream *stream = &engine->stream;
    if (rp_plan_version(stream->plan) < 2)
        return rp_fail(error, -RP_E_USAGE,
                       is_documents ? "begin a new stream with `stream_version: 2`"
                                    : "`ringpack serve --accept-weights` takes other weights "
                                      "at a start",
                       is_documents ? "documents of a stream of version 1 never change"
                                    : "weights of a stream of version 1 change at a start only");
    if (!is_documents && !stream->accepts_weights)
        return rp_fail(error, -RP_E_USAGE,
                       "start it with --accept-weights, or Loader(accept_weights=True)",
                       "this engine does not accept other weights");
    if (is_documents && engine->config->grow)
        return rp_fail(error, -RP_E_USAGE, "start it with `grow: false`; the run is unchanged",
                       "with `grow: true` the next start of this run takes all documents of the "
                       "index, at another row");
    if (!engine->saving.journal)
        return rp_fail(error, -RP_E_USAGE, "give the run a checkpoint_dir",
                       "this engine has no run journal, and a restart would not know the %s",
                       is_documents ? "documents" : "weights");
    return 0;
}

/* Can the engine take a record at present? */
static int check_engine(const struct rp_engine *engine, struct rp_error *error)
{
    const struct rp_stream *stream = &engine->stream;
    static const char *const again = "the run is unchanged; give the command again";
    if (!rp_life_is_running(&engine->life))
        return rp_fail(error, -RP_E_BUSY, NULL, "the engine is stopping");
    if (engine->delivery.state == RP_DELIVERY_ENDED)
        return rp_fail(error, -RP_E_USAGE, NULL, "the stream has ended: all steps are delivered");
    if (engine->delivery.state != RP_DELIVERY_RUNNING)
        return rp_fail(error, -RP_E_BUSY, again, "the flow is not running");
    if (engine->saving.saver.state != RP_SAVER_IDLE)
        return rp_fail(error, -RP_E_BUSY, again, "a checkpoint is being written");
    if (engine->peers.deferred_count > 0 || stream->planner.is_busy)
        return rp_fail(error, -RP_E_BUSY, again, "a far row is being planned");
    return 0;
}

static uint64_t highest_tail(const struct rp_delivery *delivery)
{
    uint64_t highest = 0;
    for (uint32_t r = 0; r < delivery->ring_count; r++)
        highest = rp_max_u64(highest, delivery->rings[r].tail);
    return highest;
}

static int check_row(const struct rp_engine *engine, const struct command *command,
                     struct rp_error *error)
{
    const struct rp_delivery *delivery = &engine->delivery;
    const struct rp_stream *stream = &engine->stream;
    struct rp_state_info start;
    int code = rp_state_info(stream->start_state, stream->start_bytes, &start, error);
    if (code < 0)
        return code;
    uint64_t least = rp_max_u64(rp_delivery_row(delivery, highest_tail(delivery)),
                                start.window_end);
    uint64_t first = rp_config_step_from(engine->config, least);
    char hint[128];
    if (command->record.row >= least && command->record.row > 0)
        return 0;
    snprintf(hint, sizeof hint, "the run is unchanged; name step %" PRIu64 " or a later one",
             rp_max_u64(first, 1));
    return rp_fail(error, -RP_E_USAGE, hint,
                   "step %" PRIu64 " is begun: rows before row %" PRIu64 " are with the trainers",
                   command->step, least);
}

/* ---- applying -------------------------------------------------------------------------------- */

/* Stop the flow, and keep the state at the first row of the next one. If the flow is replaced, its
 * states are lost: keep the state at the first row that a checkpoint may need. */
static int stop_flow(struct rp_engine *engine, bool is_replaced, struct rp_error *error)
{
    const struct rp_delivery *delivery = &engine->delivery;
    uint64_t tail = rp_delivery_lowest_tail(delivery);
    uint64_t batch = is_replaced ? rp_min_u64(tail, rp_delivery_consumed(delivery)) : tail;
    const struct rp_row_state state = rp_flow_state_at(delivery->flow, batch);
    int code = state.token ? rp_engine_keep_state(&engine->stream, &state, error) : 0;
    if (code >= 0)
        rp_engine_stop_flow(engine);
    return code;
}

/* The flow begins at the first batch that is not published, with the calendar of the probe. */
static int start_flow(struct rp_engine *engine, struct rp_error *error)
{
    uint64_t begin = rp_delivery_lowest_tail(&engine->delivery);
    int code = rp_engine_probe_batch(engine, begin, error);
    return code < 0 ? code : rp_engine_start_flow(engine, error);
}

/* The end of the newest step that has a published batch. Trainers have the sums of that step, so
 * its rows may not change. */
static uint64_t begun_end(const struct rp_delivery *delivery)
{
    const struct rp_numbering *numbering = &delivery->numbering;
    uint64_t tail = highest_tail(delivery);
    if (rp_numbering_micro_batch(numbering, tail) == 0)
        return tail;
    return rp_numbering_batch_of_step(numbering, rp_numbering_step(numbering, tail) + 1);
}

/* A source has fingerprints at the ends of its shards only. */
static int append_to(struct rp_plan *plan, const struct command *command, struct rp_error *error)
{
    struct rp_error found = {0};
    int code = rp_plan_append_record(plan, &command->record, &found);
    if (code == -RP_E_CHANGED && command->documents)
        return rp_fail(error, -RP_E_USAGE,
                       "name all documents up to the end of a shard; `ringpack inspect` of the "
                       "index lists them",
                       "the run is unchanged: %s", found.message);
    if (code < 0)
        *error = found;
    return code;
}

/* Append the record to the calendar of the plan, after the newest step that is begun. */
static int append_record(struct rp_engine *engine, struct rp_plan *plan,
                         const struct command *command, struct rp_error *error)
{
    struct rp_stream *stream = &engine->stream;
    void *state = rp_calloc(1, stream->state_bytes_max);
    size_t bytes;
    if (!state)
        return rp_kept_record_no_memory(error);
    int code = rp_engine_probe_batch(engine, begun_end(&engine->delivery), error);
    if (code >= 0)
        code = rp_plan_try_save(stream->probe, state, &bytes, error);
    if (code >= 0) /* also compares the documents of a corpus that was opened again */
        code = rp_plan_load(plan, state, bytes, false, error);
    if (code >= 0)
        code = append_to(plan, command, error);
    free(state);
    if (code == 1)
        return rp_fail(error, -RP_E_USAGE, "the run is unchanged: they hold from there on already",
                       "row %" PRIu64 " has a record with these %s", command->record.row,
                       kind_of(command));
    bool fits = code < 0 ||
                (rp_plan_state_bytes_max(plan) <= rp_plan_state_bytes_max(stream->probe) &&
                 rp_plan_max_docs_per_row(plan) <= rp_plan_max_docs_per_row(stream->probe));
    return fits ? code
                : rp_fail(error, -RP_E_USAGE, "write a stage into the config, and start it again",
                          "a source would join at row %" PRIu64
                          ", and this engine has no room for its state",
                          command->record.row);
}

/* The next catch-up flow opens its plan, with the record. */
static void close_catch_up_plans(struct rp_stream *stream)
{
    for (uint32_t i = 0; i < RP_CATCH_UP_PLANS_MAX; i++) {
        rp_plan_close(stream->catch_up_plans[i]);
        stream->catch_up_plans[i] = NULL;
    }
}

/* The record is written: give it to all plans, and forget states and sums that were planned without
 * it. States of rows that are not published may be inside a deal window that the record ends. */
static int apply(struct rp_engine *engine, struct rp_grown *grown, struct rp_error *error)
{
    struct rp_stream *stream = &engine->stream;
    uint64_t published = rp_delivery_row(&engine->delivery, highest_tail(&engine->delivery));
    rp_engine_forget_contents(stream);
    int code = grown->corpus ? rp_engine_adopt_grown(engine, grown, error) : 0;
    close_catch_up_plans(stream);
    if (code >= 0)
        code = rp_engine_share_calendar(stream, error);
    if (code >= 0)
        code = rp_engine_set_contract(engine, error);
    rp_flow_forget_states_after(engine->delivery.flow, published);
    rp_sums_forget_from(engine->delivery.steps,
                        rp_delivery_row(&engine->delivery, begun_end(&engine->delivery)));
    if (stream->kept_row > published) {
        free(stream->kept_state);
        stream->kept_state = NULL;
        stream->kept_bytes = 0;
    }
    return code;
}

/* Append the record, write it to the journal, apply it, and start the flow, which is stopped. After
 * a refusal the flow is started as it was. *has_failed: the engine cannot continue. */
static int set_record(struct rp_engine *engine, const struct command *command,
                      struct rp_grown *grown, bool *has_failed, struct rp_error *error)
{
    struct rp_error trouble;
    bool is_unknown = false, is_written = false, is_grown = grown->corpus != NULL;
    int code = check_row(engine, command, error); /* tails are final now */
    if (code >= 0)
        code = append_record(engine, is_grown ? grown->plan : engine->stream.plan, command, error);
    if (code >= 0)
        code = rp_engine_journal_record(engine, command->record.row, command->documents,
                                        command->text, &is_unknown, error);
    is_written = code >= 0;
    if (is_written)
        code = apply(engine, grown, error);
    *has_failed = is_unknown || (is_written && code < 0);
    if (*has_failed)
        return code;
    int restored = is_written || is_grown
                       ? 0
                       : rp_plan_follow(engine->stream.plan, engine->stream.probe, &trouble);
    if (restored >= 0)
        restored = start_flow(engine, &trouble);
    *has_failed = restored < 0;
    if (restored < 0)
        *error = trouble;
    return restored < 0 ? restored : code;
}

/* A restart at row 0 would begin with all documents of the index, so a checkpoint comes first. The
 * command is given again until it is written. */
static int need_checkpoint(struct rp_engine *engine, struct rp_error *error)
{
    if (engine->saving.saver.newest_token)
        return 0;
    rp_saving_want(&engine->saving);
    return rp_fail(error, -RP_E_BUSY, "the run is unchanged; give the command again",
                   "this run has no checkpoint yet, and its first one is being written");
}

/* Parse the command, make all checks that need no stopped flow, and open a grown corpus. */
static int prepare(struct rp_engine *engine, struct command *command, struct rp_grown *grown,
                   const uint8_t *body, uint64_t bytes, struct rp_error *error)
{
    int code = parse(command, engine->config, body, bytes, error);
    if (code >= 0)
        code = check_run(engine, command->documents, error);
    if (code >= 0)
        code = check_engine(engine, error);
    if (code >= 0)
        code = check_row(engine, command, error);
    if (code >= 0 && command->documents)
        code = need_checkpoint(engine, error);
    if (code >= 0 && command->documents)
        code = rp_engine_open_grown(grown, engine, command->documents, error);
    return code;
}

int rp_engine_set_record(struct rp_engine *engine, const uint8_t *body, uint64_t bytes,
                         char **answer, struct rp_error *error)
{
    struct command command = {.weights = NULL};
    struct rp_grown grown = {.corpus = NULL};
    bool has_failed = false;
    *answer = NULL;
    int code = prepare(engine, &command, &grown, body, bytes, error);
    if (code >= 0)
        code = stop_flow(engine, grown.corpus, error);
    if (code >= 0)
        code = set_record(engine, &command, &grown, &has_failed, error);
    if (has_failed) {
        *engine->life.error = *error;
        rp_engine_fail(engine, code);
    }
    if (code >= 0) {
        rp_saving_want(&engine->saving); /* also its copies elsewhere have the record then */
        *answer = rp_asprintf("from step %" PRIu64 " on (row %" PRIu64 "): %s", command.step,
                              command.record.row, command.text);
        rp_log(RP_LOG_INFO, "%s from step %" PRIu64 " on (row %" PRIu64 "): %s", kind_of(&command),
               command.step, command.record.row, command.text);
    }
    rp_grown_close(&grown);
    free_command(&command);
    return code;
}
