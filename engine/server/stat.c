/* SPDX-License-Identifier: Apache-2.0 */
/* stat.c — what `ringpack stat` shows: one JSON object with stable keys, units in names. The keys
 * are explained, one by one, in tools/python/docs/stat-keys.md, which a test compares with them. */
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "server/caching.h"
#include "server/seats.h"
#include "server/reading.h"
#include "server/speed.h"
#include "server/stat.h"
#include "server/stat_parts.h"
#include "stream.h"

/* Field and value; those of single sources are left to `ringpack checkpoint show`. */
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

/* How much of a source is compared with no hash as it is read. */
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

/* What masks left of the sources that have one, of what was planned since the start. */
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

/* The share of the whole corpus, and what was taken from files since the start. */
static void add_verification(json_t *object, const struct rp_stream *stream,
                             const struct rp_flow_counts *counts)
{
    struct rp_unverified_share share = rp_stream_unverified_share(stream->config, stream->corpus);
    json_t *sources = json_array();
    for (uint32_t s = 0; s < stream->config->source_count; s++)
        json_array_append_new(sources, source_object(stream, s));
    json_object_set_new(object, "unverified_share", json_real(share.tokens));
    json_object_set_new(object, "unverified_byte_share", json_real(share.bytes));
    json_object_set_new(object, "taken_bytes", json_integer((json_int_t)counts->taken_bytes));
    json_object_set_new(object, "unverified_bytes",
                        json_integer((json_int_t)counts->unverified_bytes));
    json_object_set_new(object, "sources", sources);
}

/* What the run is. */
static json_t *run_object(const struct rp_engine *engine)
{
    const struct rp_config *config = engine->config;
    char fingerprint[256], identity[RP_HASH_HEX_BYTES];
    rp_corpus_fingerprint_text(engine->stream.corpus, fingerprint, sizeof fingerprint);
    return json_pack("{s:s, s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "run",
                     config->run, "pid", (int)getpid(), "version", RP_VERSION, "stream",
                     rp_hash128_hex(engine->stream.identity, identity), "fingerprint", fingerprint,
                     "world", (json_int_t)config->dp_world_size, "replicas",
                     (json_int_t)config->replicas, "batch_size", (json_int_t)config->batch_size,
                     "global_batch_size", (json_int_t)config->global_batch_size, "seq_len",
                     (json_int_t)config->seq_len, "base_row", (json_int_t)engine->delivery.base_row,
                     "drop_last", config->drop_last);
}

/* What it has delivered. */
static json_t *counts_object(const struct rp_engine *engine, const struct rp_flow_counts *counts)
{
    uint64_t capacity = counts->rows * engine->config->seq_len;
    return json_pack(
        "{s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "batches",
        (json_int_t)counts->batches, "rows", (json_int_t)counts->rows, "tokens",
        (json_int_t)counts->tokens, "fill",
        capacity ? (double)counts->tokens / (double)capacity : 0.0, "reads",
        (json_int_t)counts->reads, "read_bytes", (json_int_t)counts->read_bytes, "short_reads",
        (json_int_t)counts->short_reads, "read_retries", (json_int_t)counts->read_retries,
        "packers", (json_int_t)engine->config->packers, "packers_replaced",
        (json_int_t)counts->packers_replaced, "reweighted", engine->stream.is_reweighted, "ended",
        engine->delivery.state == RP_DELIVERY_ENDED);
}

char *rp_engine_stat(struct rp_engine *engine)
{
    struct rp_flow_counts counts;
    rp_delivery_poll_rings(&engine->delivery);
    rp_flow_counts(engine->delivery.flow, &counts);
    json_t *object = run_object(engine);
    rp_stat_add_progress(object, engine);
    json_t *own = counts_object(engine, &counts);
    (void)json_object_update(object, own);
    json_decref(own);
    rp_stat_add_reading(object, engine, &counts);
    rp_stat_add_speed(object, engine, &counts);
    rp_stat_add_phase(object, &engine->life);
    rp_stat_add_saves(object, engine);
    rp_stat_add_memory(object, &engine->delivery);
    const struct rp_engine_observer *observer = engine->options->observer;
    if (observer)
        observer->asked(observer->context, object);
    add_verification(object, &engine->stream, &counts);
    rp_delivery_add_cache(object, &engine->delivery);
    rp_stat_add_ledger(object, engine);
    json_object_set_new(object, "masks", masks_array(&engine->stream));
    json_object_set_new(object, "ranks", rp_stat_ranks(engine));
    rp_stat_add_wait_history(object, &engine->watching);
    json_object_set_new(object, "contract", contract_array(&engine->stream.contract));
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

void rp_engine_stat_end(const struct rp_engine *engine)
{
    const struct rp_engine_observer *observer = engine->options->observer;
    json_t *object = observer ? json_object() : NULL;
    if (!observer)
        return;
    rp_stat_add_phase(object, &engine->life);
    rp_stat_add_saves(object, engine);
    observer->ended(observer->context, object);
    json_decref(object);
}
