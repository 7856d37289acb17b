/* SPDX-License-Identifier: Apache-2.0 */
/* calendar.h — declared stages and records in the order of their rows, and the values in force at
 * any row (STREAM2.md sections 1.3, 6.1, 9, 14).
 *
 * A calendar is made once, from the spec, the records that are begun and the position, and never
 * changes, so plans of several threads may share it. All questions about a row are answered in
 * O(log stages). */
#ifndef RP_PLAN_V2_CALENDAR_H
#define RP_PLAN_V2_CALENDAR_H

#include "base/record.h"
#include "plan/v2/spec.h"

struct rp_calendar;

/* Values of a state token, by number: those in force at row next_row - 1, or at row 0. */
struct rp_calendar_held {
    struct rp_hash128 records; /* chain B */
    const uint64_t *documents; /* the record `documents` in force */
    const uint32_t *weights;
    uint32_t max_docs_per_row;
    struct rp_deal deal;
};

/* Where a run continues. All zero: a new stream. */
struct rp_calendar_position {
    uint64_t next_row;    /* g */
    uint32_t known_count; /* sources that have a number, in its order */
    const char *const *known_names;
    /* Text of the begun records, ascending: lines as in the contract, `record[NNNN].…`; NULL: none.
     * Other lines of a contract and records that are not begun are ignored. */
    const char *begun_records;
    bool is_resumed;
    /* If chain B of begun_records is another, its values are in force. NULL: begun_records must
     * have all records */
    const struct rp_calendar_held *held;
};

/* The values in force at a row. Arrays are by number of the stream, and belong to the calendar. A
 * declared stage and a record at one row are one boundary. */
struct rp_stage {
    uint64_t from;
    bool is_declared, has_record; /* which of the two begins here */
    bool rebuilds;                /* section 9.2, action 3 */
    uint32_t joined;              /* sources that have joined at this boundary or before */
    uint32_t seq_len, align, window, spread, max_docs_per_row;
    enum rp_packing packing;
    enum rp_row_gap row_gap;
    struct rp_deal deal;
    const struct rp_limits *limits;
    const struct rp_limits *limits_of_config; /* as if no record had limits */
    const uint64_t *documents;                /* the record `documents` in force */
    const uint32_t *weights;                  /* from the last that sets weights; 0: waits */
};

/** Make records that are not begun, number the sources, and check everything of sections 1, 6.1 and
 * 9 that needs no document to be visited. `*spec` is copied; its arrays are borrowed, but for its
 * records, which are read here only. Errors:
 * -RP_E_CONFIG (the message names stage, row, source and field), -RP_E_CORRUPT (the text of begun
 * records), -ENOMEM. */
RP_MUST_CHECK int rp_calendar_open(struct rp_calendar **calendar_out,
                                   const struct rp_stream_spec *spec,
                                   const struct rp_calendar_position *position,
                                   struct rp_error *error);
void rp_calendar_close(struct rp_calendar *calendar); /* NULL is fine */

/** Whether all begun records are known. Otherwise rows before next_row cannot be planned, and the
 * contract lacks records. */
bool rp_calendar_knows_records(const struct rp_calendar *calendar);

/** The spec after rules of the text (members without effect are 0), without records. */
const struct rp_stream_spec *rp_calendar_spec(const struct rp_calendar *calendar);

/** Sources that join anywhere in the calendar, or have joined; and one of them, by its number in
 * the stream. NULL: it left the config, and only its name is known. */
uint32_t rp_calendar_source_count(const struct rp_calendar *calendar);
const struct rp_stream_source *rp_calendar_source(const struct rp_calendar *calendar,
                                                  uint32_t number);
/** Whether one of them left the config. */
bool rp_calendar_lacks_source(const struct rp_calendar *calendar);
const char *rp_calendar_source_name(const struct rp_calendar *calendar, uint32_t number);

/** The place of a source in the spec. False: it is not there. */
bool rp_calendar_place(const struct rp_calendar *calendar, uint32_t number, uint32_t *place);

