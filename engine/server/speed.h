/* SPDX-License-Identifier: Apache-2.0 */
/* speed.h — how fast an engine goes: its counters as samples of a pace (pace.h). */
#ifndef RP_SERVER_SPEED_H
#define RP_SERVER_SPEED_H

#include "server/engine.h"

/** Read what consumers have released since a step of the flow last did. */
void rp_delivery_poll_rings(struct rp_delivery *delivery);
/** The counters as they are. */
struct rp_pace_sample rp_delivery_pace_sample(const struct rp_delivery *delivery);
/** Keep a sample, if one is due. */
void rp_engine_note_pace(struct rp_engine *engine);

#endif
