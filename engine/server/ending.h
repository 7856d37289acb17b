/* SPDX-License-Identifier: Apache-2.0 */
/* ending.h — how the engine stops, fails, and finds that the stream is finished.
 *
 * Invariants:
 *
 *   - Phases follow in the order RUNNING, FAILED, STOPPING, DONE; any of them may be left out.
 *   - exit_code is negative if and only if *engine->error says why. A failed engine publishes no
 *     batch; batches that it has published stay valid for consumers that are attached or late.
 *   - STOPPING begins with a last checkpoint, where there is a directory for it, and ends when that
 *     is written or has failed. */
#ifndef RP_SERVER_ENDING_H
#define RP_SERVER_ENDING_H

#include "server/engine.h"

/** Take a last checkpoint if there is a directory for it, then end. */
void rp_engine_begin_stop(struct rp_engine *engine, enum rp_ending ending);
/** Stop the stream with *engine->error, and tell the trainers. They may still take the batches that
 * were published. */
void rp_engine_fail(struct rp_engine *engine, int code);
/** "message\nhint": how an error travels to a trainer. */
void rp_engine_error_text(const struct rp_error *error, char text[RP_ENGINE_TEXT_BYTES]);
/** Begin to stop once the stream has ended, no consumer is attached, and every seat's consumer has
 * released all batches or did not attach in time. Only while the engine is RUNNING. */
void rp_engine_stop_when_delivered(struct rp_engine *engine);

#endif
