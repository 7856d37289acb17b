/* SPDX-License-Identifier: Apache-2.0 */
/* spec.h — the inputs of a stream of version 2 (STREAM2.md section 1), as its caller gives them.
 *
 * Everything here is borrowed: it must outlive the calendar and the plan that are made of it.
 * Sources are counted in the order of the config here; their numbers in the stream follow from the
 * order in which they join (section 1.2), and are the calendar's. */
#ifndef RP_PLAN_V2_SPEC_H
#define RP_PLAN_V2_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cost.h"
#include "base/fail.h"
#include "base/hash.h"
#include "plan/plan.h" /* enums of shuffle, packing, row_gap and long_doc; RP_LENGTH_BAD */

#define RP_NO_TOKEN_ID UINT32_MAX /* bos_id, eos_id: none */
#define RP_GROUP_MAX 64u
#define RP_ALIGN_MAX 4096u
#define RP_SPREAD_MAX 1024u
#define RP_SPREAD_DEFAULT 64u
#define RP_COUNT_MAX 255u /* passes of an epoch */
#define RP_PIECE_TOKENS_MAX ((UINT32_C(1) << 27) - 1)
#define RP_SOURCE_NAME_MAX 63u /* bytes */
#define RP_STAGES_MAX 10000u   /* declared ones; and as many records */
#define RP_NO_ROW UINT64_MAX

enum rp_too_long { RP_TOO_LONG_CUT, RP_TOO_LONG_DROP, RP_TOO_LONG_TRUNCATE, RP_TOO_LONG_ERROR };

/* Groups of documents are atomic, also of a source that is not. */
static inline enum rp_too_long rp_too_long_of(enum rp_too_long too_long, uint32_t group)
{
    return group > 1 && too_long == RP_TOO_LONG_CUT ? RP_TOO_LONG_ERROR : too_long;
}
enum rp_drop_untrained { RP_KEEP_UNTRAINED, RP_DROP_DOCUMENTS, RP_DROP_FRAGMENTS };
enum rp_on_exhausted { RP_EXHAUSTED_CONTINUE, RP_EXHAUSTED_STOP, RP_EXHAUSTED_ERROR };
enum rp_deal_order {
    RP_DEAL_DESCENDING,
    RP_DEAL_MIDDLE,
    RP_DEAL_WAVE,
    RP_DEAL_LATE_WAVE,
    RP_DEAL_ORDERS, /* their number */
};

/* Section 1.1. Members that a rule of the text sets to 0 are set by rp_calendar_open. */
struct rp_stream_fixed {
    uint64_t seed;
    enum rp_shuffle shuffle;
    uint32_t block_documents, window_blocks;
    uint32_t group; /* 1 … RP_GROUP_MAX */
    enum rp_long_doc long_doc;
    uint32_t bos_id, eos_id; /* RP_NO_TOKEN_ID: none */
    bool label_across_cuts;
    struct rp_hash128 tokenizer; /* zero: not known */
};

struct rp_limits {
    uint64_t max_tokens; /* 0: none */
    uint32_t max_epochs; /* 0: endless */
    enum rp_on_exhausted on_exhausted;
};

/* The low words of the fingerprints of a source at n documents (section 2.2). */
struct rp_source_prints {
    uint64_t sampled, full; /* full 0: not known */
    uint64_t selection;     /* 0: neither select nor repeat */
};

/* The documents of a source, numbered after its range. `context` is passed to each call; all calls
 * are pure, and the plan's thread makes them. Document numbers are below `documents`. */
struct rp_source_view {
    const void *context;
    /* Tokens of the document's own, 0 also for an untrained one with `drop_untrained: document`;
     * RP_LENGTH_BAD if its index entry is damaged. Inserted BOS and EOS are not counted. */
    void (*lengths)(const void *context, const uint64_t *documents, uint32_t count,
                    uint64_t *tokens);
    /* Counts of section 4; `without` is not applied. NULL: all are 1. -RP_E_CORRUPT: a damaged
     * entry of a column. */
    int (*counts)(const void *context, const uint64_t *documents, uint32_t count, uint8_t *counts,
                  struct rp_error *error);
    /* Whether tokens offset … offset + length - 1 of a document are labelled (section 11), offsets
     * with an inserted BOS counted. NULL: all are. Negative: damaged spans. */
    int (*labelled)(const void *context, uint64_t document, uint32_t offset, uint32_t length,
                    struct rp_error *error);
    /* Fingerprints at `documents` documents; -RP_E_CHANGED if no prefix of the shards has them. */
    int (*prints)(const void *context, uint64_t documents, struct rp_source_prints *prints,
                  struct rp_error *error);
};

