/* SPDX-License-Identifier: Apache-2.0 */
/* trial.h — engines and trainers that are started to be killed: what `verify` and `demo` share.
 *
 * Everything a trial makes lies in one directory below TMPDIR: sockets, journals, checkpoints, the
 * log. Nothing of a trial outlives it: engines hang on a lifeline, trainers on their parent's
 * death, and the directory is removed at the end, or, when the trial itself was killed, by the next
 * one. */
#ifndef RP_TOOLS_TRIAL_H
#define RP_TOOLS_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fail.h"

#define RP_TRIAL_RUN "trial" /* name of the run */

struct rp_trial {
    char *dir;          /* of everything below; NULL = not open */
    const char *binary; /* that serves */
    bool verbose;       /* children write to stderr instead of to the log */
    int lock_fd, log_fd;
};

/** Remove what killed trials left, make the directory, catch SIGINT and SIGTERM. */
RP_MUST_CHECK int rp_trial_open(struct rp_trial *trial, const char *binary, bool verbose,
                                struct rp_error *error);
void rp_trial_close(struct rp_trial *trial);
/** Ctrl-C was pressed, or SIGTERM came: give up. */
bool rp_trial_interrupted(void);
/** -RP_E_STOPPED if so, else 0. */
RP_MUST_CHECK int rp_trial_check(struct rp_error *error);
/** Path of a file of the trial; the caller frees it. NULL when out of memory. */
char *rp_trial_path(const struct rp_trial *trial, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** rm -r, below the trial's directory or not. What is not there is fine. */
void rp_trial_remove(const char *path);

/* ---- command lines --------------------------------------------------------------------------- */

#define RP_TRIAL_WORDS_MAX 640
struct rp_words {
    char *word[RP_TRIAL_WORDS_MAX];
    size_t count;
    bool failed; /* out of memory, or too many */
};
void rp_words_add(struct rp_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void rp_words_free(struct rp_words *words);

/* ---- processes ------------------------------------------------------------------------------- */

struct rp_child {
    pid_t pid;                 /* 0 = none */
    int status;                /* of the last one that ended here, as from waitpid */
    int lifeline_fd, ready_fd; /* of an engine; -1 = none */
    uint64_t started_ns;
    const char *what; /* for messages */
};
#define RP_NO_CHILD ((struct rp_child){.lifeline_fd = -1, .ready_fd = -1})

/** Start the engine: `serve` with `words` behind it, in the trial's run_dir, on a lifeline. */
RP_MUST_CHECK int rp_trial_serve(struct rp_trial *trial, struct rp_child *engine,
                                 const struct rp_words *words, struct rp_error *error);
/** Wait until trainers can attach. An engine that ended: its last words. */
RP_MUST_CHECK int rp_trial_wait_ready(struct rp_trial *trial, struct rp_child *engine,
                                      struct rp_error *error);
/** Start a program (words[0], found by PATH). Its stdout goes where its stderr goes. */
RP_MUST_CHECK int rp_trial_spawn(struct rp_trial *trial, struct rp_child *child, const char *what,
                                 const struct rp_words *words, struct rp_error *error);

/** Fork: the child runs `run` and exits with what it returns. */
RP_MUST_CHECK int rp_trial_fork(struct rp_trial *trial, struct rp_child *child, const char *what,
                                int (*run)(void *argument), void *argument, struct rp_error *error);

/* What a trainer is told. */
struct rp_trainer_task {
    uint32_t rank;
    const char *journal;
    const void *state; /* to go on from; NULL = where the engine stands */
    size_t state_bytes;
    uint64_t until_row;   /* stop when a batch begins here or later */
    bool states, details; /* in the journal */
};
/** Start a trainer that is a fork of this process and uses the C client. */
RP_MUST_CHECK int rp_trial_train(struct rp_trial *trial, struct rp_child *trainer,
                                 const struct rp_trainer_task *task, struct rp_error *error);

/** What such a trainer does: trial_trainer.c. Returns its exit status. */
int rp_trainer_run(const struct rp_trial *trial, const struct rp_trainer_task *task);

/** Whether the child still runs; reaps it if not. */
bool rp_child_runs(struct rp_child *child);
/** The child has ended by itself with exit status 0. */
bool rp_child_ended_well(const struct rp_child *child);
/** The child was ended by SIGKILL. */
bool rp_child_was_killed(const struct rp_child *child);
/** Send a signal; `wait` for the end and reap. */
void rp_child_signal(struct rp_child *child, int signal_number, bool wait);
/** The child ended by itself and not well: say so, with the last lines of the log. */
int rp_trial_explain(struct rp_trial *trial, const struct rp_child *child, struct rp_error *error);

#endif
