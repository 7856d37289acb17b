/* SPDX-License-Identifier: Apache-2.0 */
/* shutdown.h — the events of the engine's life (life.h): it stops, fails, or finds that the stream
 * is finished; and its closing.
 *
 * Invariant: a failed engine publishes no batch; batches that it has published stay valid for
 * consumers that are attached or late. */
#ifndef RP_SERVER_SHUTDOWN_H
#define RP_SERVER_SHUTDOWN_H

#include "server/engine.h"

/** Take a last checkpoint if there is a directory for it, then end. */
void rp_engine_begin_stop(struct rp_engine *engine, enum rp_shutdown shutdown);
/** The lifeline has ended: stop. An engine that stays (server.h) first waits, for a bounded time,
 * until trainers have read to the end; rp_engine_update_life calls this again until it stops. */
void rp_engine_lifeline_ended(struct rp_engine *engine);
/** Stop the stream with *engine->life.error, and inform the trainers. They may still take the
 * published batches. */
void rp_engine_fail(struct rp_engine *engine, int code);
/** After each step of the loop: stop once the stream has ended, no consumer is attached, and every
 * seat's consumer has released all batches or did not attach in time; stop after a failure once no
 * consumer is awaited; end once all checkpoints are taken. */
void rp_engine_update_life(struct rp_engine *engine);
/** Close all that the engine has opened, after a partial start as well. False if the disk of the
 * token files hangs: threads then use the engine and its config until the process ends. */
RP_MUST_CHECK bool rp_engine_close(struct rp_engine *engine);

#endif
