/* SPDX-License-Identifier: Apache-2.0 */
/* demo.h — shared declarations of `ringpack demo`: cmd_demo.c (the order of events), corpus.c
 * (tokens from the text on this machine), ranks.c (trainers and their journals). */
#ifndef RP_TOOLS_DEMO_H
#define RP_TOOLS_DEMO_H

#include "base/hash.h"
#include "job/journal.h"
#include "job/job.h"

#define RP_DEMO_SEQ_LEN 8192u /* bytes: about 2048 tokens of a tokenizer */
#define RP_DEMO_BATCH_ROWS 4u
#define RP_DEMO_RANKS_MAX 4u
#define RP_DEMO_STEP_ROWS (RP_DEMO_BATCH_ROWS * RP_DEMO_RANKS_MAX)

/* ---- corpus.c --------------------------------------------------------------------------- */

/** Make PREFIX.bin and .idx of at least `tokens_least` tokens from documentation, headers and
 * manual pages. */
RP_MUST_CHECK int rp_demo_make_corpus(struct rp_job *job, const char *prefix, uint64_t tokens_least,
                                      struct rp_error *error);
/** Count the tokens and documents of a corpus. */
RP_MUST_CHECK int rp_demo_measure_corpus(const char *prefix, uint64_t *tokens_out,
                                         uint64_t *documents_out, struct rp_error *error);

/* ---- ranks.c ---------------------------------------------------------------------------- */

struct rp_demo_batch {
    uint64_t next_row;
    uint32_t rows, tokens;
    struct rp_hash128 digest;
};
/* A set of trainers, from their start to their end, and every batch of their journals. */
struct rp_demo_ranks {
    uint32_t world;
    struct rp_demo_rank {
        struct rp_child child;
        struct rp_journal_reader journal;
        bool done;
        uint64_t next_row; /* after its last batch */
    } ranks[RP_DEMO_RANKS_MAX];
    struct rp_demo_batch *batches;
    uint64_t batch_count, batch_capacity;
    uint64_t rows, tokens;           /* sums of all batches */
    uint64_t first_ns, start_row;    /* when the first batch was read, and its first row */
    uint64_t drawn_ns, drawn_tokens; /* at the last line of output */
};
/** Start the trainers of a world that is set; if `python` is not NULL, the second half of them in
 * Python. */
RP_MUST_CHECK int rp_demo_start_ranks(struct rp_demo_ranks *ranks, struct rp_job *job,
                                      const char *python, const char *name, uint64_t until_row,
                                      struct rp_error *error);
/** Read the journals, and print a line every second. */
RP_MUST_CHECK int rp_demo_poll_ranks(struct rp_demo_ranks *ranks, struct rp_job *job,
                                     struct rp_error *error);
/** Row below which the journals of all ranks are complete. */
uint64_t rp_demo_common_row(const struct rp_demo_ranks *ranks);
bool rp_demo_ranks_done(const struct rp_demo_ranks *ranks);
/** Kill all trainers with SIGKILL, and read the rest of their journals. */
RP_MUST_CHECK int rp_demo_kill_ranks(struct rp_demo_ranks *ranks, struct rp_error *error);
/** Add up the batches of rows [from, to). */
void rp_demo_sum(const struct rp_demo_ranks *ranks, uint64_t from, uint64_t to, uint64_t *rows,
                 struct rp_hash128 *digest);
void rp_demo_release_ranks(struct rp_demo_ranks *ranks);

#endif
