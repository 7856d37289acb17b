/* SPDX-License-Identifier: Apache-2.0 */
/* save.h — checkpoints: one at a time, on a thread of their own. save.c says what they hold. */
#ifndef RP_SERVER_SAVE_H
#define RP_SERVER_SAVE_H

#include "server/engine.h"

/** The next checkpoint is due when the next multiple of checkpoint_steps is consumed. */
void rp_engine_schedule_save(struct rp_engine *engine);
/** If a checkpoint is due, want it. To be called before steps are counted anew. */
void rp_engine_want_due_save(struct rp_engine *engine);
/** Begin a checkpoint. Returns true if one was begun, or failed at once and was reported; false if
 * it has to be tried again later, because one is under way or the state token is not at hand yet.
 */
bool rp_engine_begin_save(struct rp_engine *engine);
/** done_fd was written: follow the saver's thread to the state that it has reached. */
void rp_engine_continue_save(struct rp_engine *engine);
/** Wait until a save under way has copied what it wants from shared memory, which is about to
 * change. */
void rp_engine_finish_copy(struct rp_engine *engine);

#endif
