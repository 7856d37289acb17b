/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.h — a trainer of a job. */
#ifndef RP_TOOLS_TRAINER_H
#define RP_TOOLS_TRAINER_H

#include "job/job.h"

struct rp_trainer_task {
    uint32_t rank;
    const char *journal;
    const void *state; /* the position to continue at; NULL = the row of the engine */
    size_t state_bytes;
    uint64_t until_row;   /* stop when a batch begins here or later */
    bool states, details; /* in the journal */
};
/** Start a trainer that is a fork of this process and uses the C client. */
RP_MUST_CHECK int rp_job_train(struct rp_job *job, struct rp_child *trainer,
                               const struct rp_trainer_task *task, struct rp_error *error);

#endif
