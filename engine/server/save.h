/* SPDX-License-Identifier: Apache-2.0 */
/* save.h — checkpoints: when they are taken, from which row, and their results. One save runs at a
 * time; its threads are in saver.c. */
#ifndef RP_SERVER_SAVE_H
#define RP_SERVER_SAVE_H

#include "server/engine.h"

/** Make the next checkpoint due when the next multiple of checkpoint_steps is consumed. */
void rp_engine_schedule_save(struct rp_engine *engine);
/** Want a checkpoint if one is due. To be called before the flow stops, since rp_engine_start_flow
 * sets the next due step again. */
void rp_engine_want_due_save(struct rp_engine *engine);
/** Can a peer request a checkpoint? There is a directory, and the last save has not begun. */
bool rp_engine_may_save(const struct rp_engine *engine);
/** May an engine end? No checkpoint is wanted or under way, and no check of token files. */
bool rp_saving_is_idle(const struct rp_saving *saving);
/** Want a checkpoint as soon as none is under way. */
void rp_saving_want(struct rp_saving *saving);
/** Begin a checkpoint if one is wanted, or due because trainers have consumed checkpoint_steps
 * steps. */
void rp_engine_save_when_due(struct rp_engine *engine);
/** The saver's done_fd was written: do the engine's part of each state that the save has reached.
 */
void rp_engine_continue_save(struct rp_engine *engine);
/** The newest checkpoint of the directory, at `path`, has this state token, which the engine owns
 * from now on; NULL: it is not known. A save of the same state copies no contents: it only checks
 * whether that checkpoint still verifies, and writes one without contents if not. */
void rp_saving_set_newest(struct rp_saving *saving, void *token, size_t bytes, const char *path);
/** Wait until a save under way has copied its contents from shared memory. To be called before
 * that memory changes. */
void rp_engine_finish_copy(struct rp_engine *engine);

#endif
