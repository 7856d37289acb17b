/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h — the descriptors that wake the engine's thread: for other threads, signals, the lifeline,
 * peers and packers; and the signals that end an engine. */
#ifndef RP_SERVER_LOOP_H
#define RP_SERVER_LOOP_H

#include "server/engine.h"

/** Make the descriptors of the loop, and watch them. rp_engine_close closes them, also after a
 * failure. -RP_E_USAGE: the lifeline is a file whose end cannot be waited for. */
RP_MUST_CHECK int rp_engine_open_descriptors(struct rp_engine *engine, struct rp_error *error);
/** Wake the loop when fd is readable. Closing fd ends it. Returns 0 or -errno. */
int rp_loop_watch(const struct rp_loop *loop, int fd, enum rp_watch watch, uint32_t index);
/** Watch for the end of an attached consumer, of its connection or of its process (a pidfd, or as
 * in peer.h). Closing both ends it. Returns 0 or -errno. */
int rp_loop_watch_end(const struct rp_loop *loop, int socket_fd, int pidfd, uint32_t index);
#define RP_ENDED_MAX 64u
/** Indexes of watched consumers that may have ended; RP_ENDED_MAX: there may be more. An index may
 * be of an earlier consumer. The time does not depend on the number of living ones. */
uint32_t rp_loop_ended(const struct rp_loop *loop, uint32_t indexes[RP_ENDED_MAX]);
/** The next signal that is to end the engine; 0: none has come. The second signal of an engine ends
 * the process here and now; the last checkpoint on disk stays intact. */
int rp_loop_take_signal(struct rp_loop *loop);
/** From now on a signal of ending_signals ends the process at once. To be called before the
 * engine is closed: closing waits for reads, and reads of a hung disk cannot be cancelled.
 * Everything is saved by then. */
void rp_loop_exit_at_signals(const struct rp_loop *loop);

#endif
