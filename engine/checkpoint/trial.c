/* SPDX-License-Identifier: Apache-2.0 */
/* See trial.h.
 *
 * Threads: from rp_trial_begin until its end is joined, the writer, `code` and `error` are the
 * thread's. */
#include "checkpoint/trial.h"

#include <sys/prctl.h>

#include "base/file.h"
#include "base/thread.h"

/* The calls of a save (image.c): the head of the file is written last, and the file is read back
 * under its name. Some mounts of object stores write in order only, and would refuse each save. */
static int put_as_a_save(struct rp_writer *writer, struct rp_error *error)
{
    static const uint8_t zeros[4096];
    struct rp_checkpoint_piece piece = {zeros, sizeof zeros};
    struct rp_writer_span part = {&piece, 1, sizeof zeros, rp_hash128(zeros, sizeof zeros), NULL};
    struct rp_writer_span spans[] = {part, part};
    struct rp_writer_file file = {.spans = spans, .span_count = 2, .is_read_back_later = true};
    int code = rp_writer_put(writer, RP_TRIAL_NAME, &file, error);
    if (code < 0)
        return code;
    code = rp_writer_read_back(writer, RP_TRIAL_NAME, &file, error);
    (void)writer->storage->unlink(writer->storage, writer->dir, RP_TRIAL_NAME);
    return code;
}

static int try_write(const struct rp_trial *trial, struct rp_error *error)
{
    struct rp_writer *writer = trial->writer;
    int code = trial->sync_names ? rp_dir_sync_names(writer->path, error) : 0;
    if (code < 0)
        return code;
    code = put_as_a_save(writer, error);
    return code < 0
               ? rp_fail_context(error, code, "a test write into the checkpoint directory failed")
               : 0;
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
    trial->is_under_way = rp_thread_try(&trial->thread, thread_main, trial) == 0;
    if (!trial->is_under_way)
        (void)trial_main(trial);
}

int rp_trial_finish(struct rp_trial *trial, struct rp_error *error)
{
    if (trial->is_under_way)
        pthread_join(trial->thread, NULL);
    trial->is_under_way = false;
    if (trial->code < 0 && error)
        *error = trial->error;
    return trial->code;
}
