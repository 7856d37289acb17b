/* SPDX-License-Identifier: Apache-2.0 */
/* stat.h — the answer of `ringpack stat`. */
#ifndef RP_SERVER_STAT_H
#define RP_SERVER_STAT_H

#include "server/engine.h"

/** One JSON object; malloc'ed, NULL when out of memory. */
char *rp_engine_stat(struct rp_engine *engine);
/** Call the observer's `ended`, if there is an observer. */
void rp_engine_stat_end(const struct rp_engine *engine);

#endif
