/* SPDX-License-Identifier: Apache-2.0 */
/* stat.c — the answer to `ringpack stat`: one JSON object with stable keys, units in names. The
 * keys are explained, one by one, in tools/python/docs/stat-keys.md, which a test compares with
 * them. */
#include <ctype.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "server/caching.h"
#include "server/cause.h"
#include "server/rate_samples.h"
#include "server/read_mode.h"
#include "server/seats.h"
#include "server/stat.h"
#include "server/stat_parts.h"
#include "stream.h"

/* Field and value of each field that is not of a single source (`ringpack checkpoint show` has
 * these). */
static json_t *contract_array(const struct rp_contract *contract)
{
    const struct rp_record *records[] = {&contract->stream, &contract->delivery};
    json_t *array = json_array();
    struct rp_field field;
    for (size_t r = 0; r < RP_ARRAY_COUNT(records); r++)
        for (size_t at = 0; rp_record_next(records[r], &at, &field);)
            if (!memchr(field.name, '[', field.name_bytes))
                json_array_append_new(array, json_pack("{s:s%, s:s%}", "field", field.name,
                                                       (size_t)field.name_bytes, "value",
                                                       field.value, (size_t)field.value_bytes));
    return array;
}

/* The size of a source, and the part of it that no hash verifies. */
static json_t *source_object(const struct rp_stream *stream, uint32_t number)
{
    const struct rp_source *source = rp_corpus_source(stream->corpus, number);
    struct rp_source_part whole = rp_source_whole(source);
    struct rp_source_part found = rp_stream_unverified(stream->config, stream->corpus, number);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "source", rp_source_name(source),
                     "shards", (json_int_t)whole.shards, "no_hashes", (json_int_t)found.shards,
                     "tokens", (json_int_t)whole.tokens, "unverified", (json_int_t)found.tokens,
                     "bytes", (json_int_t)whole.bytes, "unverified_bytes", (json_int_t)found.bytes);
}

/* For each source with a mask: the trained part of the tokens planned since the start. */
static json_t *masks_array(const struct rp_stream *stream)
{
    json_t *array = json_array();
    for (uint32_t s = 0; s < stream->config->source_count; s++) {
        const struct rp_source *source = rp_corpus_source(stream->corpus, s);
        const struct rp_mask_counts *counts = &stream->mask_counts[s];
        if (rp_source_has_mask(source))
            json_array_append_new(
                array, json_pack("{s:s, s:I, s:I, s:I, s:I}", "source", rp_source_name(source),
                                 "labels", (json_int_t)rp_a64_load_relaxed(&counts->labels),
                                 "documents", (json_int_t)rp_a64_load_relaxed(&counts->documents),
                                 "untrained", (json_int_t)rp_a64_load_relaxed(&counts->untrained),
                                 "cut_off", (json_int_t)rp_a64_load_relaxed(&counts->cut_off)));
    }
    return array;
}

/* The unverified share of the whole corpus, and of the bytes taken from files since the start. */
static void add_verification(json_t *object, const struct rp_stream *stream,
                             const struct rp_flow_counts *counts)
{
    struct rp_unverified_share share = rp_stream_unverified_share(stream->config, stream->corpus);
    json_t *sources = json_array();
    for (uint32_t s = 0; s < stream->config->source_count; s++)
        json_array_append_new(sources, source_object(stream, s));
    rp_stat_set_real(object, "unverified_share", share.tokens);
    rp_stat_set_real(object, "unverified_byte_share", share.bytes);
    rp_stat_set_count(object, "taken_bytes", counts->taken_bytes);
    rp_stat_set_count(object, "unverified_bytes", counts->unverified_bytes);
    json_object_set_new(object, "sources", sources);
}

/* The run's identity and settings. */
static json_t *run_object(const struct rp_engine *engine)
{
    const struct rp_config *config = engine->config;
    const struct rp_numbering *numbering = &engine->delivery.numbering;
    char fingerprint[256], identity[RP_HASH_HEX_BYTES];
    rp_corpus_fingerprint_text(engine->stream.corpus, fingerprint, sizeof fingerprint);
    return json_pack("{s:s, s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "run",
                     config->run, "pid", (int)getpid(), "version", RP_VERSION, "stream",
                     rp_hash128_hex(engine->stream.identity, identity), "fingerprint", fingerprint,
                     "world", (json_int_t)config->dp_world_size, "replicas",
                     (json_int_t)config->consumers_per_rank, "batch_size",
                     (json_int_t)config->batch_size, "global_batch_size",
                     (json_int_t)config->global_batch_size, "seq_len",
                     (json_int_t)engine->delivery.geometry.seq_len, "base_row",
                     (json_int_t)rp_numbering_base(numbering), "drop_last", config->drop_last);
}

