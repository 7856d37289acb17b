/* SPDX-License-Identifier: Apache-2.0 */
/* See trial.h.
 *
 * Threads: from rp_trial_begin until its end is joined, the writer, `code` and `error` are the
 * thread's. */
#include "checkpoint/trial.h"

#include <sys/prctl.h>

#include "base/defect.h"
#include "base/file.h"

static int try_write(const struct rp_trial *trial, struct rp_error *error)
{
    static const uint8_t zeros[4096];
    struct rp_writer *writer = trial->writer;
    int code = trial->sync_names ? rp_dir_sync_names(writer->path, error) : 0;
    if (code < 0)
        return code;
    code = rp_writer_put_bytes(writer, RP_TRIAL_NAME, zeros, sizeof zeros, error);
    if (code < 0)
        return rp_fail_context(error, code, "a test write into the checkpoint directory failed");
    (void)writer->storage->unlink(writer->storage, writer->dir, RP_TRIAL_NAME);
    return 0;
}

static void *trial_main(void *argument)
{
    struct rp_trial *trial = argument;
    trial->code = try_write(trial, &trial->error);
    return NULL;
}

static void *thread_main(void *argument)
{
    prctl(PR_SET_NAME, "trial");
    return trial_main(argument);
}

void rp_trial_begin(struct rp_trial *trial)
{
    RP_ASSERT(!trial->is_under_way);
    trial->is_under_way = pthread_create(&trial->thread, NULL, thread_main, trial) == 0;
    if (!trial->is_under_way)
        (void)trial_main(trial);
}

int rp_trial_finish(struct rp_trial *trial, struct rp_error *error)
{
    if (trial->is_under_way)
        pthread_join(trial->thread, NULL);
    trial->is_under_way = false;
    if (RP_DEFECT(ignore_trial))
        return 0;
    if (trial->code < 0 && error)
        *error = trial->error;
    return trial->code;
}