/* Section 1.2. */
struct rp_stream_source {
    const char *name;   /* 1 … RP_SOURCE_NAME_MAX bytes */
    uint64_t documents; /* in the index, after the range: at most range_end - range_first */
    uint64_t range_first, range_end; /* range_end RP_NO_ROW: `FIRST-`, may grow */
    bool is_percent;                 /* the range was resolved from percent: it is a record */
    /* It left the config, and only stages that are begun name it (section 9.3). All but the name is
     * ignored. */
    bool is_absent;
    enum rp_too_long too_long; /* RP_TOO_LONG_CUT: not atomic; rp_too_long_of a group: ERROR */
    enum rp_drop_untrained drop_untrained;
    uint8_t passes;          /* R: the greatest count of `repeat`, 1 without one */
    struct rp_limits limits; /* before any stage sets them */
    struct rp_source_view view;
};

struct rp_deal {
    uint32_t window, step, tier, bundle; /* Y, T, C, m; window 0: off */
    enum rp_deal_order order;
    struct rp_cost cost;
};

/* Bits of rp_stage_spec.sets. */
enum {
    RP_SETS_WEIGHTS = 1 << 0, /* weights, ramp */
    RP_SETS_SEQ_LEN = 1 << 1,
    RP_SETS_ALIGN = 1 << 2,
    RP_SETS_PACKING = 1 << 3,
    RP_SETS_WINDOW = 1 << 4,
    RP_SETS_ROW_GAP = 1 << 5,
    RP_SETS_SPREAD = 1 << 6,
    RP_SETS_MAX_DOCS = 1 << 7,
    RP_SETS_DEAL = 1 << 8,
    /* `deal` is the present job's: it becomes a record where the stage is not begun. Without
     * RP_SETS_DEAL. */
    RP_WANTS_DEAL = 1 << 9,
};

struct rp_limits_change {
    uint32_t source; /* in the order of the config */
    uint8_t sets;    /* 1: max_epochs, 2: max_tokens, 4: on_exhausted */
    struct rp_limits limits;
};
struct rp_without {
    uint32_t source;
    uint64_t count;
    const uint64_t *documents; /* ascending, each once */
};
struct rp_source_count {
    uint32_t source;
    uint64_t documents;
};

/* A declared stage, or a record that the engine wants at a row (sections 1.3, 9.4). Members whose
 * bit is not set are not read. A record has weights (ramp 0), documents, max_docs_per_row, deal and
 * limits only; its limits are all three of a source, and were in force before it. */
struct rp_stage_spec {
    uint64_t from;
    uint32_t sets;
    const uint32_t *weights; /* by source of the config, reduced; 0: waits */
    uint64_t ramp;
    uint32_t seq_len, align, window, spread, max_docs_per_row;
    enum rp_packing packing;
    enum rp_row_gap row_gap;
    struct rp_deal deal;
    const struct rp_limits_change *limits;
    const struct rp_without *without;
    const struct rp_source_count *documents; /* a record's, or declared growth */
    uint32_t limits_count, without_count, documents_count;
    uint32_t joins_count; /* a record's sources that join there: the last ones of `documents` */
};

struct rp_row_range {
    uint64_t first, end;
};

struct rp_stream_spec {
    struct rp_stream_fixed fixed;
    uint32_t source_count;
    const struct rp_stream_source *sources;
    uint32_t stage_count; /* declared; the first is from row 0, and sets all */
    const struct rp_stage_spec *stages;
    uint32_t record_count; /* that the engine wants at rows ahead, ascending */
    const struct rp_stage_spec *records;
    uint32_t skip_count; /* ascending, not adjacent */
    const struct rp_row_range *skips;
};

#endif