/* The name of this stream, and of all streams; none if the config is of one. */
static void add_streams(json_t *object, const struct rp_config *config)
{
    const struct rp_config_streams *streams = &config->streams;
    const char *name = rp_config_stream_name(config);
    json_t *names = name ? json_array() : json_null();
    for (uint32_t i = 0; i < streams->count; i++)
        json_array_append_new(names, json_string(streams->streams[i].name));
    json_object_set_new(object, "stream_name", name ? json_string(name) : json_null());
    json_object_set_new(object, "streams", names);
    json_object_set_new(object, "is_repeated", json_boolean(config->is_repeated));
}

/* The counts of delivered batches. */
static void add_counts(json_t *object, const struct rp_engine *engine,
                       const struct rp_flow_counts *counts)
{
    uint64_t capacity = counts->rows * engine->delivery.geometry.seq_len;
    rp_stat_set_count(object, "batches", counts->batches);
    rp_stat_set_count(object, "rows", counts->rows);
    rp_stat_set_count(object, "tokens", counts->tokens);
    rp_stat_set_real(object, "fill", capacity ? (double)counts->tokens / (double)capacity : 0.0);
    rp_stat_set_count(object, "reads", counts->reads);
    rp_stat_set_count(object, "read_bytes", counts->read_bytes);
    rp_stat_set_count(object, "short_reads", counts->short_reads);
    rp_stat_set_count(object, "read_retries", counts->read_retries);
    rp_stat_set_count(object, "packers", engine->config->packers);
    rp_stat_set_count(object, "packers_replaced", counts->packers_replaced);
    json_object_set_new(object, "reweighted", json_boolean(engine->stream.is_reweighted));
    json_object_set_new(object, "ended", json_boolean(engine->delivery.state == RP_DELIVERY_ENDED));
}

/* ---- seats ----------------------------------------------------------------------------------- */

/* 0 if there is no such time, or it is not in the past: a consumer may write any time into its
 * control page. */
static uint64_t ns_since(uint64_t begin_ns)
{
    uint64_t now = rp_now_ns();
    return begin_ns && begin_ns < now ? now - begin_ns : 0;
}

/* `holds`: others wait for room, because this seat's consumer has not released its batches, or has
 * not attached. */
static json_t *seat_object(const struct rp_engine *engine, const struct rp_seat *seat)
{
    const struct rp_ring *ring = seat->ring;
    const struct rp_connection *connection = rp_seat_connection(&engine->peers, seat);
    bool holds = rp_seat_fills_ring(seat) && rp_delivery_consumer_waits(&engine->delivery);
    return json_pack("{s:I, s:I, s:b, s:i, s:o, s:I, s:I, s:I, s:b, s:b}", "rank",
                     (json_int_t)ring->geometry.rank, "replica", (json_int_t)seat->replica,
                     "attached", rp_seat_is_attached(seat), "pid", connection ? connection->pid : 0,
                     "attach_batch",
                     connection ? json_integer((json_int_t)connection->first_batch) : json_null(),
                     "tail", (json_int_t)ring->tail, "release", (json_int_t)rp_seat_position(seat),
                     "slots", (json_int_t)ring->geometry.slots, "quarantined",
                     ring->quarantined >> seat->replica & 1, "holds", holds);
}

static json_t *state_word(const struct rp_seat *seat)
{
    char word[RP_SEAT_NAME_BYTES];
    const char *name = rp_seat_state_name(seat->seat_state);
    size_t i = 0;
    for (; name[i] && i + 1 < sizeof word; i++)
        word[i] = (char)tolower((unsigned char)name[i]);
    word[i] = '\0';
    return json_string(word);
}

static void add_waits(json_t *object, const struct rp_seat *seat)
{
    struct rp_waits waits = rp_seat_waits(seat);
    json_t *histogram = json_array();
    for (uint32_t i = 0; i < RP_WAIT_BUCKETS; i++)
        json_array_append_new(histogram, json_integer((json_int_t)waits.counts[i]));
    rp_stat_set_count(object, "waits", rp_waits_count(&waits));
    rp_stat_set_real(object, "wait_seconds", rp_stat_seconds(waits.total_ns));
    rp_stat_set_real(object, "wait_p50_seconds",
                     rp_stat_seconds(rp_waits_percentile_ns(&waits, 50)));
    rp_stat_set_real(object, "wait_p99_seconds",
                     rp_stat_seconds(rp_waits_percentile_ns(&waits, 99)));
    rp_stat_set_real(object, "wait_max_seconds", rp_stat_seconds(waits.longest_ns));
    rp_stat_set_real(object, "waiting_seconds",
                     rp_stat_seconds(ns_since(rp_seat_waits_since_ns(seat))));
    json_object_set_new(object, "wait_histogram", histogram);
}

