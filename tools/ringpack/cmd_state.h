/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_state.h — a state token in a file, which `--state FILE` names. */
#ifndef RP_TOOLS_CMD_STATE_H
#define RP_TOOLS_CMD_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"

/** Read a state token from its own file, also with the zeros that a trainer's state_dict has behind
 * it, or from a checkpoint of an engine. *state is on the heap; NULL after a failure. */
RP_MUST_CHECK int rp_cmd_read_state(const char *path, char **state, size_t *bytes,
                                    struct rp_error *error);

/** Whether a file begins as a state token does. */
bool rp_cmd_is_state(const char *path);

#endif
