/* SPDX-License-Identifier: Apache-2.0 */
/* read_wait.h — waiting for an engine at the terminal: a message says so, and Ctrl-C ends it. */
#ifndef RP_TOOLS_READ_WAIT_H
#define RP_TOOLS_READ_WAIT_H

#include "base/fail.h"
#include "ringpack/client.h"

#define RP_READ_SILENCE_S 5u /* without an engine, or a batch, until a message says so */

/** rp_client_attach. SIGINT, SIGTERM and SIGHUP end the process until it returns, because nothing
 * is to be cleaned up before; if it succeeds, they are caught from then on (interrupt.h). */
RP_MUST_CHECK int rp_cmd_attach(struct rp_client **client_out,
                                const struct rp_client_options *options, struct rp_error *error);

#endif