/** The stage that has row `row`, and the first boundary after it (RP_NO_ROW: none). */
const struct rp_stage *rp_calendar_at(const struct rp_calendar *calendar, uint64_t row);
uint64_t rp_calendar_next(const struct rp_calendar *calendar, uint64_t row);
/** Whether a stage or record begins exactly at `row`. */
bool rp_calendar_is_boundary(const struct rp_calendar *calendar, uint64_t row);

/** apportion of section 6.1: `x` has `count` entries, 0 for those that are not in the set; shares
 * gets theirs, 0 likewise. */
void rp_apportion(const uint64_t *x, uint32_t count, uint64_t *shares);
/** The nominal shares at a row, by number; and the row at which they change next without a boundary
 * (the next level of a ramp), or RP_NO_ROW. */
uint64_t rp_calendar_shares(const struct rp_calendar *calendar, uint64_t row, uint64_t *shares);

/** Whether a document is taken out (`without`) at a row. */
bool rp_calendar_is_out(const struct rp_calendar *calendar, uint32_t number, uint64_t document,
                        uint64_t row);
/** Whether any document of the source is, so that most need not be looked up. */
bool rp_calendar_has_out(const struct rp_calendar *calendar, uint32_t number, uint64_t row);

/** Whether row g is skipped; whether `count` rows from `first` on are; Z(row) of section 10.3. */
bool rp_calendar_skips(const struct rp_calendar *calendar, uint64_t row);
bool rp_calendar_skips_all(const struct rp_calendar *calendar, uint64_t first, uint64_t count);
struct rp_hash128 rp_calendar_skip_hash(const struct rp_calendar *calendar, uint64_t row);

/** Chains A and B of all that is begun at next_row, and the number of declared stages begun. */
struct rp_calendar_chains {
    struct rp_hash128 declared, records;
    uint32_t declared_count;
};
struct rp_calendar_chains rp_calendar_chains(const struct rp_calendar *calendar, uint64_t next_row);
/** The history of section 12.2, with its zero bytes; `flags` sources have the flag. Returns its
 * bytes, at most RP_HISTORY_MAX. */
#define RP_HISTORY_MAX 640u
uint32_t rp_calendar_history(const struct rp_calendar *calendar, uint64_t next_row, uint32_t flags,
                             char *text);
/** The value of a `deal` line of the contract. */
struct rp_deal_text {
    char text[96];
};
struct rp_deal_text rp_calendar_deal_text(const struct rp_deal *deal);
/** Read it, Y,T,C,m,ORDER,K,w,h,b or `off`, from a line of a record. False: it is none. */
bool rp_calendar_read_deal(const struct rp_field *field, struct rp_deal *deal);
/** The same of a line `limits`: max_epochs,max_tokens,on_exhausted. */
bool rp_calendar_read_limits(const struct rp_field *field, struct rp_limits *limits);
/* A line `LIST[NUMBER].KEY[SOURCE]` of a contract, for instance of `record` or `stage`. */
struct rp_calendar_line {
    const struct rp_field *field;
    uint32_t number, source; /* source: UINT32_MAX without one */
    bool is_padded;          /* both have four digits, as they are written */
    char key[RP_RECORD_NAME_MAX + 1];
    uint64_t value; /* UINT64_MAX: it is no number */
};
/** Read a line of that list. False: its name has another form. */
bool rp_calendar_read_line(const struct rp_field *field, const char *list,
                           struct rp_calendar_line *line);
/** The line of bos_id or eos_id. */
void rp_calendar_add_id(struct rp_record_writer *writer, const char *name, uint32_t id);
/** The lines of declared stages in the stream contract. */
RP_MUST_CHECK int rp_calendar_add_stages(const struct rp_calendar *calendar,
                                         struct rp_record_writer *writer, struct rp_error *error);
/** The stream contract (section 14), sorted. Sources' fingerprints are taken through their views.
 */
RP_MUST_CHECK int rp_calendar_contract(const struct rp_calendar *calendar,
                                       struct rp_record_writer *writer, struct rp_error *error);

#endif
