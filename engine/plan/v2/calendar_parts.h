/* SPDX-License-Identifier: Apache-2.0 */
/* calendar_parts.h — the inside of a calendar, for calendar*.c and shares.c only.
 *
 * All memory of a calendar is a list of blocks that rp_calendar_close frees. Arrays "by number"
 * have an entry for each source that joins anywhere; stages share those that they do not change. */
#ifndef RP_PLAN_V2_CALENDAR_PARTS_H
#define RP_PLAN_V2_CALENDAR_PARTS_H

#include <errno.h>
#include <inttypes.h>

#include "plan/v2/calendar.h"

#define RP_NO_SOURCE UINT32_MAX
#define RP_MAX_ROWS (UINT64_C(1) << 63) /* rows, tokens and documents are below it */

/* A line of a record for one source: a number of documents, or a range. */
struct rp_calendar_entry {
    uint32_t number;
    uint64_t value, end;
};

/* The limits of a source before a record. */
struct rp_calendar_limits {
    uint32_t number;
    struct rp_limits limits;
};

struct rp_calendar_record {
    uint64_t from;
    uint32_t sets; /* RP_SETS_WEIGHTS, _MAX_DOCS, _DEAL */
    uint32_t document_count, range_count, limits_count;
    const struct rp_calendar_entry *documents, *ranges; /* ascending */
    const struct rp_calendar_limits *limits;            /* likewise */
    const uint32_t *weights;                            /* by number */
    uint32_t max_docs_per_row;
    struct rp_deal deal;
};

/* The text of a stage or record, and the chain after it. */
struct rp_calendar_link {
    uint64_t from;
    struct rp_hash128 chain;
    const char *entry; /* its entry in a history, without a NUL; NULL: too long for any */
    uint32_t bytes;
};

/* A stage or record that sets weights. */
struct rp_calendar_mix {
    uint64_t from, ramp;
    const uint32_t *weights;
    uint64_t *shares; /* N_s of section 6.1 */
};

/* Documents of a source that are taken out: a hash table, whose free entries have RP_NO_ROW. */
struct rp_calendar_out {
    uint64_t first_row; /* RP_NO_ROW: none is ever taken out */
    uint64_t mask;
    uint32_t shift;
    struct rp_calendar_out_entry {
        uint64_t document, from;
    } * entries;
};

/* A source of the config. */
struct rp_calendar_name {
    const char *name;
    uint32_t source;
};

struct rp_calendar {
    struct rp_stream_spec spec;
    void *blocks;
    struct rp_stream_source *sources; /* spec.sources */
    struct rp_stage_spec *stages;     /* spec.stages */
    uint64_t next_row;
    bool is_resumed, lacks_records;
    struct rp_hash128 held_chain; /* lacks_records: chain B at next_row */

    uint32_t count;                         /* sources that have a number */
    const char **names;                     /* by number */
    uint32_t *config_of;                    /* by number; RP_NO_SOURCE: only the name is known */
    uint32_t *number_of;                    /* by source of the config */
    const struct rp_calendar_name *by_name; /* sources of the config, ascending */
    uint32_t stage_count;                   /* boundaries */
    struct rp_stage *in_force;              /* ascending */
    uint32_t record_count, begun_count;
    struct rp_calendar_record *records; /* ascending; the first begun_count were given */
    uint32_t mix_count;
    struct rp_calendar_mix *mixes;
    struct rp_calendar_link *stage_links, *record_links;
    struct rp_calendar_out *outs;   /* by number */
    struct rp_hash128 *skip_hashes; /* each over the first 0, 1, … skips */
};

/** Zeroed memory that is freed with the calendar; NULL and *error on -ENOMEM. */
void *rp_calendar_take(struct rp_calendar *calendar, size_t count, size_t size,
                       struct rp_error *error);

/* A walk over the rows of all stages and records, ascending. Start with zeros. */
struct rp_calendar_walk {
    uint32_t next_stage, next_begun, next_wanted;
    uint64_t row;
    const struct rp_stage_spec *stage;  /* NULL: none is declared here */
    const struct rp_stage_spec *wanted; /* a record that the spec has ahead */
    const struct rp_calendar_record *begun;
    bool is_begun;
};
bool rp_calendar_is_begun(const struct rp_calendar *calendar, uint64_t row);

