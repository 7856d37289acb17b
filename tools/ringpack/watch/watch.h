/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h — the engines of this node and user, polled for their status: the data of `ps`, `top`,
 * `metrics` and `report`.
 *
 * Invariants:
 *
 *   - A poll waits at most its patience for all engines together. An engine that was silent is not
 *     waited for again.
 *   - An engine has at most one connection of ours: the question that it has not answered stays
 *     open, and no other is queried.
 *   - `stat` is the last answer, and stays after the engine's end: `state` says how current it is.
 */
#ifndef RP_TOOLS_WATCH_H
#define RP_TOOLS_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"
#include "shm/layout.h"

#define RP_WATCHED_MAX 64u

/* state, its word, its meaning */
#define RP_WATCH_STATES(X)                                                                         \
    X(RUNNING, "running", "the engine answers")                                                    \
    X(SILENT, "silent", "the engine does not answer: it is stopped (SIGSTOP) or very busy")        \
    X(KILLED, "killed", "the engine was killed: its socket is there, and no process listens")      \
    X(REFUSED, "refused", "the engine's answer cannot be used")                                    \
    X(STOPPED, "stopped", "no engine of this name is running")                                     \
    X(FINISHED, "finished", "the engine has ended because its stream has ended")

enum rp_watch_state {
#define RP_WATCH_STATE(name, word, meaning) RP_WATCH_##name,
    RP_WATCH_STATES(RP_WATCH_STATE)
#undef RP_WATCH_STATE
        RP_WATCH_STATE_COUNT
};
const char *rp_watch_state_word(enum rp_watch_state state);

struct rp_watched {
    char run[RP_RUN_NAME_BYTES];
    bool is_named; /* on the command line */
    enum rp_watch_state state;
    char why[320]; /* the meaning of the state, or the error */
    int fd;        /* the unanswered request's; -1 = none */
    int pid;       /* the engine's; 0 = not known */
    json_t *stat;  /* NULL = it has never answered */
    uint64_t answered_ns;
};

struct rp_watch {
    const char *run_dir; /* NULL = the default ones */
    struct rp_watched runs[RP_WATCHED_MAX];
    size_t count;
    bool finds;           /* no run was named */
    bool finds_leftovers; /* also runs whose engine had been killed before the first poll */
    bool is_full;         /* there were more runs than RP_WATCHED_MAX */
};

/** Watch the runs of these names or, without names, every run that has an engine: those that are
 * found when a poll begins are watched from then on, also when they have ended. -RP_E_USAGE for a
 * name that no run can have. */
RP_MUST_CHECK int rp_watch_open(struct rp_watch *watch, const char *run_dir,
                                const char *const *names, size_t count, struct rp_error *error);
void rp_watch_close(struct rp_watch *watch);

/** Find the runs and query their engines. An error says that the run directory cannot be used. */
RP_MUST_CHECK int rp_watch_poll(struct rp_watch *watch, uint64_t patience_ns,
                                struct rp_error *error);

/** Whether its process lives, as far as is known. */
bool rp_watch_lives(const struct rp_watched *run);

/** A number of an answer or of an object in it; -1 if it is absent. */
double rp_watch_number(const json_t *object, const char *key);

/** The cause that a rank has waited for longest, as the engine names it; NULL if it has not. */
const char *rp_watch_most_cause(const json_t *rank);

/** How many trainers are attached, by an answer. */
size_t rp_watch_attached(const json_t *stat);

/** Seconds since the process began; negative if that is not known (another user, a container). */
double rp_watch_uptime(int pid);

/** One engine as JSON: run, state, why, pid, uptime_seconds, age_seconds of the answer, stat. */
json_t *rp_watch_json(const struct rp_watched *run, uint64_t now_ns);

#endif
