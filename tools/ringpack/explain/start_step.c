/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/start_step.h"

#include <inttypes.h>
#include <stdlib.h>

#include "checkpoint/checkpoint.h"
#include "explain/walk.h"
#include "explain/steps.h"

/* Refuse a directory (NULL = none) whose newest checkpoint, if any, is not at the row. */
static int check_newest(const char *directory, uint64_t row, uint64_t step, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint = NULL;
    int code = directory ? rp_checkpoint_newest(&checkpoint, directory, false, error) : 0;
    if (code <= 0)
        return code;
    uint64_t found = rp_checkpoint_info(checkpoint)->next_row;
    if (found != row)
        code = rp_fail(
            error, -RP_E_USAGE,
            "leave --start-step out to continue from the checkpoint; `ringpack checkpoint "
            "rewind` goes back to an older one; `ringpack state --step N -o FILE` and "
            "`--state FILE` start at the step in spite of it",
            "--start-step %" PRIu64 " begins at row %" PRIu64 ", and %s is at row "
            "%" PRIu64,
            step, row, rp_checkpoint_path(checkpoint), found);
    rp_checkpoint_close(checkpoint);
    return code < 0 ? code : 0;
}

static int take_token(const struct rp_start_step *start, const struct rp_config *config,
                      const struct rp_steps *steps, char **state, size_t *bytes,
                      struct rp_error *error)
{
    struct rp_walk walk;
    int code = rp_walk_open(&walk, config, NULL, 0, NULL, error);
    if (code < 0)
        return code;
    code = rp_walk_to_step(&walk, steps, start->step, error);
    if (code == 0) {
        *state = walk.near.token;
        *bytes = walk.near.bytes;
        walk.near.token = NULL;
    }
    rp_walk_close(&walk);
    return code;
}

int rp_start_at_step(const struct rp_start_step *start, const struct rp_config *config,
                     char **state, size_t *bytes, struct rp_error *error)
{
    struct rp_steps steps = rp_steps_of(config, start->base_row);
    uint64_t row;
    int code = rp_steps_first(&steps, start->step, &row, error);
    if (code == 0 && config->resume == RP_RESUME_FRESH)
        code = rp_fail(error, -RP_E_USAGE, "give one of them",
                       "--start-step, and resume: fresh, which starts at row 0");
    if (code == 0)
        code = check_newest(config->checkpoint_dir, row, start->step, error);
    if (code == 0)
        code = check_newest(config->checkpoint_mirror_dir, row, start->step, error);
    return code < 0 ? code : take_token(start, config, &steps, state, bytes, error);
}
