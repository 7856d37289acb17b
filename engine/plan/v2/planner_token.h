/* SPDX-License-Identifier: Apache-2.0 */
/* planner_token.h — the state token of version 2 (STREAM2.md section 12): write one, and continue a
 * stream from one.
 *
 * A token comes from a file or from a trainer and may be forged: the hash finds damage, not malice.
 * So no value of it is used before it is checked. */
#ifndef RP_PLAN_V2_PLANNER_TOKEN_H
#define RP_PLAN_V2_PLANNER_TOKEN_H

#include "plan/v2/planner.h"

#define RP_TOKEN_VERSION_CALENDAR 4u
/* STREAM2.md section 1.3. The bounds of sources and stages keep every token below 10 MiB. */
#define RP_STREAM_TOKEN_BYTES_MAX ((size_t)14 << 20)

/** Upper bound of a token of this calendar at any row, in bytes (section 12.3). */
size_t rp_planner_token_bytes_max(const struct rp_calendar *calendar);

/** Write the token of the plan's next row into `token`, which has room for the bound. */
RP_MUST_CHECK int rp_planner_token_write(struct rp_planner *plan, void *token, size_t *bytes_out,
                                         struct rp_error *error);

/* What may differ from the token, and facts that it does not hold. */
struct rp_stream_resume {
    const char *begun_records; /* records of the checkpoint's contract; NULL: none is known */
    /* Other weights, by source of the config, that were accepted (section 12.4, 7). NULL: none */
    const uint32_t *weights;
    bool grow; /* documents that were appended become a record */
    /* The token is of a row of the same calendar: limits that are reached may not differ, and make
     * no record. */
    bool keeps_limits;
};

/** The calendar and the plan of `spec` at the row of a token. Every byte of it is checked first.
 * Errors: -RP_E_CORRUPT, -RP_E_VERSION, -ENOMEM, -RP_E_CONFIG, -RP_E_MISMATCH (the message names
 * the field, both values, and a remedy). */
RP_MUST_CHECK int rp_planner_token_resume(struct rp_calendar **calendar_out,
                                          struct rp_planner **plan_out,
                                          const struct rp_stream_spec *spec, const void *token,
                                          size_t bytes, const struct rp_stream_resume *resume,
                                          struct rp_error *error);

/* The facts that a token contains, for listings. No calendar is needed. */
struct rp_planner_token_info {
    struct rp_stream_position position;
    uint32_t bytes, source_count, stages_begun;
    uint64_t seed;
    struct rp_hash128 digest;  /* plan digest at window_first */
    struct rp_hash128 records; /* chain B */
    struct rp_hash128 tokenizer;
    struct rp_stream_counts counts;
    uint64_t waiting; /* tokens */
    uint32_t seq_len, align, window, spread, max_docs_per_row, group, bos_id, eos_id;
    enum rp_shuffle shuffle;
    enum rp_packing packing;
    enum rp_row_gap row_gap;
    enum rp_long_doc long_doc;
    uint32_t block_documents, window_blocks;
    struct rp_deal deal;
};
struct rp_planner_token_source {
    char name[RP_SOURCE_NAME_MAX + 1];
    struct rp_source_state state;
    struct rp_limits limits;
    uint32_t weight;
    uint64_t waiting;               /* tokens */
    uint64_t documents_next;        /* the record `documents` in force */
    struct rp_source_prints prints; /* at state.documents */
    enum rp_too_long too_long;
    enum rp_drop_untrained drop_untrained;
};
RP_MUST_CHECK int rp_planner_token_info(const void *token, size_t bytes,
                                        struct rp_planner_token_info *info, struct rp_error *error);
/** All sources, by number; *sources_out is on the heap. */
RP_MUST_CHECK int rp_planner_token_sources(const void *token, size_t bytes,
                                           struct rp_planner_token_source **sources_out,
                                           uint32_t *count_out, struct rp_error *error);
/** One of them. Each call checks the whole token, so a loop takes rp_planner_token_sources. */
RP_MUST_CHECK int rp_planner_token_source(const void *token, size_t bytes, uint32_t number,
                                          struct rp_planner_token_source *source,
                                          struct rp_error *error);

#endif
