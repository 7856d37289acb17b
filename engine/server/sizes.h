/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.h — the shape of the batch rings and the options of the flow, as far as config, corpus and
 * plan decide them. The memory that follows is in server.h. */
#ifndef RP_SERVER_SIZES_H
#define RP_SERVER_SIZES_H

#include "flow/flow.h"
#include "server/server.h"
#include "shm/ring.h"

/** The shape of a batch ring; its rank and base row are not set. */
struct rp_geometry rp_engine_geometry(const struct rp_config *config,
                                      const struct rp_corpus *corpus, const struct rp_plan *plan);
/** The sections of its batches: the config's, and RP_SECTION_ROW_PLANS in stream version 2. */
uint32_t rp_engine_sections(const struct rp_config *config, const struct rp_plan *plan);
/** The options of a flow; how files are read is not set. */
struct rp_flow_options rp_engine_flow_options(const struct rp_config *config,
                                              const struct rp_corpus *corpus,
                                              const struct rp_plan *plan);

#endif
