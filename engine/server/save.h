/* SPDX-License-Identifier: Apache-2.0 */
/* save.h — checkpoints: one at a time, on a thread of their own. */
#ifndef RP_SERVER_SAVE_H
#define RP_SERVER_SAVE_H

#include "server/engine.h"

/** The next checkpoint is due at the next multiple of checkpoint_steps that trainers consume. */
void rp_engine_schedule_save(struct rp_engine *engine);
/** Have the one that is due made at the next occasion; before anything that counts steps anew. */
void rp_engine_want_due_save(struct rp_engine *engine);
/** Begin a checkpoint. Returns true if one was begun or failed at once (which has been reported),
 * false if it has to be tried again later: one is busy, or the state is not at hand yet. */
bool rp_engine_begin_save(struct rp_engine *engine);
/** done_fd was written: release the hold, or take the result and answer those who asked. */
void rp_engine_continue_save(struct rp_engine *engine);
/** Wait until a save under way has copied what it wants from shared memory, which is about to
 * change. */
void rp_engine_finish_copy(struct rp_engine *engine);

#endif
