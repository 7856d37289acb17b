/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h — the descriptors that wake the engine's thread: of other threads, of signals, of the
 * lifeline, of peers and packers. */
#ifndef RP_SERVER_LOOP_H
#define RP_SERVER_LOOP_H

#include "server/engine.h"

/** Make the descriptors of the loop, and watch them. rp_engine_close closes them, also after a
 * failure. -RP_E_USAGE: the lifeline is a file whose end cannot be waited for. */
RP_MUST_CHECK int rp_engine_open_descriptors(struct rp_engine *engine, struct rp_error *error);
/** Wake the loop when fd is readable. Closing fd ends it. Returns 0 or -errno. */
int rp_loop_watch(struct rp_loop *loop, int fd, enum rp_watch watch, uint32_t index);
/** From now on a signal ends the process at once. For closing: reads of a hung disk cannot be
 * cancelled, and closing waits for them. Everything worth keeping is saved by then. */
void rp_loop_let_signals_end_us(const struct rp_loop *loop);

#endif
