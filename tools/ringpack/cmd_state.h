/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_state.h — read the state token of `--state FILE`. */
#ifndef RP_TOOLS_CMD_STATE_H
#define RP_TOOLS_CMD_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"

/** Read a state token from a file of its own, where zeros may follow it as in a trainer's
 * state_dict, or from a checkpoint of an engine. The caller frees *state, which is NULL after a
 * failure. */
RP_MUST_CHECK int rp_cmd_read_state(const char *path, char **state, size_t *bytes,
                                    struct rp_error *error);

/** Whether a file begins with the magic of a state token. */
bool rp_cmd_is_state(const char *path);

#endif
