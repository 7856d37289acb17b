/* SPDX-License-Identifier: Apache-2.0 */
/* caching.h — the engine's cache of objects in stores (cache/cache.h), which evicts the chunks that
 * the engine's plan needs last. */
#ifndef RP_SERVER_CACHING_H
#define RP_SERVER_CACHING_H

#include <jansson.h>

#include "server/engine.h"

/** Open the cache that the config wants, if any shard is an object. If the cache cannot be used,
 * that is a warning; with `shuffle: document`, which needs it, an error. */
RP_MUST_CHECK int rp_engine_open_cache(struct rp_engine *engine, struct rp_error *error);
/** After the flow was closed. */
void rp_delivery_close_cache(struct rp_delivery *delivery);

/** Add stat's keys of the cache, if one is open. */
void rp_stat_add_cache(json_t *object, const struct rp_delivery *delivery);

#endif
