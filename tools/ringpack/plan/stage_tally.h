/* SPDX-License-Identifier: Apache-2.0 */
/* stage_tally.h — planned rows by stage and source of a stream of version 2: mixture, epochs,
 * limits that are reached, rows that are withheld.
 *
 * Flow: opened after the plan went to its first row, called before and after each row, and ended.
 * A record after row 0 also counts as a stage here. */
#ifndef RP_TOOLS_STAGE_TALLY_H
#define RP_TOOLS_STAGE_TALLY_H

#include <jansson.h>

#include "config/config.h"
#include "plan/column_tally.h"
#include "plan/stages.h"
#include "stream_gain.h"

/* A source at a row. */
struct rp_stage_reach {
    bool has_joined;
    double epochs;              /* read, in parts of an epoch */
    uint64_t tokens, taken;     /* since row 0: tokens, documents */
    uint64_t waiting, withheld; /* tokens */
};

/* A source in a stage. */
struct rp_stage_part {
    uint64_t tokens;              /* in its rows, withheld ones left out */
    struct rp_stage_reach at_end; /* end of the stage, or of the planned rows */
};

struct rp_stage_rows {
    const struct rp_stage *stage; /* stage of the calendar */
    uint64_t end;                 /* the next stage's first row, or RP_NO_ROW */
    uint64_t rows, places, tokens, withheld_rows, padding, fragments;
    struct rp_stage_part *sources; /* [source_count] */
};

enum rp_limit_kind { RP_LIMIT_NONE, RP_LIMIT_EPOCHS, RP_LIMIT_TOKENS };

/* A source in all planned rows. */
struct rp_stage_source {
    struct rp_stage_reach before; /* at the first planned row */
    struct rp_column_tally selection;
    enum rp_limit_kind limit; /* that is reached at the end */
    uint64_t limit_row;       /* the row that was planned then; RP_NO_ROW: before the first */
};

struct rp_stage_tally {
    const struct rp_config *config;
    const struct rp_plan *plan;
    const struct rp_calendar *calendar; /* NULL: of version 1; there is nothing to count */
    uint64_t first_row, next_row;
    bool is_complete;
    uint32_t count, current;
    struct rp_stage_rows *stages;
    struct rp_stage_part *parts;
    struct rp_stage_source *sources; /* [source_count] */
    char gain[RP_GAIN_BYTES];        /* the saving of `deal: auto`; empty: little */
};

RP_MUST_CHECK int rp_stage_tally_open(struct rp_stage_tally *tally, const struct rp_config *config,
                                      const struct rp_corpus *corpus, const struct rp_plan *plan,
                                      struct rp_error *error);
void rp_stage_tally_close(struct rp_stage_tally *tally);

/** Before a row is planned; and after it, with the places that it has. */
void rp_stage_tally_begin(struct rp_stage_tally *tally);
void rp_stage_tally_add(struct rp_stage_tally *tally, const struct rp_row *row, uint32_t seq_len);
/** After the last row. */
void rp_stage_tally_end(struct rp_stage_tally *tally, bool is_complete);

/** The share of the tokens that a stage gives a source, once its ramp is over. */
double rp_stage_share(const struct rp_stage_tally *tally, const struct rp_stage *stage,
                      uint32_t source);
/** The stages' tables and the sources' of a report. */
void rp_stage_tally_print(const struct rp_stage_tally *tally);
/** The same as fields of a JSON object. */
void rp_stage_tally_json(const struct rp_stage_tally *tally, json_t *report);

#endif
