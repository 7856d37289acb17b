/* SPDX-License-Identifier: Apache-2.0 */
/* events.h — the descriptors that the engine's thread waits for, beside those of peers and packers
 * (connections.h): wake-ups of other threads, signals, and the lifeline. */
#ifndef RP_SERVER_EVENTS_H
#define RP_SERVER_EVENTS_H

#include "server/engine.h"

/** Make them and watch them. rp_engine_close closes them, after a failure, too. -RP_E_USAGE: the
 * lifeline is a file whose end cannot be waited for. */
RP_MUST_CHECK int rp_engine_open_descriptors(struct rp_engine *engine, struct rp_error *error);

#endif
