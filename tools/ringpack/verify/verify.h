/* SPDX-License-Identifier: Apache-2.0 */
/* verify.h — what the files of `ringpack verify` share: cmd_verify.c (arguments and report),
 * passes.c (starting, killing, resuming), rows.c (comparing), leftovers.c (what is
 * left).
 *
 * Words of this verb: a *pass* is one way through the rows 0 .. rows-1. It consists of *lives*: in
 * a life a fixed set of ranks goes on from one row together. When the ranks are killed, the life
 * ends, and the next one begins at some row; what the ranks noted below that row is *committed*,
 * the rest is rolled back and comes again. Engines may come and go within a life. */
#ifndef RP_TOOLS_VERIFY_H
#define RP_TOOLS_VERIFY_H

#include "base/hash.h"
#include "cmd_config.h"
#include "corpus/corpus.h"
#include "job/journal.h"
#include "plan/plan.h"
#include "job/job.h"

enum rp_kill {
    RP_KILL_ENGINE,     /* trainers wait and go on with its successor */
    RP_KILL_TRAINER,    /* one; it goes on from its own last state token */
    RP_KILL_TRAINERS,   /* all; they go on from the last state token that all had noted */
    RP_KILL_CHECKPOINT, /* everything; goes on from the engine's newest checkpoint */
    RP_KILL_TOKEN,      /* everything; goes on from the last state token that all had noted */
    RP_KILL_PACKER,     /* one packing process */
    RP_KILL_TERM,       /* the engine, by SIGTERM: it leaves a checkpoint */
    RP_KILL_OWN,        /* somebody, by itself: see `points` */
    RP_KILL_COUNT,
};
const char *rp_kill_name(enum rp_kill kind);

/* ---- rows.c --------------------------------------------------------------------------- */

struct rp_reference_row {
    struct rp_hash128 hash;
    uint64_t first_fragment;
    uint32_t fragments, tokens;
};
/* Every row of the continuous run. */
struct rp_reference {
    struct rp_reference_row *rows;
    struct rp_journal_fragment *fragments;
    uint64_t row_count, row_capacity, fragment_count, fragment_capacity;
    /* 1 + the last row with a fragment: the end of the stream, or of what was asked for. */
    uint64_t last_row;
    struct rp_hash128 digest;
};
/** Take the rows of a record below `until`, which must be the next ones. */
RP_MUST_CHECK int rp_reference_add(struct rp_reference *reference,
                                   const struct rp_journal_record *record, uint64_t until,
                                   struct rp_error *error);
void rp_reference_free(struct rp_reference *reference);

/* Where a delivered row is not the reference's. `found` 0: the fragment is not there. */
struct rp_difference {
    uint64_t row, life;
    uint32_t rank, fragment;
    uint32_t expected_length, found_length;
    bool labels_alone; /* its tokens are right, and their labels or their loss mask is not */
};
/** Whether the row equals the reference's; if not, *difference says where (but for rank and life).
 */
bool rp_reference_equals(const struct rp_reference *reference, const struct rp_journal_row *row,
                         const struct rp_journal_fragment *fragments,
                         struct rp_difference *difference);

/* ---- passes.c -------------------------------------------------------------------------- */

struct rp_verify {
    const struct rp_cmd_config *arguments; /* as typed: engines get the same */
    const struct rp_config *config;        /* finished */
    const char *binary;
    uint64_t kills, rows, seed;
    bool verbose;
    /* Engines and trainers may kill themselves: the environment's RP_POINTS in the second run. For
     * programs that are built to (tests/kill); NULL = whoever dies by itself has failed. */
    const char *points;

    struct rp_corpus *corpus;
    struct rp_plan *plan; /* to name documents */
    struct rp_job job;
    struct rp_reference reference;

    /* what was found */
    uint64_t kill_counts[RP_KILL_COUNT], kill_count, lives, passes;
    uint64_t rows_compared, rows_different, rows_misplaced, rows_redelivered;
    uint64_t duplicates, skips, states_different;
    uint64_t first_skip, last_skip; /* rows, of the first pass that has any */
    uint64_t stops;                 /* SIGSTOP and, some milliseconds later, SIGCONT */
    uint64_t checkpoints_lost; /* reported as saved, but an older one was taken, or another row */
    uint64_t files_left;       /* by an engine that ended well */
    bool has_difference;
    struct rp_difference first;
    struct rp_hash128 digest; /* of the resumed stream: the first pass that is not the reference */
    double reference_seconds, lives_seconds;
};
/** The continuous run. */
RP_MUST_CHECK int rp_verify_record(struct rp_verify *verify, struct rp_error *error);
/** The killed and resumed one. */
RP_MUST_CHECK int rp_verify_lives(struct rp_verify *verify, struct rp_error *error);

#endif