static json_t *seconds_by_cause(const uint64_t ns[RP_CAUSES])
{
    json_t *seconds = json_object();
    for (enum rp_cause cause = RP_CAUSE_NONE + 1; cause < RP_CAUSES; cause++)
        json_object_set_new(seconds, rp_cause_name(cause), json_real(rp_stat_seconds(ns[cause])));
    return seconds;
}

/* The cause of the seat's present wait, and the seconds of all waits by cause. */
static void add_causes(json_t *object, const struct rp_delivery *delivery,
                       const struct rp_seat *seat)
{
    struct rp_seat_cause now = rp_seat_cause(delivery, seat);
    json_object_set_new(object, "cause", json_string(rp_cause_name(now.cause)));
    json_object_set_new(object, "cause_rank",
                        now.holder ? json_integer(now.holder->ring->geometry.rank) : json_null());
    json_object_set_new(object, "cause_replica",
                        now.holder ? json_integer(now.holder->replica) : json_null());
    json_object_set_new(object, "cause_seconds", seconds_by_cause(seat->cause_ns));
}

static json_t *ranks_array(const struct rp_engine *engine)
{
    json_t *array = json_array();
    uint64_t furthest = rp_delivery_furthest(&engine->delivery);
    for (uint32_t s = 0; s < engine->delivery.seat_count; s++) {
        const struct rp_seat *seat = &engine->delivery.seats[s];
        uint64_t behind = furthest - rp_seat_position(seat);
        uint64_t behind_rows = behind * engine->config->batch_size;
        json_t *object = seat_object(engine, seat);
        json_object_set_new(object, "state", state_word(seat));
        rp_stat_set_count(object, "behind_rows", behind_rows);
        rp_stat_add_rank_cost(object, engine, seat->ring);
        add_waits(object, seat);
        add_causes(object, &engine->delivery, seat);
        json_array_append_new(array, object);
    }
    return array;
}

static void add_wait_history(json_t *object, const struct rp_watching *watching)
{
    const struct rp_wait_history *history = &watching->wait_history;
    json_t *periods = json_array();
    for (uint32_t i = 0; i < history->count; i++)
        json_array_append_new(periods, seconds_by_cause(history->waited_ns[i]));
    rp_stat_set_real(object, "wait_history_seconds", rp_stat_seconds(history->period_ns));
    json_object_set_new(object, "wait_history", periods);
}

/* ---- all of it ------------------------------------------------------------------------------- */

char *rp_engine_stat(struct rp_engine *engine)
{
    struct rp_flow_counts counts;
    rp_delivery_poll_rings(&engine->delivery);
    rp_flow_counts(engine->delivery.flow, &counts);
    json_t *object = run_object(engine);
    add_streams(object, engine->config);
    rp_stat_add_progress(object, engine);
    add_counts(object, engine, &counts);
    rp_stat_add_read_mode(object, engine, &counts);
    rp_stat_add_speed(object, engine, &counts);
    rp_stat_add_imbalance(object, engine->delivery.flow);
    rp_stat_add_phase(object, &engine->life);
    rp_stat_add_saves(object, engine);
    rp_stat_add_memory(object, &engine->delivery);
    const struct rp_engine_observer *observer = engine->options->observer;
    if (observer)
        observer->add_stat(observer->context, object);
    add_verification(object, &engine->stream, &counts);
    rp_stat_add_cache(object, &engine->delivery);
    rp_stat_add_ledger(object, engine);
    json_object_set_new(object, "masks", masks_array(&engine->stream));
    json_object_set_new(object, "ranks", ranks_array(engine));
    add_wait_history(object, &engine->watching);
    json_object_set_new(object, "contract", contract_array(&engine->stream.contract));
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

void rp_engine_stat_end(const struct rp_engine *engine)
{
    const struct rp_engine_observer *observer = engine->options->observer;
    if (!observer)
        return;
    json_t *object = json_object();
    rp_stat_add_phase(object, &engine->life);
    rp_stat_add_saves(object, engine);
    observer->ended(observer->context, object);
    json_decref(object);
}
