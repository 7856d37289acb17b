/* SPDX-License-Identifier: Apache-2.0 */
#include "server/stat_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/available.h"
#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "plan/ledger.h"
#include "server/seats.h"
#include "server/rate_samples.h"

void rp_stat_set_count(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

void rp_stat_set_real(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, json_real(value));
}

/* ---- progress -------------------------------------------------------------------------------- */

static uint64_t next_row_of(const struct rp_delivery *delivery)
{
    return rp_delivery_row(delivery, rp_delivery_consumed(delivery));
}

void rp_stat_add_progress(json_t *object, const struct rp_engine *engine)
{
    const struct rp_delivery *delivery = &engine->delivery;
    const struct rp_numbering *numbering = &delivery->numbering;
    uint64_t lowest = rp_delivery_consumed(delivery), next_row = next_row_of(delivery);
    uint64_t step = rp_numbering_step(numbering, lowest);
    uint64_t first = rp_numbering_step(numbering,
                                       rp_numbering_batch(numbering, engine->stream.start_row));
    rp_stat_set_real(object, "up_seconds",
                     rp_stat_seconds(rp_now_ns() - engine->watching.started_ns));
    rp_stat_set_count(object, "start_row", engine->stream.start_row);
    rp_stat_set_count(object, "next_row", next_row);
    rp_stat_set_count(object, "step", step);
    rp_stat_set_count(object, "steps", step - rp_min_u64(step, first));
    rp_stat_set_count(object, "skew_rows",
                      (rp_delivery_row(delivery, rp_delivery_furthest(delivery)) - next_row) /
                          engine->config->dp_world_size);
}

/* ---- speed ----------------------------------------------------------------------------------- */

/* Speeds of a counter since the start, in the last minute and in the last second. */
static void add_speeds(json_t *object, const struct rp_engine *engine, const char *const keys[3],
                       enum rp_rate_counter counter, double all, double scale)
{
    static const uint64_t windows_ns[] = {UINT64_C(60000000000), UINT64_C(1000000000)};
    struct rp_rate_sample now = rp_delivery_sample(&engine->delivery);
    double seconds = rp_stat_seconds(now.at_ns - engine->watching.started_ns);
    rp_stat_set_real(object, keys[0], seconds > 0 ? all * scale / seconds : 0.0);
    for (int i = 0; i < 2; i++)
        rp_stat_set_real(object, keys[1 + i],
                         scale * rp_rate_of(&engine->watching.rates, &now, counter, windows_ns[i]));
}

void rp_stat_add_speed(json_t *object, const struct rp_engine *engine,
                       const struct rp_flow_counts *counts)
{
    const struct rp_delivery *delivery = &engine->delivery;
    static const char *const tokens[] = {"tokens_per_second", "tokens_per_second_1min",
                                         "tokens_per_second_1s"};
    static const char *const steps[] = {"steps_per_second", "steps_per_second_1min",
                                        "steps_per_second_1s"};
    static const char *const bytes[] = {"read_bytes_per_second", "read_bytes_per_second_1min",
                                        "read_bytes_per_second_1s"};
    const struct rp_numbering *numbering = &delivery->numbering;
    uint64_t start = rp_numbering_batch(numbering, engine->stream.start_row);
    uint64_t consumed = rp_max_u64(rp_delivery_consumed(delivery), start) - start;
    const struct rp_numbering_part *part = rp_numbering_of_batch(numbering, start + consumed);
    add_speeds(object, engine, tokens, RP_RATE_TOKENS, (double)counts->tokens, 1);
    add_speeds(object, engine, steps, RP_RATE_BATCHES, (double)consumed,
               1 / (double)rp_numbering_step_batches(part));
    add_speeds(object, engine, bytes, RP_RATE_READ_BYTES, (double)counts->read_bytes, 1);
}

/* ---- costs ----------------------------------------------------------------------------------- */

void rp_stat_add_rank_cost(json_t *object, const struct rp_engine *engine,
                           const struct rp_ring *ring)
{
    uint32_t number = ring->geometry.rank - engine->config->rank_first;
    double cost = rp_flow_rank_cost(engine->delivery.flow, number);
    json_object_set_new(object, "cost", cost < 0 ? json_null() : json_real(cost));
}

void rp_stat_add_imbalance(json_t *object, const struct rp_flow *flow)
{
    struct rp_flow_imbalance found = rp_flow_imbalance(flow);
    bool is_known = found.ranks > 0;
    json_object_set_new(object, "cost_imbalance", is_known ? json_real(found.ranks) : json_null());
    json_object_set_new(object, "micro_step_imbalance",
                        is_known ? json_real(found.micro_step) : json_null());
}

/* ---- saves ----------------------------------------------------------------------------------- */

