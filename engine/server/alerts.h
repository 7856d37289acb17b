/* SPDX-License-Identifier: Apache-2.0 */
/* alerts.h — the alerts of an engine (alert_... keys of the config): ten times a second its thread
 * compares what it knows anyway with the limits. It never asks a disk and never waits for a
 * command: disk_watch.h and alert_command.h have threads for that. */
#ifndef RP_SERVER_ALERTS_H
#define RP_SERVER_ALERTS_H

#include <jansson.h>

#include "server/engine.h"

/** Nothing is opened where the config asks for no alert. -RP_E_CONFIG: the program of alert_command
 * cannot be run. */
RP_MUST_CHECK int rp_engine_open_alerts(struct rp_engine *engine, struct rp_error *error);
/** Watch the room in the directories into which the engine writes, once they are there. */
RP_MUST_CHECK int rp_engine_watch_disks(struct rp_engine *engine, struct rp_error *error);
/** Raise, tell and clear what has changed since the last check. */
void rp_engine_look_at_alerts(struct rp_engine *engine);
/** `alerts` and `disks` of `ringpack stat`. */
void rp_stat_add_alerts(json_t *object, const struct rp_engine *engine);
/** Commands that are asked for are started, and get a few seconds to end. */
void rp_engine_close_alerts(struct rp_engine *engine);

#endif
