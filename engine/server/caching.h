/* SPDX-License-Identifier: Apache-2.0 */
/* caching.h — the engine's cache of objects in stores (cache/cache.h), which evicts what the
 * engine's plan needs last. */
#ifndef RP_SERVER_CACHING_H
#define RP_SERVER_CACHING_H

#include <jansson.h>

#include "server/engine.h"

/** Open the cache that the config wants, if any shard is an object. One that cannot be used is left
 * out with a warning; but where nothing else makes the run possible (`shuffle: document`), it is an
 * error. */
RP_MUST_CHECK int rp_engine_open_cache(struct rp_engine *engine, struct rp_error *error);
/** After the flow was closed. */
void rp_delivery_close_cache(struct rp_delivery *delivery);

/** Add what stat says about it, where there is one. */
void rp_delivery_add_cache(json_t *object, const struct rp_delivery *delivery);

#endif
