/* SPDX-License-Identifier: Apache-2.0 */
/* job.h — a job on this machine: an engine and trainers as child processes that may be killed.
 * `verify`, `demo` and `bench` run jobs.
 *
 * All files of a job are in one directory below TMPDIR: sockets, journals, checkpoints, the log.
 * No process outlives a job: an engine ends when its lifeline closes, a trainer when its parent
 * dies, and the directory is removed at the end, or, after a kill of the job, by the next one. */
#ifndef RP_TOOLS_JOB_H
#define RP_TOOLS_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fail.h"

#define RP_JOB_RUN "job" /* name of the run */

struct rp_job {
    char *dir;          /* directory of all files below; NULL = not open */
    const char *binary; /* program that runs engines */
    bool verbose;       /* children write to stderr instead of to the log */
    int lock_fd, log_fd;
};

/** Remove the directories of killed jobs, make one for this job, and catch SIGINT and SIGTERM. */
RP_MUST_CHECK int rp_job_open(struct rp_job *job, const char *binary, bool verbose,
                              struct rp_error *error);
void rp_job_close(struct rp_job *job);
/** The text of a message after an interrupt (interrupt.h). */
#define RP_JOB_IS_SAFE "no file is left behind"
/** Path of a file of the job; the caller frees it. NULL when out of memory. */
char *rp_job_path(const struct rp_job *job, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** Remove a file or a directory with everything in it. It need not exist. */
void rp_job_remove(const char *path);

/* ---- command lines --------------------------------------------------------------------------- */

#define RP_JOB_WORDS_MAX 640
struct rp_words {
    char *word[RP_JOB_WORDS_MAX];
    size_t count;
    bool failed; /* out of memory, or more than RP_JOB_WORDS_MAX words */
};
void rp_words_add(struct rp_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void rp_words_free(struct rp_words *words);

/* ---- processes ------------------------------------------------------------------------------- */

struct rp_child {
    pid_t pid;                 /* 0 = none */
    int status;                /* the last ended process's, as from waitpid */
    int lifeline_fd, ready_fd; /* an engine's; -1 = none */
    uint64_t started_ns;
    const char *what; /* for messages */
};
#define RP_NO_CHILD ((struct rp_child){.lifeline_fd = -1, .ready_fd = -1})

/** Run the words, a `serve`, with a lifeline and a pipe that reports that it is ready. The child
 * calls `begin` first. */
RP_MUST_CHECK int rp_child_serve(struct rp_child *engine, const char *program,
                                 const struct rp_words *words, void (*begin)(const void *context),
                                 const void *context, struct rp_error *error);
/** Start an engine, `serve` with `words`, with the job's run directory and a lifeline. */
RP_MUST_CHECK int rp_job_serve(struct rp_job *job, struct rp_child *engine,
                               const struct rp_words *words, struct rp_error *error);
/** Wait until trainers can attach. If the engine ends first, the error has the end of its log. */
RP_MUST_CHECK int rp_job_wait_ready(struct rp_job *job, struct rp_child *engine,
                                    struct rp_error *error);
/** Start a program (words[0], found by PATH). Its stdout is redirected to its stderr. */
RP_MUST_CHECK int rp_job_spawn(struct rp_job *job, struct rp_child *child, const char *what,
                               const struct rp_words *words, struct rp_error *error);

/** Fork: the child runs `run` and exits with its result. */
RP_MUST_CHECK int rp_job_fork(struct rp_job *job, struct rp_child *child, const char *what,
                              int (*run)(void *argument), void *argument, struct rp_error *error);

/** A child of the process, for instance a packer of an engine. 0 without one, or if pid is 0. */
pid_t rp_child_of(pid_t pid);
/** Whether the child still runs; reaps it if not. */
bool rp_child_runs(struct rp_child *child);
/** Whether the child has ended with exit status 0. */
bool rp_child_ended_well(const struct rp_child *child);
/** Whether SIGKILL has ended the child. */
bool rp_child_was_killed(const struct rp_child *child);
/** Send a signal (0 = none). `wait`: wait until the child has ended. */
void rp_child_signal(struct rp_child *child, int signal_number, bool wait);
/** The error for a child that ended unexpectedly: its status, and the end of the log. */
int rp_job_explain(struct rp_job *job, const struct rp_child *child, struct rp_error *error);

#endif
