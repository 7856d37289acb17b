/* SPDX-License-Identifier: Apache-2.0 */
/* command.h — what a command of the user prints: keys, or a token. It is a command line for `sh`,
 * and is killed, with its children, when it takes too long or somebody stops us. */
#ifndef RP_OBJECT_COMMAND_H
#define RP_OBJECT_COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/stop.h"

#define RP_COMMAND_STALLS 3u /* a command may take so many times as long as a connection */

struct rp_command {
    const char *name; /* what it is, for people: the line itself may hold a secret */
    const char *line;
    uint32_t limit_s;
    struct rp_stopper stopper;
};

/** Its whole output, with a NUL after it; the caller frees it with rp_free_secret. -RP_E_TIMEOUT:
 * it took too long; -RP_E_STOPPED; -RP_E_RESOURCE: it failed. */
RP_MUST_CHECK int rp_command_output(const struct rp_command *command, char **text_out,
                                    struct rp_error *error);

#endif
