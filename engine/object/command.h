/* SPDX-License-Identifier: Apache-2.0 */
/* command.h — run a command of the user that prints keys or a token. The line is for `sh`; the
 * command is killed, with its children, if it exceeds its time limit or the engine is stopped. */
#ifndef RP_OBJECT_COMMAND_H
#define RP_OBJECT_COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/stop.h"

#define RP_COMMAND_STALLS 3u /* time limit of a command, in stall limits of a connection */

struct rp_command {
    const char *name; /* for messages: the line itself may hold a secret */
    const char *line;
    uint32_t limit_s;
    struct rp_stopper stopper;
};

/** Return the whole output of the command, with a NUL after it; the caller frees it with
 * rp_free_secret. -RP_E_TIMEOUT: the time limit is over; -RP_E_STOPPED; -RP_E_RESOURCE: the command
 * failed. */
RP_MUST_CHECK int rp_command_output(const struct rp_command *command, char **text_out,
                                    struct rp_error *error);

#endif
