/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_show.h — a checkpoint, a state token and a list of checkpoints, as text and as JSON.
 */
#ifndef RP_TOOLS_CHECKPOINT_SHOW_H
#define RP_TOOLS_CHECKPOINT_SHOW_H

#include <jansson.h>

#include "checkpoint/checkpoint.h"
#include "plan/plan.h"

/** Decode the state token of a checkpoint. Both must have the same next_row. */
RP_MUST_CHECK int rp_show_checkpoint_token(const struct rp_checkpoint *checkpoint,
                                           struct rp_state_info *token, struct rp_error *error);

/** Show a checkpoint, the newest of a directory, or a file with a state token: as text, or, unless
 * `json` is NULL, as *json. Returns the exit status; errors have been reported. */
int rp_show_path(const char *path, json_t **json);

void rp_show_checkpoint_entries_print(const struct rp_checkpoint_entry *entries, size_t count);
json_t *rp_show_checkpoint_entries_json(const struct rp_checkpoint_entry *entries, size_t count);

#endif
