/* SPDX-License-Identifier: Apache-2.0 */
#include "server/caching.h"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "base/mem.h"
#include "cache/cache.h"
#include "flow/prefill.h"
#include "server/stat_parts.h"

/* The shards and their columns as objects of the cache, which does not use those that are files. */
static bool list_objects(const struct rp_corpus *corpus, struct rp_cache_object *objects,
                         char **ids, uint32_t count)
{
    for (uint32_t i = 0; objects && ids && i < count; i++) {
        const struct rp_shard *shard = rp_corpus_shard(corpus, i);
        ids[i] = rp_corpus_object_id(shard);
        if (!ids[i])
            return false;
        objects[i] = (struct rp_cache_object){
            .name = ids[i], .identity = shard->url ? shard->identity : "", .bytes = shard->bytes};
    }
    return objects && ids;
}

static int open_cache(struct rp_engine *engine, struct rp_error *error)
{
    const struct rp_corpus *corpus = engine->stream.corpus;
    uint32_t count = rp_corpus_data_count(corpus);
    struct rp_cache_object *objects = rp_calloc(count, sizeof *objects);
    char **ids = rp_calloc(count, sizeof *ids);
    bool is_listed = list_objects(corpus, objects, ids, count);
    const struct rp_cache_options options = {
        .directory = engine->config->cache_dir,
        .bytes = engine->config->cache_bytes,
        .objects = objects,
        .object_count = count,
        .next_use = rp_next_use_of,
        .epoch = rp_next_use_epoch,
        .context = &engine->delivery.next_use,
        .usual_distance = rp_next_use_usual(&engine->delivery.next_use)};
    int code = is_listed ? rp_cache_open(&engine->delivery.cache, &options, error)
                         : rp_fail(error, -ENOMEM, NULL,
                                   "out of memory for a cache of %" PRIu32 " shards", count);
    for (uint32_t i = 0; ids && i < count; i++)
        free(ids[i]);
    free(ids);
    free(objects);
    return code;
}

int rp_engine_open_cache(struct rp_engine *engine, struct rp_error *error)
{
    struct rp_stream *stream = &engine->stream;
    const struct rp_config *config = engine->config;
    struct rp_cache_counts counts;
    if (config->cache_bytes == 0 || engine->delivery.io.method != rp_io_objects())
        return 0;
    int code = rp_next_use_open(&engine->delivery.next_use, stream->corpus, stream->plan, error);
    if (code >= 0)
        code = open_cache(engine, error);
    if (code < 0) {
        rp_delivery_close_cache(&engine->delivery);
        if (config->shuffle == RP_SHUFFLE_DOCUMENT)
            return code;
        rp_log(RP_LOG_WARNING, "no blocks of objects are kept: %s%s%s", error->message,
               error->hint[0] ? "; " : "", error->hint);
        return 0;
    }
    const struct rp_plan_blocks blocks = rp_plan_blocks(stream->plan);
    code = rp_prefill_open(&engine->delivery.prefill, &engine->delivery.io, engine->delivery.cache,
                           &engine->delivery.next_use, &blocks, error);
    if (code < 0) {
        rp_delivery_close_cache(&engine->delivery);
        return code;
    }
    rp_cache_counts(engine->delivery.cache, &counts);
    rp_log(RP_LOG_INFO, "blocks of objects are kept in %s: %" PRIu64 " MiB of at most %" PRIu64,
           rp_cache_place(engine->delivery.cache), counts.held_bytes >> 20, counts.bytes_max >> 20);
    return 0;
}

void rp_delivery_close_cache(struct rp_delivery *delivery)
{
    rp_prefill_close(delivery->prefill);
    delivery->prefill = NULL;
    rp_cache_close(delivery->cache);
    delivery->cache = NULL;
    rp_next_use_close(&delivery->next_use);
}

void rp_stat_add_cache(json_t *object, const struct rp_delivery *delivery)
{
    struct rp_cache_counts c;
    if (!delivery->cache)
        return;
    rp_cache_counts(delivery->cache, &c);
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"cache_bytes_max", c.bytes_max},
                  {"cache_held_bytes", c.held_bytes},
                  {"cache_hits", c.hits},
                  {"cache_misses", c.misses},
                  {"cache_hit_bytes", c.hit_bytes},
                  {"cache_fetched_bytes", c.fetched_bytes},
                  {"cache_filled_bytes", c.filled_bytes},
                  {"cache_epoch", c.epoch},
                  {"cache_epoch_fetched_bytes", c.epoch_fetched_bytes},
                  {"cache_last_epoch_fetched_bytes", c.last_epoch_fetched_bytes},
                  {"cache_kept_bytes", c.kept_bytes},
                  {"cache_evicted_bytes", c.evicted_bytes},
                  {"cache_declined_bytes", c.declined_bytes},
                  {"cache_damaged_bytes", c.damaged_bytes},
                  {"cache_failures", c.failures}};
    json_object_set_new(object, "cache_dir", json_string(rp_cache_place(delivery->cache)));
    for (size_t i = 0; i < RP_ARRAY_COUNT(counts); i++)
        rp_stat_set_count(object, counts[i].key, counts[i].value);
}
