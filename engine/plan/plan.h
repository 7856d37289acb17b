/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h — which fragments make up row g.
 *
 * The plan is a pure, sequential function of the corpus' document lengths, the seed and the
 * parameters (STREAM.md is its specification). It reads no token, starts no thread, and its whole
 * state is the state token. A plan is a value: open as many as needed; each is used by one thread
 * at a time. */
#ifndef RP_PLAN_PLAN_H
#define RP_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/record.h"

enum rp_shuffle { RP_SHUFFLE_NONE, RP_SHUFFLE_DOCUMENT, RP_SHUFFLE_BLOCK };
enum rp_packing { RP_PACKING_LOOKAHEAD, RP_PACKING_CONCAT, RP_PACKING_BEST_FIT };
enum rp_fill { RP_FILL_PAD, RP_FILL_SPLIT };
enum rp_long_doc { RP_LONG_DOC_SPLIT, RP_LONG_DOC_TRUNCATE, RP_LONG_DOC_DROP };

#define RP_SEQ_LEN_MAX (1u << 24)
#define RP_WINDOW_MAX 4096u
#define RP_LANES_MAX 1024u
#define RP_SOURCES_MAX 4096u
#define RP_EPOCHS_MAX UINT32_MAX

/* What a length function returns for a document whose index entry is damaged. */
#define RP_LENGTH_BAD UINT64_MAX

/* One source as the plan sees it. `lengths` is borrowed and must outlive the plan. */
struct rp_plan_source {
    uint64_t documents; /* >= 1, < 2^63 */
    uint64_t weight;    /* 1 .. 2^32-1 */
    const void *lengths;
    uint64_t (*length)(const void *lengths, uint64_t document); /* tokens, or RP_LENGTH_BAD */
    /* NULL, or the same for many, whose cache misses can then overlap */
    void (*length_many)(const void *lengths, const uint64_t *documents, uint32_t count,
                        uint64_t *tokens);
    const char *name; /* for messages, borrowed as well; NULL = they tell its number */
};

/* The parameters of STREAM.md section 1, in its order. rp_plan_open zeroes the unused ones. */
struct rp_plan_config {
    uint64_t seed;
    uint64_t num_epochs; /* at most RP_EPOCHS_MAX; 0 = endless */
    uint32_t seq_len;
    enum rp_shuffle shuffle;
    uint32_t block_documents, window_blocks;
    enum rp_packing packing;
    uint32_t window;
    enum rp_fill fill;
    enum rp_long_doc long_doc;
    uint32_t max_docs_per_row;
    uint32_t lanes;
    struct rp_hash128 corpus_sampled, corpus_full; /* fingerprints; full is zero when not known */
};

/* `length` tokens of `document` from token `offset` on; also the provenance record of a batch. */
struct rp_fragment {
    uint64_t document, offset;
    uint32_t source, length;
};
RP_STATIC_ASSERT(sizeof(struct rp_fragment) == 24, "the provenance record is part of the ABI");

/* One planned row. `fragments` points into the plan and stays valid until the next call on it. */
struct rp_row {
    uint64_t row;
    uint32_t count;  /* fragments; 0 is a row of padding only */
    uint32_t tokens; /* sum of their lengths, at most seq_len */
    const struct rp_fragment *fragments;
};

/* Every token of the documents taken so far is in one of these (STREAM.md section 8). Over all
 * lanes. */
struct rp_plan_counts {
    uint64_t documents, empty;                         /* documents */
    uint64_t tokens_read, truncated, dropped, emitted; /* tokens */
    uint64_t padding;  /* tokens of padding in rows with a fragment */
    uint64_t buffered; /* tokens in FIFOs, pending pieces, open rows */
    uint64_t cuts; /* fragments after which their document goes on: since open, not in the token */
    uint64_t capped; /* rows closed with a gap by max_docs_per_row: since open, not in the token */
};

struct rp_plan;

/** Make a plan that stands at row 0. Copies config and sources; allocates all it will ever need.
 *  Errors: -RP_E_CONFIG (a parameter out of range, a source with fewer units than lanes), -ENOMEM.
 */
RP_MUST_CHECK int rp_plan_open(struct rp_plan **plan_out, const struct rp_plan_config *config,
                               const struct rp_plan_source *sources, uint32_t source_count,
                               struct rp_error *error);
void rp_plan_close(struct rp_plan *plan); /* NULL is fine */

/** Plan the next row. Returns 1 with *row set, 0 at the end of the stream, or -RP_E_CORRUPT when an
 *  index entry is bad (the message names source and document; the plan is then unusable), or
 *  -RP_E_EMPTY when a lane has read a whole source without finding a token, would read it again,
 * and can never find one. */
RP_MUST_CHECK int rp_plan_next(struct rp_plan *plan, struct rp_row *row, struct rp_error *error);

/** Number of the row that rp_plan_next would return. */
uint64_t rp_plan_row(const struct rp_plan *plan);

/** Plan up to, and without, `row`. Returns 0, or -RP_E_USAGE if `row` lies behind, or the stream
 * ends before it, or what rp_plan_next returned. */
RP_MUST_CHECK int rp_plan_seek(struct rp_plan *plan, uint64_t row, struct rp_error *error);

/** The most fragments that a row of this plan has. */
uint32_t rp_plan_max_docs_per_row(const struct rp_plan *plan);

/** Upper bound of a state token of this plan, in bytes, at any row. */
size_t rp_plan_state_bytes_max(const struct rp_plan *plan);

/** Write the state token of the present position; returns its length, at most
 * rp_plan_state_bytes_max. */
size_t rp_plan_save(const struct rp_plan *plan, void *token);

/** Take the position of a token. Every byte is checked first; on failure the plan is as it was.
 *  accept_weights: take the plan's own weights from this row on, whatever the token says.
 *  Errors: -RP_E_CORRUPT, -RP_E_VERSION, -ENOMEM, -RP_E_MISMATCH (names the field, both values,
 * the way out). */
RP_MUST_CHECK int rp_plan_load(struct rp_plan *plan, const void *token, size_t bytes,
                               bool accept_weights, struct rp_error *error);

void rp_plan_counts(const struct rp_plan *plan, struct rp_plan_counts *counts);

/** Write the stream record of the contract: all that decides the tokens of a row (STREAM.md
 * section 9). */
void rp_plan_contract(const struct rp_plan *plan, struct rp_record_writer *writer);

/* The header of a token, for listings: needs no plan and no corpus. */
struct rp_state_info {
    struct rp_plan_config config;
    uint64_t next_row;
    uint32_t source_count;
    uint32_t bytes;
    struct rp_plan_counts counts; /* cuts and capped are 0 */
};
/** Check a token's framing and hash and read its header. Errors: -RP_E_CORRUPT, -RP_E_VERSION. */
RP_MUST_CHECK int rp_state_info(const void *token, size_t bytes, struct rp_state_info *info,
                                struct rp_error *error);

/* What messages call a source. */
struct rp_plan_source_word {
    char text[80];
};
struct rp_plan_source_word rp_plan_source_word(const struct rp_plan_source *source,
                                               uint32_t number);

const char *rp_shuffle_name(enum rp_shuffle shuffle);
const char *rp_packing_name(enum rp_packing packing);
const char *rp_plan_fill_name(enum rp_fill fill);
const char *rp_long_doc_name(enum rp_long_doc long_doc);

#endif
