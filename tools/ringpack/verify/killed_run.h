/* SPDX-License-Identifier: Apache-2.0 */
/* killed_run.h — the run that is killed and resumed. Its files: passes.c (passes and lives),
 * processes.c (starting and killing), committed.c (the rows of journals), leftovers.c (the
 * leftovers of a pass), stall.c (diagnosis of a run that has stalled). */
#ifndef RP_TOOLS_KILLED_RUN_H
#define RP_TOOLS_KILLED_RUN_H

#include "verify/verify.h"

#define RP_VERIFY_RANKS_MAX 4u

struct rp_verify_token {
    void *data; /* NULL = none */
    size_t bytes;
};

struct rp_rank {
    struct rp_child child;
    struct rp_journal_reader journal;
    bool attached, done;
    uint64_t next_row, last_row;  /* row after its last batch; 1 + last row in its journals */
    struct rp_verify_token state; /* at next_row */
};

/* A row of a journal, and its contribution to the digest of the stream. */
struct rp_note {
    uint64_t row;
    struct rp_hash128 digest;
};
struct rp_notes {
    struct rp_note *notes;
    uint64_t count, capacity;
};

/* How often a row was committed in this pass. */
struct rp_commitment {
    uint64_t times;
    struct rp_hash128 digest;
};

struct rp_killed_life {
    uint32_t world, rows; /* ranks; rows of a micro-batch */
    struct rp_rank ranks[RP_VERIFY_RANKS_MAX];
    bool begun; /* a rank has attached: start_row is known */
    uint64_t start_row;
    struct rp_verify_token start; /* at start_row */
    /* State token that the ranks got at their start; none = the row of the engine. */
    struct rp_verify_token given;
    struct rp_notes notes;
};

struct rp_campaign {
    struct rp_verify *v;
    struct rp_killed_life life;
    struct rp_child engine;
    bool engine_ready, packer_processes;
    uint64_t random, journals;
    uint64_t rows_a_kill;
    struct rp_notes pending; /* the previous life's; committed or not when this life begins */
    struct rp_commitment *committed; /* [row] */
    uint64_t furthest;               /* greatest next_row of a rank in this pass */
    uint64_t committed_end;          /* all rows from here on are committed 0 times */
    off_t log_begin;                 /* begin of this pass in the job's log */
    uint64_t ended_ns;               /* when the engine was first seen to have ended well, or 0 */
    uint64_t drawn_ns;               /* the progress line */
};

/* committed.c */
/** Replace *token by a copy of `data`; NULL = no token. */
RP_MUST_CHECK int rp_verify_copy_token(struct rp_verify_token *token, const void *data,
                                       size_t bytes, struct rp_error *error);
/** Read the new records of all journals, and compare their rows. */
RP_MUST_CHECK int rp_verify_take_journals(struct rp_campaign *c, struct rp_error *error);
/** The last state token that all ranks have recorded, or their first one. */
const struct rp_verify_token *rp_verify_common_state(const struct rp_killed_life *life);
/** At the end of a pass: commit the rest, count the rows that are not committed exactly once, and
 * reset. */
void rp_verify_check_pass(struct rp_campaign *c);

/* processes.c */
uint64_t rp_verify_draw(struct rp_campaign *c, uint64_t below);
/** Choose numbers of ranks and rows that divide a step. */
void rp_verify_draw_topology(struct rp_campaign *c);
/** Add the options that the user typed, or those that divide rows over `world` ranks. */
void rp_verify_add_typed(const struct rp_verify *v, struct rp_words *words);
void rp_verify_add_topology(const struct rp_verify *v, struct rp_words *words, uint32_t world,
                            uint32_t rows);
/** Start an engine for the ranks of this life; its other settings are random. `token`: path of a
 * state token, or NULL. */
RP_MUST_CHECK int rp_verify_start_engine(struct rp_campaign *c, const char *token,
                                         struct rp_error *error);
RP_MUST_CHECK int rp_verify_start_rank(struct rp_campaign *c, uint32_t r,
                                       const struct rp_verify_token *token, struct rp_error *error);
/** Begin a life: start all ranks with the state token life.given. */
RP_MUST_CHECK int rp_verify_start_ranks(struct rp_campaign *c, struct rp_error *error);
/** Kill the ranks of the life. Their rows are pending until the next life begins. */
void rp_verify_end_life(struct rp_campaign *c);
/** Whether the child has killed itself, which is no failure if v->points is set. */
bool rp_verify_killed_itself(const struct rp_campaign *c, const struct rp_child *child);
/** Replace the processes that have killed themselves. Returns how many they were. */
RP_MUST_CHECK int rp_verify_recover(struct rp_campaign *c, struct rp_error *error);
/** Stop some processes (SIGSTOP) for some milliseconds, as if they hung. One time in three all
 * processes are killed while some are stopped. */
RP_MUST_CHECK int rp_verify_pause(struct rp_campaign *c, struct rp_error *error);
/** Kill a random process or set of processes, and replace it. */
RP_MUST_CHECK int rp_verify_kill(struct rp_campaign *c, struct rp_error *error);
/** End the engine by SIGTERM. An engine that kills itself meanwhile is replaced, and ended again.
 */
RP_MUST_CHECK int rp_verify_end_engine(struct rp_campaign *c, struct rp_error *error);

/* stall.c */
/** Print to stderr where the threads of all processes are, the locks, and the end of the log. */
void rp_verify_show_processes(const struct rp_campaign *c);
/** The error for a stream that has stalled, after printing the state of ranks, engine and
 * processes. -RP_E_TIMEOUT. */
RP_MUST_CHECK int rp_verify_fail_stalled(struct rp_campaign *c, uint64_t since_ns,
                                         struct rp_error *error);

/** The error for a child that ended unexpectedly, with the end of the log; if v->points is set,
 * also the state of all processes. */
RP_MUST_CHECK int rp_verify_fail_ended(struct rp_campaign *c, const struct rp_child *child,
                                       struct rp_error *error);

/* leftovers.c */
/** Begin a pass: remove the checkpoints of earlier passes. */
RP_MUST_CHECK int rp_verify_begin_pass(struct rp_campaign *c, struct rp_error *error);
/** After the last engine of a pass has ended: count the files that it left, and the saved
 * checkpoints that were not used. */
RP_MUST_CHECK int rp_verify_check_leftovers(struct rp_campaign *c, struct rp_error *error);

#endif
