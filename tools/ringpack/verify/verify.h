/* SPDX-License-Identifier: Apache-2.0 */
/* verify.h — shared declarations of `ringpack verify`. cmd_verify.c has the arguments and the
 * report, passes.c the two runs, rows.c the comparison; killed_run.h names the other files.
 *
 * A *pass* goes once through rows 0 .. rows-1. It consists of *lives*. In a life, a fixed set of
 * ranks starts at one row and runs until they are all killed, while engines may be replaced. The
 * rows that the journals of a life have below the first row of the next life are *committed*; the
 * others are rolled back and delivered again. */
#ifndef RP_TOOLS_VERIFY_H
#define RP_TOOLS_VERIFY_H

#include "base/hash.h"
#include "cmd_config.h"
#include "corpus/corpus.h"
#include "job/journal.h"
#include "plan/plan.h"
#include "job/job.h"

enum rp_kill {
    RP_KILL_ENGINE,     /* trainers wait and continue with its successor */
    RP_KILL_TRAINER,    /* one; it continues at its own last state token */
    RP_KILL_TRAINERS,   /* all; they continue at the last state token that all have recorded */
    RP_KILL_CHECKPOINT, /* everything; resumes from the engine's newest checkpoint */
    RP_KILL_TOKEN,      /* everything; resumes from the last state token that all have recorded */
    RP_KILL_PACKER,     /* one packing process */
    RP_KILL_TERM,       /* the engine, by SIGTERM: it leaves a checkpoint */
    RP_KILL_ITSELF,     /* a process kills itself: see `points` */
    RP_KILL_COUNT,
};
const char *rp_kill_name(enum rp_kill kind);

/* ---- rows.c --------------------------------------------------------------------------- */

struct rp_reference_row {
    struct rp_hash128 hash;
    uint64_t first_fragment, sides;
    uint32_t fragments, tokens;
    bool is_skipped; /* by the config: a run delivers it without fragments, or not at all */
};
/* Every row of the continuous run. */
struct rp_reference {
    const struct rp_plan *plan; /* tells which rows are skipped */
    struct rp_reference_row *rows;
    struct rp_journal_fragment *fragments;
    uint64_t row_count, row_capacity, fragment_count, fragment_capacity;
    /* 1 + the last row with a fragment, and the skipped rows that follow it: the end of the stream,
     * or of --rows. */
    uint64_t last_row;
    struct rp_hash128 digest;
};
/** Add the rows of a record that are below `until`. They must follow those before. */
RP_MUST_CHECK int rp_reference_add(struct rp_reference *reference,
                                   const struct rp_journal_record *record, uint64_t until,
                                   struct rp_error *error);
void rp_reference_free(struct rp_reference *reference);

/* The first difference of a delivered row from the reference. found_length 0: the row has no such
 * fragment. */
struct rp_difference {
    uint64_t row, life;
    uint32_t rank, fragment;
    uint32_t expected_length, found_length;
    bool sides_alone;  /* only the side columns are not equal */
    bool labels_alone; /* the tokens are equal, but the labels or the loss mask are not */
};
/** Whether the row equals the reference's. If not, *difference says where; the caller sets rank and
 * life. */
bool rp_reference_equals(const struct rp_reference *reference, const struct rp_journal_row *row,
                         const struct rp_journal_fragment *fragments,
                         struct rp_difference *difference);

/* ---- passes.c -------------------------------------------------------------------------- */

struct rp_verify {
    const struct rp_cmd_line *arguments; /* as typed: engines get the same */
    const struct rp_config *config;      /* finished */
    const char *binary;
    uint64_t kills, rows, seed;
    bool verbose;
    /* Value of RP_POINTS in the second run: engines and trainers that are built for it (tests/kill)
     * kill themselves then. NULL = a process that dies by itself is a failure. */
    const char *points;

    struct rp_corpus *corpus;
    struct rp_plan *plan; /* to name documents */
    struct rp_job job;
    struct rp_reference reference;

    /* the findings */
    uint64_t kill_counts[RP_KILL_COUNT], kill_count, lives, passes;
    uint64_t rows_compared, rows_different, rows_misplaced, rows_redelivered;
    uint64_t duplicates, skips, states_different;
    uint64_t first_skip, last_skip; /* rows, of the first pass that has any */
    uint64_t stops;                 /* SIGSTOP and, some milliseconds later, SIGCONT */
    uint64_t checkpoints_lost; /* reported as saved, but a run resumed from an older one or row */
    uint64_t files_left;       /* by an engine that ended with status 0 */
    bool has_difference;
    struct rp_difference first;
    struct rp_hash128 digest; /* the resumed stream's, or the first differing pass's */
    double reference_seconds, lives_seconds;
};
/** Run the continuous run, which becomes the reference. */
RP_MUST_CHECK int rp_verify_continuous_run(struct rp_verify *verify, struct rp_error *error);
/** Run passes until there were enough kills. */
RP_MUST_CHECK int rp_verify_killed_run(struct rp_verify *verify, struct rp_error *error);

/** Whether ranks and batches of the job decide a deal. */
static inline bool rp_verify_is_of_job(const struct rp_config_deal *deal)
{
    return deal->mode != RP_DEAL_OFF && !(deal->sets & RP_DEAL_TIER);
}

#endif
