/* SPDX-License-Identifier: Apache-2.0 */
/* read_mode.h — the read modes of token files (flow/residency.h): the choice at the start, and the
 * recent share of each mode with the reason, for the log and for `ringpack stat`. */
#ifndef RP_SERVER_READ_MODE_H
#define RP_SERVER_READ_MODE_H

#include <jansson.h>

#include "server/engine.h"

/** Choose how files are read at the start, set it in `options`, and log it with `why`
 * (rp_stream_choose_io). A flow that adapts may change it later. Objects in stores are read by
 * requests in any case. */
void rp_engine_choose_read_mode(struct rp_engine *engine, struct rp_flow_options *options,
                                const char *why);

/** After each sample of the rates: log the mode of most tokens, if the log named another one last.
 */
void rp_engine_log_read_mode(struct rp_engine *engine);
/** After each start of readers: if io_uring was refused to one, log that, once, with the reason. */
void rp_engine_log_refused_readers(struct rp_engine *engine);
/** Add the keys of `ringpack stat` about reading, from `io` on. */
void rp_stat_add_read_mode(json_t *object, const struct rp_engine *engine,
                           const struct rp_flow_counts *counts);

#endif
