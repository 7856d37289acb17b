/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.c — the trainer of a job: take each batch, record it in the journal, release it. */
#include <errno.h>

#include "cmd.h"
#include "job/journal.h"
#include "ringpack/client.h"
#include "job/trainer.h"

#define CONNECT_NS UINT64_C(60000000000)

static int train(struct rp_client *client, struct rp_journal_writer *journal, uint64_t until_row,
                 struct rp_error *error)
{
    struct rp_batch batch = {.struct_size = sizeof batch};
    int code = rp_journal_attached(journal, client, error);
    while (code >= 0) {
        code = rp_client_next(client, -1, &batch, error);
        if (code == RP_NEXT_END || (code == RP_NEXT_BATCH && batch.first_row >= until_row))
            return 0;
        if (code != RP_NEXT_BATCH)
            continue;
        code = rp_journal_batch(journal, client, &batch, error);
        if (code >= 0)
            code = rp_client_release(client, &batch);
    }
    return code;
}

static int run_task(const struct rp_job *job, const struct rp_trainer_task *task)
{
    struct rp_error error = {0};
    struct rp_journal_writer journal = {.fd = -1};
    struct rp_client *client = NULL;
    char *run_dir = rp_job_path(job, "run");
    struct rp_client_options options = {.struct_size = sizeof options,
                                        .run = RP_JOB_RUN,
                                        .run_dir = run_dir,
                                        .rank = task->rank,
                                        .state = task->state,
                                        .state_bytes = task->state_bytes,
                                        .connect_timeout_ns = CONNECT_NS};
    int code = run_dir
                   ? rp_journal_create(&journal, task->journal, task->states, task->details, &error)
                   : rp_fail(&error, -ENOMEM, NULL, "a trainer: out of memory");
    if (code >= 0)
        code = rp_client_attach(&client, &options, &error);
    if (code >= 0)
        code = train(client, &journal, task->until_row, &error);
    rp_client_detach(client);
    rp_journal_close(&journal);
    free(run_dir);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

struct training {
    const struct rp_job *job;
    const struct rp_trainer_task *task;
};

static int run_trainer(void *argument)
{
    const struct training *training = argument;
    return run_task(training->job, training->task);
}

int rp_job_train(struct rp_job *job, struct rp_child *trainer, const struct rp_trainer_task *task,
                 struct rp_error *error)
{
    struct training training = {job, task};
    return rp_job_fork(job, trainer, "a trainer", run_trainer, &training, error);
}
