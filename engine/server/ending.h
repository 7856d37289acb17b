/* SPDX-License-Identifier: Apache-2.0 */
/* ending.h — how the engine stops, fails, and finds that the stream is finished. */
#ifndef RP_SERVER_ENDING_H
#define RP_SERVER_ENDING_H

#include "server/engine.h"

/** Take a last checkpoint if there is a directory for it, then end. */
void rp_engine_begin_stop(struct rp_engine *engine);
/** *engine->error stops the stream: tell the trainers; what was published is theirs all the same.
 */
void rp_engine_fail(struct rp_engine *engine, int code);
/** "message\nhint": how an error travels to a trainer. */
void rp_engine_error_text(const struct rp_error *error, char text[RP_ENGINE_TEXT_BYTES]);
/** Has the stream ended, everybody had everything, and is nobody there any more? */
bool rp_engine_has_delivered_all(struct rp_engine *engine);

#endif
