/* SPDX-License-Identifier: Apache-2.0 */
/* start.h — the start of a run: its checkpoint, corpus, plans and start state. */
#ifndef RP_SERVER_START_H
#define RP_SERVER_START_H

#include "server/engine.h"

/** Refuse a start that needs a checkpoint where there cannot be one, before anything is made. */
RP_MUST_CHECK int rp_engine_check_resume(const struct rp_engine *engine, struct rp_error *error);

/** Open checkpoint, corpus and plans; set the start state. */
RP_MUST_CHECK int rp_engine_find_start(struct rp_engine *engine, struct rp_error *error);

/** Wait for the trial write of the checkpoint directory, and begin the run record and the journal:
 * from here on a save is expected to succeed. A start that is refused earlier leaves record and
 * journal as they were. */
RP_MUST_CHECK int rp_engine_settle_start(struct rp_engine *engine, struct rp_error *error);

/** Give the calendar of stream->plan to the plans that the engine uses besides it. */
RP_MUST_CHECK int rp_engine_share_calendar(struct rp_stream *stream, struct rp_error *error);

/** Forget the contents of the checkpoint, and free its memory. No flow may run. */
void rp_engine_forget_contents(struct rp_stream *stream);

#endif
