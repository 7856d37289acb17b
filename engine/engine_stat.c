/* SPDX-License-Identifier: Apache-2.0 */
/* engine_stat — what `ringpack stat` shows: one JSON object with stable keys, units in names. */
#include <jansson.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine_parts.h"

static json_t *ring_object(const struct rp_engine *engine, uint32_t index)
{
    const struct rp_ring *ring = &engine->rings[index];
    int32_t pid = 0;
    for (uint32_t i = 0; i < RP_CONNECTIONS_MAX; i++) {
        const struct rp_connection *c = &engine->connections[i];
        if (c->fd >= 0 && c->is_trainer && c->ring == index)
            pid = c->pid;
    }
    return json_pack("{s:I, s:b, s:i, s:I, s:I, s:I, s:b}", "rank", (json_int_t)ring->geometry.rank,
                     "attached", ring->control.fd >= 0, "pid", pid, "tail", (json_int_t)ring->tail,
                     "release", (json_int_t)ring->release, "slots",
                     (json_int_t)ring->geometry.slots, "quarantined", ring->quarantined);
}

char *rp_engine_stat(const struct rp_engine *engine)
{
    struct rp_flow_counts counts;
    rp_flow_counts(engine->flow, &counts);
    double seconds = (double)(rp_now_ns() - engine->started_ns) * 1e-9;
    uint64_t capacity = counts.rows * engine->config->seq_len;
    char fingerprint[256], identity[RP_HASH_HEX_BYTES];
    rp_corpus_fingerprint_text(engine->corpus, fingerprint, sizeof fingerprint);
    json_t *ranks = json_array();
    for (uint32_t r = 0; r < engine->ring_count; r++)
        json_array_append_new(ranks, ring_object(engine, r));
    json_t *object = json_pack(
        "{s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:b, s:I, s:I, "
        "s:I, s:I, s:I, s:b, s:o}",
        "run", engine->config->run, "pid", (int)getpid(), "stream",
        rp_hash128_hex(engine->identity, identity), "fingerprint", fingerprint, "world",
        (json_int_t)engine->config->dp_world_size, "batch_size",
        (json_int_t)engine->config->batch_size, "seq_len", (json_int_t)engine->config->seq_len,
        "next_row",
        (json_int_t)(engine->base_row + rp_engine_consumed(engine) * engine->batch_rows), "batches",
        (json_int_t)counts.batches, "rows", (json_int_t)counts.rows, "tokens",
        (json_int_t)counts.tokens, "tokens_per_second",
        seconds > 0 ? (double)counts.tokens / seconds : 0.0, "fill",
        capacity ? (double)counts.tokens / (double)capacity : 0.0, "io", engine->method->name,
        "direct", engine->direct, "reads", (json_int_t)counts.reads, "read_bytes",
        (json_int_t)counts.read_bytes, "short_reads", (json_int_t)counts.short_reads,
        "read_retries", (json_int_t)counts.read_retries, "packers_replaced",
        (json_int_t)counts.packers_replaced, "ended", engine->flow_ended, "ranks", ranks);
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}
