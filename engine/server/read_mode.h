/* SPDX-License-Identifier: Apache-2.0 */
/* read_mode.h — how tokens are taken from files: the choice at the start, the ways of the recent
 * past, and why, for the log and for status. */
#ifndef RP_SERVER_READ_MODE_H
#define RP_SERVER_READ_MODE_H

#include <jansson.h>

#include "server/engine.h"

/** Set in `options` how files are read at the start, and log it with `why` (rp_stream_choose_io);
 * if the flow adapts, that changes later. Objects in stores are read by requests, whatever is
 * chosen for files. */
void rp_engine_choose_read_mode(struct rp_engine *engine, struct rp_flow_options *options,
                                const char *why);

/** After each sample of the rates: log how tokens are taken when most of them are taken another way
 * than before. */
void rp_engine_note_read_mode(struct rp_engine *engine);
/** After each start of readers: log, once, that io_uring was refused to one, and why. */
void rp_engine_note_readers(struct rp_engine *engine);
/** The keys of `ringpack stat` about it, from `io` on. */
void rp_stat_add_read_mode(json_t *object, const struct rp_engine *engine,
                           const struct rp_flow_counts *counts);

#endif
