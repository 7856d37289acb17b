/* SPDX-License-Identifier: Apache-2.0 */
/* start_step.h — `serve --start-step N`: begin at any step. */
#ifndef RP_TOOLS_START_STEP_H
#define RP_TOOLS_START_STEP_H

#include <stddef.h>

#include "config/config.h"

struct rp_start_step {
    uint64_t step, base_row;
    bool is_given;
};

/** Make the state token of the step; the caller frees *state. If the run has a checkpoint at
 * another row, the two contradict each other: that is refused by name. */
RP_MUST_CHECK int rp_start_at_step(const struct rp_start_step *start,
                                   const struct rp_config *config, char **state, size_t *bytes,
                                   struct rp_error *error);

#endif
