/* SPDX-License-Identifier: Apache-2.0 */
/* killed_run.h — the run that is killed, as the files that make it see it: passes.c (passes and
 * lives), processes.c (starting and killing), committed.c (what trainers noted), leftovers.c (what
 * a pass leaves behind), stall.c (what is told when nothing moves). */
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
    uint64_t next_row, last_row;  /* behind the last batch noted; last row noted + 1 */
    struct rp_verify_token state; /* at next_row */
};

/* A row as it was noted, and what it adds to the digest of the stream. */
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

struct rp_life {
    uint32_t world, rows; /* ranks; rows of a micro-batch */
    struct rp_rank ranks[RP_VERIFY_RANKS_MAX];
    bool begun; /* a rank has attached: start_row is known */
    uint64_t start_row;
    struct rp_verify_token start; /* at start_row */
    /* what the ranks were told to go on from; none: where the engine stands */
    struct rp_verify_token given;
    struct rp_notes notes;
};

struct rp_campaign {
    struct rp_verify *v;
    struct rp_life life;
    struct rp_child engine;
    bool engine_ready, packer_processes;
    uint64_t random, journals;
    uint64_t rows_a_kill;
    struct rp_notes pending; /* of the life before: committed, or not, when this one begins */
    struct rp_commitment *committed; /* [row] */
    uint64_t furthest;               /* row that some rank has reached in this pass */
    uint64_t committed_end;          /* all rows from here on are committed 0 times */
    off_t log_begin;                 /* of this pass, in the job's log */
    uint64_t ended_ns;               /* when the engine was first seen to have ended well, or 0 */
    uint64_t drawn_ns;               /* the progress line */
};

/* committed.c */
/** Replace *token by a copy; `data` NULL: by none. */
RP_MUST_CHECK int rp_verify_copy_token(struct rp_verify_token *token, const void *data,
                                       size_t bytes, struct rp_error *error);
/** Read what trainers have noted since, and compare it. */
RP_MUST_CHECK int rp_verify_take_journals(struct rp_campaign *c, struct rp_error *error);
/** The last state token that all ranks had noted; what they were given if nobody has noted any. */
const struct rp_verify_token *rp_verify_common_state(const struct rp_life *life);
/** Commit the rest, count what was committed not exactly once, and begin anew. */
void rp_verify_check_pass(struct rp_campaign *c);

/* processes.c */
uint64_t rp_verify_draw(struct rp_campaign *c, uint64_t below);
/** Any number of ranks and rows that the step can be cut into. */
void rp_verify_draw_topology(struct rp_campaign *c);
/** The engine's words: what the user typed; how rows are cut for `world` ranks. */
void rp_verify_add_typed(const struct rp_verify *v, struct rp_words *words);
void rp_verify_add_topology(const struct rp_verify *v, struct rp_words *words, uint32_t world,
                            uint32_t rows);
/** An engine for the ranks of this life, otherwise drawn. `token`: path of a state token, or NULL.
 */
RP_MUST_CHECK int rp_verify_start_engine(struct rp_campaign *c, const char *token,
                                         struct rp_error *error);
RP_MUST_CHECK int rp_verify_start_rank(struct rp_campaign *c, uint32_t r,
                                       const struct rp_verify_token *token, struct rp_error *error);
/** All ranks, with what the life was given: a life begins. */
RP_MUST_CHECK int rp_verify_start_ranks(struct rp_campaign *c, struct rp_error *error);
/** Kill its ranks; what they noted is pending until the next life begins. */
void rp_verify_end_life(struct rp_campaign *c);
/** Whether the child died by SIGKILL and may: by its own hand. */
bool rp_verify_is_struck(const struct rp_campaign *c, const struct rp_child *child);
/** Bring back whoever was struck. Returns how many that were. */
RP_MUST_CHECK int rp_verify_recover(struct rp_campaign *c, struct rp_error *error);
/** Stop some of them for some milliseconds: to the others a machine that hangs. In one of three
 * times it does not come back: all are killed, stopped or not. */
RP_MUST_CHECK int rp_verify_pause(struct rp_campaign *c, struct rp_error *error);
/** Kill something at random, and bring it back. */
RP_MUST_CHECK int rp_verify_kill(struct rp_campaign *c, struct rp_error *error);
/** End the engine by SIGTERM, however many it takes; it has said where its last one stands. */
RP_MUST_CHECK int rp_verify_end_engine(struct rp_campaign *c, struct rp_error *error);

/* stall.c */
/** Where the threads of all processes are, the locks and the end of the log, to stderr. */
void rp_verify_show(const struct rp_campaign *c);
/** The stream stands still: this, and what ranks and engine say of it. -RP_E_TIMEOUT. */
RP_MUST_CHECK int rp_verify_fail_still(struct rp_campaign *c, uint64_t since_ns,
                                       struct rp_error *error);

/** A child ended by itself and not well: its last words, and in a campaign all of this. */
RP_MUST_CHECK int rp_verify_fail_ended(struct rp_campaign *c, const struct rp_child *child,
                                       struct rp_error *error);

/* leftovers.c */
/** A pass begins: no checkpoint of the ones before counts. */
RP_MUST_CHECK int rp_verify_begin_pass(struct rp_campaign *c, struct rp_error *error);
/** An engine has ended well behind the last row: what it left, and which checkpoints were taken. */
RP_MUST_CHECK int rp_verify_check_left(struct rp_campaign *c, struct rp_error *error);

#endif
