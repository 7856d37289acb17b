/* SPDX-License-Identifier: Apache-2.0 */
/* trial_trainer — the trainer of a trial: take a batch, write it down, return it, until the end. */
#include <errno.h>
#include <stdio.h>

#include "cmd.h"
#include "journal.h"
#include "ringpack/client.h"
#include "base/mem.h"
#include "trial.h"

#define CONNECT_NS UINT64_C(60000000000)

static int train(struct rp_client *client, struct rp_journal_writer *journal, uint64_t until_row,
                 struct rp_error *error)
{
    struct rp_batch batch;
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

int rp_trainer_run(const struct rp_trial *trial, const struct rp_trainer_task *task)
{
    struct rp_error error = {0};
    struct rp_journal_writer journal = {.fd = -1};
    struct rp_client *client = NULL;
    char *run_dir = rp_trial_path(trial, "run");
    struct rp_client_options options = {.run = RP_TRIAL_RUN,
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