/* While a calendar is made. */
struct rp_calendar_making {
    struct rp_calendar *calendar;
    const struct rp_calendar_position *position;
    struct rp_error *error;
    struct rp_stage now;
    struct rp_limits *limits; /* limits of the present config, by number; copied before a change */
    uint64_t *documents;      /* likewise; RP_NO_ROW until a source joins */
    uint64_t *wanted;         /* scratch, by number */
    uint32_t *sample;         /* scratch of the default of max_docs_per_row */
    bool is_held;             /* all that is begun was passed */
};

/* calendar_check.c */
int rp_calendar_check_fixed(struct rp_calendar *calendar, struct rp_error *error);
int rp_calendar_check_sources(struct rp_calendar *calendar, struct rp_error *error);
int rp_calendar_check_stages(struct rp_calendar *calendar, struct rp_error *error);
/** The source of the config that has the name, or RP_NO_SOURCE. */
uint32_t rp_calendar_find(const struct rp_calendar *calendar, const char *name);
/** h and b by their greatest common divisor; all 0 if it is off. */
struct rp_deal rp_calendar_reduce_deal(const struct rp_deal *deal);
int rp_calendar_check_deal(const struct rp_deal *deal, struct rp_error *error);
/* calendar_begun.c */
int rp_calendar_read_records(struct rp_calendar_making *making);
/* calendar_walk.c */
int rp_calendar_number(struct rp_calendar_making *making);
int rp_calendar_make_stages(struct rp_calendar_making *making);
/* The `documents` of a record take effect; twice does no harm. */
int rp_calendar_set_documents(struct rp_calendar_making *making,
                              const struct rp_calendar_record *record, uint32_t joined);
/* calendar_records.c: the record of a boundary that is not begun, if there is one. `joined`:
 * sources that joined before it. */
int rp_calendar_make_record(struct rp_calendar_making *making, const struct rp_calendar_walk *walk,
                            uint32_t joined, struct rp_calendar_record *record, bool *is_made);
/* calendar_limits.c: the limits at the row of the walk, if they are others than before. */
int rp_calendar_set_limits(struct rp_calendar_making *making, const struct rp_calendar_walk *walk);
const char *rp_calendar_exhausted_word(enum rp_on_exhausted on_exhausted);
/* calendar_text.c */
int rp_calendar_link_records(struct rp_calendar *calendar, uint32_t begin, uint32_t end,
                             struct rp_error *error);
int rp_calendar_link_stages(struct rp_calendar *calendar, struct rp_error *error);
/* The lines of a stage or record behind `prefix`. */
struct rp_calendar_lines {
    const struct rp_calendar *calendar;
    struct rp_record_writer *writer;
    const char *prefix;
    char name[RP_RECORD_NAME_MAX + 1];
};
/* `limits` is by number, with the bits that have a line in `limit_sets`; NULL: none has. */
void rp_calendar_add_stage(struct rp_calendar_lines *lines, const struct rp_stage_spec *stage,
                           const struct rp_limits *limits, const uint8_t *limit_sets);
void rp_calendar_add_record(struct rp_calendar_lines *lines,
                            const struct rp_calendar_record *record);
/* shares.c */
int rp_calendar_check_mixes(struct rp_calendar *calendar, struct rp_error *error);
/* calendar_sets.c */
int rp_calendar_make_outs(struct rp_calendar *calendar, struct rp_error *error);
int rp_calendar_make_skips(struct rp_calendar *calendar, struct rp_error *error);

/** Weight of a source of the config in a stage, by number, before it is reduced; 0: waits. */
static inline uint32_t rp_calendar_weight(const struct rp_calendar *calendar,
                                          const struct rp_stage_spec *stage, uint32_t number)
{
    uint32_t source = calendar->config_of[number];
    return source == RP_NO_SOURCE ? 0 : stage->weights[source];
}
/** The greatest common divisor of the weights of a stage. */
static inline uint32_t rp_calendar_divisor(const struct rp_calendar *calendar,
                                           const struct rp_stage_spec *stage)
{
    uint64_t divisor = 0;
    for (uint32_t i = 0; i < calendar->spec.source_count && divisor != 1; i++)
        divisor = rp_gcd_u64(divisor, stage->weights[i]);
    return (uint32_t)divisor;
}

#define RP_REFUSE_STAGE(error, stage, from, hint, format, ...)                                     \
    rp_fail(error, -RP_E_CONFIG, hint, "stage %" PRIu32 " (from row %" PRIu64 "): " format, stage, \
            from, __VA_ARGS__)

#endif
