/* SPDX-License-Identifier: Apache-2.0 */
/* facade.h — a plan of version 2 behind the calls of plan/plan.h, which dispatch to it. Private to
 * engine/plan.
 *
 * It owns calendar and rows, replaces both when a token is loaded, and translates the numbers of
 * sources: the callers of plan.h count them in the order of the config. */
#ifndef RP_PLAN_V2_FACADE_H
#define RP_PLAN_V2_FACADE_H

#include "plan/plan.h"
#include "plan/v2/state.h"
#include "plan/v2/planner_token.h"

#define RP_NO_NUMBER UINT32_MAX

/* Records as a spec has them. */
struct rp_v2_records {
    struct rp_stage_spec *list;
    uint32_t count;
};

/* A calendar and its rows, with the tables of the facade. */
struct rp_v2_parts {
    struct rp_v2_records records; /* the calendar's, if its spec has others */
    struct rp_calendar *calendar;
    struct rp_planner *rows;
    uint32_t *places;              /* [number_count]: place in the config, or RP_NO_NUMBER */
    uint32_t *numbers;             /* [spec.source_count]: number in the stream, or RP_NO_NUMBER */
    struct rp_fragment *fragments; /* the last row's, if is_renumbered */
};

struct rp_plan_v2 {
    struct rp_stream_spec spec; /* as the caller gave it */
    struct rp_v2_parts now;
    uint32_t number_count;
    bool is_renumbered; /* some number is not its place */

    /* The stage of the last row: it has rows [stage->from, stage_end). */
    const struct rp_stage *stage;
    uint64_t stage_end;
    uint32_t seq_len; /* the run's; rows of another one end it */
    bool crosses;     /* they do not end it: rp_plan_cross_stages */

    /* The stream record of the calendar as the run began: it has all records of the run. NULL: not
     * made yet */
    char *contract;
    size_t contract_bytes;
    uint64_t known_from; /* records below this row are not known: no row before it can be planned */

    struct rp_snapshot state; /* before row state.row, if it is known */
    bool has_state;
    uint64_t cuts, capped;
    const uint32_t *epochs; /* by fragment of the last row */

    /* Sources of a plan that has not gone to a token yet, some of which left the config: others
     * stand in for these, and no row can be planned. NULL: none left */
    struct rp_stream_source *stand_ins;
    bool is_stand_in;
};

RP_MUST_CHECK int rp_v2_open(struct rp_plan_v2 **v2_out, const struct rp_stream_spec *spec,
                             struct rp_error *error);
void rp_v2_close(struct rp_plan_v2 *v2); /* NULL is fine */

RP_MUST_CHECK int rp_v2_next(struct rp_plan_v2 *v2, struct rp_row *row, struct rp_error *error);
uint32_t rp_v2_seq_len(const struct rp_plan_v2 *v2);
bool rp_v2_is_stage_end(const struct rp_plan_v2 *v2);
bool rp_v2_is_in_run(const struct rp_plan_v2 *v2);
/** The declared stage that has a row, counted from 0. O(stages). */
uint32_t rp_v2_stage_of(const struct rp_plan_v2 *v2, uint64_t row);
RP_MUST_CHECK int rp_v2_check_steps(struct rp_plan_v2 *v2, const struct rp_numbering *numbering,
                                    struct rp_error *error);
struct rp_row_form rp_v2_row_form(const struct rp_plan_v2 *v2);
uint32_t rp_v2_max_docs_per_row(const struct rp_plan_v2 *v2);

/** A source of the config after all rows that are planned, a begun deal window included. NULL: it
 * has not joined. */
const struct rp_source_state *rp_v2_reached(const struct rp_plan_v2 *v2, uint32_t source);

/** The state before the next row, or before its deal window. NULL if there is no memory for it. */
const struct rp_snapshot *rp_v2_state(struct rp_plan_v2 *v2);
/** The counts of a state or of a token (STREAM2.md section 12.2). */
struct rp_plan_counts rp_v2_counts_of(const struct rp_stream_counts *of);
void rp_v2_counts(struct rp_plan_v2 *v2, struct rp_plan_counts *counts);

/** rp_plan_load and rp_plan_resume; rp_plan_start; rp_plan_rewind; rp_plan_follow. */
RP_MUST_CHECK int rp_v2_load(struct rp_plan_v2 *v2, const void *token, size_t bytes,
                             struct rp_error *error);
RP_MUST_CHECK int rp_v2_start(struct rp_plan_v2 *v2, const void *token, size_t bytes,
                              const struct rp_plan_start *start, struct rp_error *error);
RP_MUST_CHECK int rp_v2_rewind(struct rp_plan_v2 *v2, struct rp_error *error);
bool rp_v2_has_records_of(struct rp_plan_v2 *v2, const void *token, size_t bytes);
RP_MUST_CHECK int rp_v2_append_record(struct rp_plan_v2 *v2, const struct rp_plan_record *record,
                                      struct rp_error *error);
RP_MUST_CHECK int rp_v2_follow(struct rp_plan_v2 *v2, struct rp_plan_v2 *started,
                               struct rp_error *error);

/** `spec` with a source without tokens for each that left the config, until v2 goes to a token. */
RP_MUST_CHECK int rp_v2_stand_in(struct rp_plan_v2 *v2, struct rp_stream_spec *spec,
                                 struct rp_error *error);
int rp_v2_fail_removed(const struct rp_plan_v2 *v2, struct rp_error *error);

/** Refuse other limits of a stage that is over than the contract's: a later stage, of the first
 * `begun`, sets them. */
RP_MUST_CHECK int rp_v2_match_past_limits(const struct rp_calendar *calendar,
                                          const struct rp_record *contract, uint32_t begun,
                                          struct rp_error *error);
/** Make v2->contract, if it is not made. */
RP_MUST_CHECK int rp_v2_make_contract(struct rp_plan_v2 *v2, struct rp_error *error);

/** The records of v2->contract that are not begun at `row`, as a spec wants them. */
RP_MUST_CHECK int rp_v2_records_ahead(const struct rp_plan_v2 *v2, uint64_t row,
                                      struct rp_v2_records *records, struct rp_error *error);
/** The same, and this one. */
RP_MUST_CHECK int rp_v2_records_with(const struct rp_plan_v2 *v2, uint64_t row,
                                     const struct rp_plan_record *added,
                                     struct rp_v2_records *records, struct rp_error *error);
/** Whether v2->contract has a record that sets the same at this row, and whether to these values.
 */
bool rp_v2_record_at(const struct rp_plan_v2 *v2, const struct rp_plan_record *wanted,
                     bool *is_equal);

/** The records that a start finds from window_end on: weights of the contract, and its list; or
 * all records of the contract that are not begun, if it keeps them. */
RP_MUST_CHECK int rp_v2_records_kept(const struct rp_plan_v2 *v2, const struct rp_plan_start *start,
                                     const struct rp_stream_position *position,
                                     struct rp_v2_records *records, struct rp_error *error);
void rp_v2_records_free(struct rp_v2_records *records);

/** Fill in the facts of a token of version 2 (plan.h). */
RP_MUST_CHECK int rp_v2_state_info(const void *token, size_t bytes, struct rp_state_info *info,
                                   struct rp_error *error);
RP_MUST_CHECK int rp_v2_state_contract(const void *token, size_t bytes,
                                       struct rp_record_writer *writer, struct rp_error *error);

/** Whether a token, of any version and perhaps damaged, says that it is of version 2. */
bool rp_v2_is_token(const void *token, size_t bytes);

#endif
