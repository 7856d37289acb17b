/* SPDX-License-Identifier: Apache-2.0 */
/* trial.h — the trial write into a directory of checkpoints: a small file, with all the calls of a
 * save in their order, so that a failure of the first save shows at the start.
 *
 * The names of the directory and of all above it are synced first, because a power cut that removes
 * the directory loses its checkpoints. All of it can run on a thread, in parallel with the rest of
 * a start: a disk needs several milliseconds for it. */
#ifndef RP_CHECKPOINT_TRIAL_H
#define RP_CHECKPOINT_TRIAL_H

#include <pthread.h>

#include "checkpoint/writer.h"

#define RP_TRIAL_NAME ".probe"

/* Zeroed, and with the first two members set, it has not begun. The writer is the trial's from its
 * beginning until it is finished. */
struct rp_trial {
    struct rp_writer *writer;
    bool sync_names; /* first sync the names of the directory and of all above it */
    pthread_t thread;
    bool is_under_way; /* the thread has not been joined */
    int code;          /* once it is finished: 0, or of `error` */
    struct rp_error error;
};

/** Begin the trial on a thread; if none can be started, run it at once. */
void rp_trial_begin(struct rp_trial *trial);
/** Wait for the end of a trial that was begun, and return its result. May be called again. */
RP_MUST_CHECK int rp_trial_finish(struct rp_trial *trial, struct rp_error *error);

#endif
