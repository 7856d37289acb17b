/* SPDX-License-Identifier: Apache-2.0 */
/* picture.h — planned rows as a picture: mixture and padding over the rows, lengths of documents,
 * cost by rank.
 *
 * Flow: each row is counted as it is planned (rp_picture_add), in memory that does not grow with
 * the stream; then the picture is drawn (rp_picture_draw). */
#ifndef RP_TOOLS_PICTURE_H
#define RP_TOOLS_PICTURE_H

#include <stdio.h>

#include "config/config.h"
#include "corpus/corpus.h"
#include "explain/steps.h"
#include "plan/stages.h"

#define RP_PICTURE_COLUMNS 160 /* even */
#define RP_PICTURE_LENGTHS 64  /* group b has lengths from 2^b to 2^(b+1) - 1 */

/* Rows that are drawn as one. */
struct rp_picture_column {
    uint64_t rows, tokens, padding;
};

/* The share of a rank in whole steps. */
struct rp_picture_rank {
    double tokens, squares;           /* squares: sum of the squared lengths of its fragments */
    double step_squares, step_tokens; /* the unfinished step's */
};

struct rp_picture {
    const struct rp_config *config;
    const struct rp_corpus *corpus;
    struct rp_steps steps;
    uint64_t first_row;             /* the first counted row */
    uint64_t rows, rows_per_column; /* rows_per_column doubles when the columns are used up */
    struct rp_picture_column columns[RP_PICTURE_COLUMNS];
    uint64_t *source_tokens; /* [column * sources + source] */
    uint64_t documents_by_length[RP_PICTURE_LENGTHS], tokens_by_length[RP_PICTURE_LENGTHS];
    struct rp_picture_rank *ranks;        /* [steps.ranks] */
    uint32_t least_seq_len, most_seq_len; /* least and most among the counted rows */
    const struct rp_calendar *calendar;   /* calendar of stream version 2, else NULL */
    const struct rp_layout_tally *layout; /* drawn if it has choices; set before rp_picture_draw */
    uint64_t whole_steps;
    double worst_sum; /* over whole steps: the most squares of a rank, divided by the mean */
};

/** The plan is at the first row that is counted. */
RP_MUST_CHECK int rp_picture_open(struct rp_picture *picture, const struct rp_config *config,
                                  const struct rp_corpus *corpus, const struct rp_plan *plan,
                                  struct rp_error *error);
/** Count the next row, which has seq_len places; the first is first_row. */
void rp_picture_add(struct rp_picture *picture, const struct rp_row *row, uint32_t seq_len);
void rp_picture_close(struct rp_picture *picture); /* also after a failure of rp_picture_open */

/** The share of the tokens that a config gives a source. */
double rp_picture_asked_share(const struct rp_config *config, uint32_t source);

/** Write an SVG of the counted rows, and of the counts of the plan: one file
 * without a script, which loads no other file, dark or light. -ENOMEM. */
RP_MUST_CHECK int rp_picture_draw(FILE *out, const struct rp_picture *picture,
                                  const struct rp_plan_counts *counts, bool is_complete,
                                  struct rp_error *error);

#endif
