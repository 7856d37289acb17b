/* SPDX-License-Identifier: Apache-2.0 */
/* keeper.h — keeps a watcher (watcher.h) for the engine of this process, and its answers of
 * `ringpack stat` complete. `serve` calls it; an engine whose config enables no alert gets no
 * watcher.
 *
 *   event                       action
 *   --------------------------  --------------------------------------------------------------
 *   trainers can attach         a watcher is started
 *   the watcher ends or dies    its commands are killed; the next one gets its knowledge, after a
 *                               pause that grows. No more than DEATHS_MAX in turn, each within
 *                               YOUNG_NS of its start: then the log says that alerts are over
 *   the engine ends             the watcher gets a last message, and a few seconds; the rest
 *                               then is killed
 *   this process is killed      the watcher finds its socket closed, and ends
 *
 * A thread waits for the watcher. The engine's thread only takes a lock. */
#ifndef RP_TOOLS_ALERT_KEEPER_H
#define RP_TOOLS_ALERT_KEEPER_H

#include "base/fail.h"
#include "config/config.h"
#include "server/server.h"

struct rp_alert_keeper;

/** -RP_E_CONFIG: the program of alert_command cannot be run. */
RP_MUST_CHECK int rp_alert_keeper_open(struct rp_alert_keeper **out, const struct rp_config *config,
                                       struct rp_error *error);
const struct rp_engine_observer *rp_alert_keeper_observer(struct rp_alert_keeper *keeper);
/** Waits for the watcher of an engine that has ended. NULL is fine. */
void rp_alert_keeper_close(struct rp_alert_keeper *keeper);

#endif
