/* SPDX-License-Identifier: Apache-2.0 */
/* planner_token_format.h — a state token of version 2 as bytes and as arrays (STREAM2.md section
 * 12.2). Private to engine/plan/v2.
 *
 * A token passes two checks before a plan gets it. Decoding checks everything that the token alone
 * decides: form, ranges, and its sums. Verification compares it with calendar and documents. After
 * both, each number is safe as an index, as a bound of a loop, and in the sums of the planner. */
#ifndef RP_PLAN_V2_PLANNER_TOKEN_FORMAT_H
#define RP_PLAN_V2_PLANNER_TOKEN_FORMAT_H

#include "plan/token_records.h"
#include "plan/v2/planner_token.h"

struct rp_token2_deal {
    uint32_t window, step, tier, bundle, k, w; /* window 0: off */
    uint8_t order, h, b, zero;
};

struct rp_token2_header {
    char magic[8];
    uint32_t version, bytes;
    uint64_t seed, next_row, window_first, window_end;
    struct rp_hash128 digest, declared, records, skips, tokenizer; /* chains A, B; Z */
    struct rp_stream_counts counts;
    uint64_t pool_row;
    uint32_t seq_len, window, max_docs_per_row, block_documents, window_blocks, spread, align,
        group;
    uint32_t longest, bos_id, eos_id, stages_begun;
    uint32_t source_count, fifo_count, pool_count, open_count, history_bytes;
    struct rp_token2_deal deal;
    uint8_t shuffle, packing, row_gap, long_doc, stopped, label_across_cuts, zero[2];
};
RP_STATIC_ASSERT(sizeof(struct rp_token2_header) == 320, "STREAM2.md section 12.2");

/* `documents_next` as u64 follows if flags say so, then the name. */
struct rp_token2_source {
    uint64_t sampled, full, selection, documents, before, position;
    int64_t credit;
    uint64_t tokens, taken, withheld, max_tokens;
    uint32_t max_epochs, weight, epoch;
    uint8_t pass, on_exhausted, too_long, flags;
};
RP_STATIC_ASSERT(sizeof(struct rp_token2_source) == 104, "STREAM2.md section 12.2");
#define RP_TOKEN_DOCUMENTS_DIFFER 4u /* in flags, above drop_untrained */

struct rp_token2_open_row {
    uint64_t opened_at;
    uint32_t pieces, zero;
};
RP_STATIC_ASSERT(sizeof(struct rp_token2_open_row) == 16, "STREAM2.md section 12.2");

/* A token as arrays. The snapshot's arrays follow the header's counts; its sources have the states
 * once more. */
struct rp_token2 {
    struct rp_token2_header header;
    struct rp_planner_token_source *sources;
    struct rp_snapshot snapshot;
    char *history; /* ends with a NUL; header.history_bytes counts zero bytes, too */
};

/** Check the bytes and fill *token. Errors: -RP_E_CORRUPT, -RP_E_VERSION, -ENOMEM; *token is empty
 * then. */
RP_MUST_CHECK int rp_token2_decode(struct rp_token2 *token, const void *bytes, size_t count,
                                   struct rp_error *error);
void rp_token2_free(struct rp_token2 *token); /* an empty one is fine */

/** Write a token, its length and its hash. Returns its bytes. */
size_t rp_token2_encode(const struct rp_token2 *token, void *bytes);

/** The checks of rp_token2_decode that need no bytes: ranges of every value, and sums. */
RP_MUST_CHECK int rp_token2_check(const struct rp_token2 *token, struct rp_error *error);

struct rp_deal rp_token2_deal_of(const struct rp_token2_deal *deal);
/** The sources whose record `documents` is not their n. */
uint32_t rp_token2_flags(const struct rp_token2 *token);

/** Check the state of a token against calendar and documents. The calendar has the token's begun
 * stages, parameters and names. Errors: -RP_E_CORRUPT, or of a view. */
RP_MUST_CHECK int rp_token2_verify(const struct rp_token2 *token,
                                   const struct rp_calendar *calendar, struct rp_error *error);

