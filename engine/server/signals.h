/* SPDX-License-Identifier: Apache-2.0 */
/* signals.h — see signals.c for what the engine does with each signal. */
#ifndef RP_SERVER_SIGNALS_H
#define RP_SERVER_SIGNALS_H

#include "server/engine.h"

/** Block the signals that end the engine, ignore those that it has no use for, and return a
 * signalfd of the blocked ones, or -1 with errno. To be called before any thread is started. */
int rp_loop_take_signals(struct rp_loop *loop);

/** Read what the descriptor has: the first signal stops the engine after a checkpoint, the second
 * one ends the process at once. */
void rp_engine_serve_signal(struct rp_engine *engine);

/** From now on a signal ends the process at once. For closing: reads of a hung disk cannot be
 * cancelled, and closing waits for them. Everything worth keeping is saved by then. */
void rp_loop_let_signals_end_us(const struct rp_loop *loop);

#endif
