/* SPDX-License-Identifier: Apache-2.0 */
/* memory_lines.h — the memory of an engine in the report of `ringpack plan`. */
#ifndef RP_TOOLS_MEMORY_LINES_H
#define RP_TOOLS_MEMORY_LINES_H

#include <jansson.h>

#include "config/config.h"
#include "server/server.h"

void rp_memory_lines_print(const struct rp_config *config, const struct rp_engine_memory *memory);
/** The same as an object. A new reference. */
json_t *rp_memory_lines_json(const struct rp_engine_memory *memory);

#endif