/* The time since a moment; null for 0. */
static void set_age(json_t *object, const char *key, uint64_t moment_ns)
{
    json_object_set_new(
        object, key, moment_ns ? json_real(rp_stat_seconds(rp_now_ns() - moment_ns)) : json_null());
}

/* The row of a save or copy that ended at a moment; null for 0. */
static void set_row(json_t *object, const char *key, uint64_t ended_ns, uint64_t row)
{
    json_object_set_new(object, key, ended_ns ? json_integer((json_int_t)row) : json_null());
}

/* The reason of a failure, or null. Paths in it may be of any bytes, and a long message is cut. */
static void set_reason(json_t *object, const char *key, bool has_failed, const char *reason)
{
    char text[sizeof(((struct rp_error *)0)->message)];
    snprintf(text, sizeof text, "%s", reason);
    rp_text_make_utf8(text);
    json_object_set_new(object, key, has_failed ? json_string(text) : json_null());
}

/* The parts of the time of the last save that was read back; null before. */
static void add_parts(json_t *object, const struct rp_save_counts *saves)
{
    const struct {
        const char *key;
        uint64_t ns;
    } parts[] = {{"save_copy_seconds", saves->copy_ns},
                 {"save_write_seconds", saves->parts.write_ns},
                 {"save_sync_seconds", saves->parts.sync_ns},
                 {"save_name_seconds", saves->parts.name_ns},
                 {"save_read_back_seconds", saves->parts.read_back_ns}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(parts); i++)
        json_object_set_new(object, parts[i].key,
                            saves->has_parts ? json_real(rp_stat_seconds(parts[i].ns))
                                             : json_null());
}

static void add_copies(json_t *object, const struct rp_saving *saving)
{
    struct rp_copy_counts copies = {0};
    if (saving->checkpoints)
        rp_checkpoint_dir_copies(saving->checkpoints, &copies);
    rp_stat_set_count(object, "copies", copies.copies);
    rp_stat_set_count(object, "copy_failures", copies.failures);
    rp_stat_set_count(object, "copies_skipped", copies.skipped);
    json_object_set_new(object, "copy_under_way", json_boolean(copies.is_at_work));
    set_age(object, "copy_age_seconds", copies.ended_ns);
    set_row(object, "copy_row", copies.ended_ns, copies.row);
    rp_stat_set_count(object, "copy_bytes", copies.bytes);
    rp_stat_set_real(object, "copy_seconds", rp_stat_seconds(copies.ended_ns - copies.began_ns));
    set_reason(object, "copy_error", copies.has_failed, copies.reason);
    set_reason(object, "last_copy_error", copies.failures > 0, copies.reason);
}

static void add_scrubs(json_t *object, const struct rp_saving *saving)
{
    struct rp_scrub_counts scrubs = {0};
    if (saving->checkpoints)
        rp_checkpoint_dir_scrubs(saving->checkpoints, &scrubs);
    rp_stat_set_count(object, "scrubs", scrubs.passes);
    rp_stat_set_count(object, "scrubbed_files", scrubs.files);
    rp_stat_set_count(object, "scrub_failures", scrubs.failures);
    set_age(object, "scrub_age_seconds", scrubs.ended_ns);
    set_reason(object, "scrub_error", scrubs.reason[0] != '\0', scrubs.reason);
}

/* Absolute, for programs that do not know where the engine was started. */
static json_t *directory_text(const struct rp_saving *saving)
{
    char *path = saving->checkpoint_path ? strdup(saving->checkpoint_path) : NULL;
    if (path)
        rp_text_make_utf8(path);
    json_t *text = path ? json_string(path) : json_null();
    free(path);
    return text;
}

void rp_stat_add_phase(json_t *object, const struct rp_engine_life *life)
{
    const char *phase = rp_life_is_ending(life)    ? "stopping"
                        : rp_life_has_failed(life) ? "failed"
                                                   : "running";
    json_object_set_new(object, "phase", json_string(phase));
    set_reason(object, "error", rp_life_has_failed(life), life->error->message);
}

