/* SPDX-License-Identifier: Apache-2.0 */
/* other_streams.h — keeps an engine for each stream of a config but the main one, whose engine is
 * this process. `serve` calls it. Each is a child, `ringpack serve --stream NAME` with the same
 * file and options, and lives no longer than this process: it has a lifeline.
 *
 *   event                          action
 *   -----------------------------  ---------------------------------------------------------------
 *   a child dies                   the next one is started, after a pause that grows; trainers find
 *                                  it at their row. After DEATHS_MAX in turn, each within YOUNG_NS
 *                                  of its start, the log says that the stream is not served
 *   a child cannot start at first  rp_other_streams_open returns RP_OTHER_STREAM_FAILED
 *   an engine has its name         it is awaited: one of a killed predecessor lets trainers finish
 *   this process ends              lifelines are closed; after a signal they get SIGTERM
 *
 * A thread waits for the children. */
#ifndef RP_TOOLS_OTHER_STREAMS_H
#define RP_TOOLS_OTHER_STREAMS_H

#include <stdbool.h>

#include "options.h"

struct rp_other_streams;

/** Whether the config of this command line has several streams, and none is chosen. */
bool rp_other_streams_is_for(const struct rp_cmd_line *line);

/** Finish the config of each stream, so that nothing is started if one has a mistake. */
RP_MUST_CHECK int rp_other_streams_check(const struct rp_cmd_line *line, struct rp_error *error);

#define RP_OTHER_STREAM_FAILED 1

/** Start the children, and wait until trainers can attach to them. RP_OTHER_STREAM_FAILED: one
 * could not start, and has printed the reason. The line must live as long as the engines. */
RP_MUST_CHECK int rp_other_streams_open(struct rp_other_streams **out,
                                        const struct rp_cmd_line *line, struct rp_error *error);

/** End the children, at once or when their trainers have finished a pass, and wait for them. NULL
 * is fine. */
void rp_other_streams_close(struct rp_other_streams *engines, bool at_once);

#endif