/* The most pieces that wait in FIFO and pool, and in all three stores, under the stages before a
 * row; and the bytes that all can take. */
struct rp_token2_room {
    uint64_t queued, waiting, bytes;
};
struct rp_token2_room rp_token2_room_at(const struct rp_calendar *calendar, uint64_t row);

/* The oldest entry of a history. */
struct rp_token2_oldest {
    uint64_t from;
    bool is_record; /* a declared stage of its row is older, and not in the history */
};
/** The oldest entry of an empty history: a stage from `next_row`. */
struct rp_token2_oldest rp_token2_history_oldest(const char *history, uint64_t next_row);
/** The history of a calendar, as rp_calendar_history. If the calendar lacks records, it begins with
 * `oldest`, because entries before it may be missing. */
uint32_t rp_token2_history_of(const struct rp_calendar *calendar, uint64_t next_row, uint32_t flags,
                              const struct rp_token2_oldest *oldest, char text[RP_HISTORY_MAX + 1]);

/* What a plan carries for its next token, for each source of its calendar. */
struct rp_token2_kept_source {
    uint64_t prints_at; /* documents; 0: prints are not known yet */
    struct rp_source_prints prints;
    struct rp_limits limits; /* in force before limits_end */
    /* It left the config. The rest is read only then. */
    bool is_removed;
    enum rp_too_long too_long;
    enum rp_drop_untrained drop_untrained;
    uint64_t documents_next;
};
struct rp_token2_kept {
    uint64_t limits_end; /* window_end of the token that was continued; 0: none was */
    struct rp_token2_oldest oldest;
    struct rp_token2_kept_source sources[];
};
/** The carried facts of a plan, made at the first call. NULL without memory. */
struct rp_token2_kept *rp_token2_kept_of(struct rp_planner *plan);

/* ---- resume (planner_token_match.c, planner_token_history.c) --------------------------------- */

/* A start from a token. */
struct rp_token2_resume {
    const struct rp_stream_spec *spec;
    const struct rp_stream_resume *with;
    struct rp_error *error;
    struct rp_token2 token;
    /* By number: the source of the config, NULL if it left it; and its name. */
    const struct rp_stream_source **sources;
    const char **names;
    uint32_t removed; /* how many left the config */
    uint32_t grown;   /* how many have more documents than their record */
};

/** Sections 1.1 and 1.2, fingerprints, documents and the tokenizer: 1 to 3 of section 12.4. */
RP_MUST_CHECK int rp_token2_match_spec(struct rp_token2_resume *resume);
/** The rows of begun stages, as far as the token has them: before a calendar is made of them. */
RP_MUST_CHECK int rp_token2_match_rows(const struct rp_token2_resume *resume);
/** Stages, parameters, records and skips of a calendar that has the token's position: 4 and 5. */
RP_MUST_CHECK int rp_token2_match_calendar(const struct rp_token2_resume *resume,
                                           const struct rp_calendar *calendar);
/** Refuse a calendar whose chain A is another: with the first field that differs of a stage that
 * the token's history has. */
RP_MUST_CHECK int rp_token2_match_stages(const struct rp_token2_resume *resume,
                                         const struct rp_calendar *calendar);
/** The records of a token's history as lines of a contract, for rp_calendar_open: *text_out is on
 * the heap. */
RP_MUST_CHECK int rp_token2_history_records(const char *history, char **text_out,
                                            struct rp_error *error);
/** Whether the history shows that no record has `row`, its newest entry being older or a declared
 * stage. */
bool rp_token2_history_excludes(const char *history, uint64_t row);
/** Limits: 6. Sources of the config whose limits of the begun stage are others than the token's;
 * `other` is by number. Returns their number. */
uint32_t rp_token2_other_limits(const struct rp_token2_resume *resume,
                                const struct rp_calendar *calendar, bool *other);
/** Once the window of the token is planned again: leave those in `other` whose limits are reached
 * at row e, which a record keeps. Returns their number. */
RP_MUST_CHECK int rp_token2_match_limits(const struct rp_token2_resume *resume,
                                         const struct rp_calendar *calendar,
                                         const struct rp_planner *plan, bool *other);

#endif