void rp_stat_add_saves(json_t *object, const struct rp_engine *engine)
{
    json_object_set_new(object, "checkpoint_dir", directory_text(&engine->saving));
    const struct rp_save_counts *saves = &engine->saving.counts;
    uint64_t safe_row = saves->ended_ns ? saves->row : engine->stream.start_row;
    uint64_t next_row = next_row_of(&engine->delivery);
    rp_stat_set_count(object, "saves", saves->saves);
    rp_stat_set_count(object, "save_failures", saves->failures);
    json_object_set_new(object, "save_under_way",
                        json_boolean(engine->saving.saver.state != RP_SAVER_IDLE));
    set_age(object, "save_age_seconds", saves->ended_ns);
    set_row(object, "save_row", saves->ended_ns, saves->row);
    rp_stat_set_count(object, "unsaved_rows", next_row - rp_min_u64(next_row, safe_row));
    rp_stat_set_count(object, "save_bytes", saves->bytes);
    rp_stat_set_real(object, "save_seconds", rp_stat_seconds(saves->duration_ns));
    add_parts(object, saves);
    set_reason(object, "save_error", saves->has_failed, saves->reason);
    set_reason(object, "last_save_error", saves->failures > 0, saves->reason);
    add_copies(object, &engine->saving);
    add_scrubs(object, &engine->saving);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A line of /proc/self/status, in KiB there. */
static json_t *status_bytes(const char *key)
{
    uint64_t bytes;
    if (!rp_read_number("/proc/self/status", key, &bytes))
        return json_null();
    bytes <<= 10;
    return json_integer((json_int_t)bytes);
}

void rp_stat_add_memory(json_t *object, const struct rp_delivery *delivery)
{
    uint64_t rings = 0;
    for (uint32_t r = 0; r < delivery->ring_count; r++)
        rings += delivery->rings[r].data.bytes;
    json_object_set_new(object, "resident_bytes", status_bytes("VmRSS:"));
    json_object_set_new(object, "resident_private_bytes", status_bytes("RssAnon:"));
    json_object_set_new(object, "resident_shared_bytes", status_bytes("RssShmem:"));
    json_object_set_new(object, "resident_file_bytes", status_bytes("RssFile:"));
    rp_stat_set_count(object, "ring_bytes", rings);
    rp_stat_set_count(object, "prefetch_bytes", rp_flow_arena(delivery->flow)->segment.bytes);
}

/* ---- the ledger ------------------------------------------------------------------------------ */

/* The state at next_row or, if the flow does not keep it, at the start row. */
static struct rp_row_state ledger_state(const struct rp_engine *engine)
{
    const struct rp_stream *stream = &engine->stream;
    struct rp_row_state at = rp_flow_state_at(engine->delivery.flow,
                                              rp_delivery_consumed(&engine->delivery));
    if (!at.token)
        at = (struct rp_row_state){stream->start_state, stream->start_bytes, stream->start_row};
    return at;
}

/* A count that version 1 does not have. */
static json_t *count_of_v2(const struct rp_stream *stream, uint64_t count)
{
    return rp_plan_version(stream->probe) < 2 ? json_null() : json_integer((json_int_t)count);
}

static json_t *ledger_entry(const struct rp_stream *stream, uint32_t number,
                            const struct rp_ledger_source *entry, double weights, double tokens)
{
    uint64_t delivered = entry->tokens - entry->waiting - entry->withheld;
    json_t *object = json_pack(
        "{s:s, s:I, s:I, s:f, s:I, s:f, s:f}", "source",
        rp_source_name(rp_corpus_source(stream->corpus, number)), "documents",
        (json_int_t)entry->documents, "epoch", (json_int_t)entry->begun_epoch, "epochs",
        entry->of_epoch ? (double)entry->documents / (double)entry->of_epoch : 0.0, "tokens",
        (json_int_t)entry->tokens, "token_share", tokens > 0 ? (double)entry->tokens / tokens : 0.0,
        "weight_share", (double)entry->weight / weights);
    json_object_set_new(object, "planned", count_of_v2(stream, entry->tokens));
    json_object_set_new(object, "waiting", count_of_v2(stream, entry->waiting));
    json_object_set_new(object, "withheld", count_of_v2(stream, entry->withheld));
    json_object_set_new(object, "delivered", count_of_v2(stream, delivered));
    return object;
}

void rp_stat_add_ledger(json_t *object, const struct rp_engine *engine)
{
    uint32_t count = engine->config->source_count;
    struct rp_row_state at = ledger_state(engine);
    json_t *array = json_array(), *row = json_null(), *counted = json_null();
    struct rp_state_info info;
    struct rp_ledger_source *sources = rp_calloc(count, sizeof *sources);
    if (sources && at.token && rp_state_info(at.token, at.bytes, &info, NULL) == 0 &&
        rp_plan_ledger(engine->stream.probe, at.token, at.bytes, sources, NULL) == 0) {
        double weights = 0, tokens = 0;
        row = json_integer((json_int_t)at.row);
        counted = json_integer((json_int_t)info.window_first);
        for (uint32_t s = 0; s < count; s++) {
            weights += (double)sources[s].weight;
            tokens += (double)sources[s].tokens;
        }
        for (uint32_t s = 0; s < count; s++)
            json_array_append_new(array,
                                  ledger_entry(&engine->stream, s, &sources[s], weights, tokens));
    }
    free(sources);
    json_object_set_new(object, "ledger_row", row);
    json_object_set_new(object, "ledger_counted_row", counted);
    json_object_set_new(object, "ledger", array);
}
