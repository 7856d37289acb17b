/* SPDX-License-Identifier: Apache-2.0 */
/* watcher.h — the process that raises the alerts of one engine, from its answers of `ringpack stat`
 * and from free space. keeper.h starts it: `ringpack RP_ALERT_WATCHER RUN`, with the socket of
 * messages.h as its standard output.
 *
 * It ends when the other end of the socket is closed, with or without a last message, and takes at
 * most the few seconds that its commands get then. So no watcher is left without its engine,
 * however that ends. SIGTERM, SIGINT and SIGHUP are for the engine: the watcher ignores them.
 *
 * A question that the engine has not answered stays open, and no other is sent (watch/watch.h). So
 * an engine that is stopped gets one question, and has one connection of its watcher. */
#ifndef RP_TOOLS_ALERT_WATCHER_H
#define RP_TOOLS_ALERT_WATCHER_H

#define RP_ALERT_WATCHER "watch-alerts" /* a verb that is in no list: only `serve` types it */

int rp_cmd_watch_alerts(int argc, char **argv);

#endif
