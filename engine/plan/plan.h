/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h — the fragments that make up row g, of streams of version 1 (STREAM.md) and of version 2
 * (STREAM2.md).
 *
 * The plan is a pure, sequential function of the document lengths, the seed and the parameters. It
 * reads no tokens and starts no threads, and its whole state is the state token. Any number of
 * plans may be open; each is used by one thread at a time.
 *
 * Sources are counted in the order of the config here, in both versions. The numbers that version 2
 * gives them in the order of their joining are in tokens, contracts and digests only. */
#ifndef RP_PLAN_PLAN_H
#define RP_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/numbering.h"
#include "base/record.h"

enum rp_shuffle { RP_SHUFFLE_NONE, RP_SHUFFLE_DOCUMENT, RP_SHUFFLE_BLOCK };
enum rp_packing { RP_PACKING_LOOKAHEAD, RP_PACKING_CONCAT, RP_PACKING_BEST_FIT };
enum rp_row_gap { RP_ROW_GAP_PAD, RP_ROW_GAP_SPLIT };
enum rp_long_doc { RP_LONG_DOC_SPLIT, RP_LONG_DOC_TRUNCATE, RP_LONG_DOC_DROP };

#define RP_SEQ_LEN_MAX (1u << 24)
#define RP_WINDOW_MAX 4096u
#define RP_LANES_MAX 1024u
#define RP_SOURCES_MAX 4096u
#define RP_EPOCHS_MAX UINT32_MAX

/* A length function returns this for a document whose index entry is damaged. */
#define RP_LENGTH_BAD UINT64_MAX

/* A source. `lengths` is borrowed and must outlive the plan. */
struct rp_plan_source {
    uint64_t documents; /* >= 1, < 2^63 */
    uint64_t weight;    /* 1 .. 2^32-1 */
    const void *lengths;
    uint64_t (*length)(const void *lengths, uint64_t document); /* tokens, or RP_LENGTH_BAD */
    /* The same for many documents, so that cache misses overlap. May be NULL. */
    void (*length_many)(const void *lengths, const uint64_t *documents, uint32_t count,
                        uint64_t *tokens);
    const char *name; /* for messages, borrowed; NULL = messages use its number */
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
    enum rp_row_gap row_gap;
    enum rp_long_doc long_doc;
    uint32_t max_docs_per_row;
    uint32_t lanes;
    struct rp_hash128 corpus_sampled, corpus_full; /* fingerprints; full is zero if not known */
    struct rp_hash128 tokenizer;                   /* that made the ids; zero if not known */
    uint64_t weight_unit; /* for messages: 1 of a weight in millionths of the user's number, or 0 */
};

/* `length` tokens of `document` from token `offset` on. Batches have this record as provenance. */
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
    uint64_t planned; /* its number in the order of packing; `row` in version 1 */
    uint32_t align;   /* places of a fragment are a multiple of it; 0 and 1: of 1 */
    bool skipped;     /* planned and not delivered: it has no fragments */
    uint64_t cost;    /* by its deal (STREAM2.md section 8); 0: it has no deal, or no fragment */
};

/* The content of rows that only stream version 2 can have (STREAM2.md sections 2.1, 11, 15), fixed
 * for the whole stream. All zero: version 1. */
struct rp_row_form {
    bool has_bos, has_eos; /* tokens are inserted before and after each document of n > 0 tokens */
    uint32_t bos_id, eos_id; /* read only if they are */
    bool label_across_cuts;
    bool has_row_plans; /* batches have RP_SECTION_ROW_PLANS: every stream of version 2 */
};

/* Sums over all lanes. tokens_read = truncated + dropped + left_out + emitted + buffered (STREAM.md
 * section 8, STREAM2.md section 12.2). In a deal window: the sums before its first row. */
struct rp_plan_counts {
    uint64_t documents, empty;                         /* documents */
    uint64_t passed_over;                              /* documents; version 2 */
    uint64_t tokens_read, truncated, dropped, emitted; /* tokens */
    uint64_t left_out;                                 /* tokens without labels; version 2 */
    uint64_t padding;  /* tokens of padding in rows with a fragment */
    uint64_t buffered; /* tokens in FIFOs, pending pieces, open rows */
    /* Counted since the plan was opened; not in the token. */
    /* Fragments whose document continues in a later row; in version 2, those that continue one */
    uint64_t cuts;
    uint64_t capped; /* rows that max_docs_per_row ended with a gap */
};

struct rp_plan;
struct rp_stream_spec; /* plan/v2/spec.h */

/** Open a plan of version 1 at row 0. config and sources are copied, and all memory is allocated
 * here. Errors: -RP_E_CONFIG (a parameter out of range, a source with fewer units than lanes),
 * -ENOMEM. */
RP_MUST_CHECK int rp_plan_open(struct rp_plan **plan_out, const struct rp_plan_config *config,
                               const struct rp_plan_source *sources, uint32_t source_count,
                               struct rp_error *error);
void rp_plan_close(struct rp_plan *plan); /* NULL is fine */

/** Open a plan of version 2 at row 0. *spec is copied; its arrays are borrowed. Errors:
 * -RP_E_CONFIG (the message names stage, row, source and field), -ENOMEM. */
RP_MUST_CHECK int rp_plan_open_stream(struct rp_plan **plan_out, const struct rp_stream_spec *spec,
                                      struct rp_error *error);
/** The plan frees `owned`, to which its spec belongs, when it is closed. */
void rp_plan_own(struct rp_plan *plan, void *owned, void (*free_owned)(void *owned));
/** The version of the stream: 1 or 2. */
uint32_t rp_plan_version(const struct rp_plan *plan);

/** Plan the next row. Returns 1 with *row set, or 0 at the end of the stream. Errors: -RP_E_CORRUPT
 * when an index entry is damaged (the message names source and document), -RP_E_EMPTY when a source
 * can never give a lane a token (STREAM.md section 4). After an error every further call returns it
 * again. */
RP_MUST_CHECK int rp_plan_next(struct rp_plan *plan, struct rp_row *row, struct rp_error *error);

/** Number of the row that rp_plan_next would return. */
uint64_t rp_plan_row(const struct rp_plan *plan);

/** The form of its rows; all zero in version 1. */
struct rp_row_form rp_plan_row_form(const struct rp_plan *plan);
/** Whether rows `first` to `first + count` - 1 are all skipped (STREAM2.md section 10.3), count >
 * 0. Decided without planning; false in version 1. */
bool rp_plan_skips(const struct rp_plan *plan, uint64_t first, uint64_t count);

/** Places of that row. In version 2 they may change at a stage. Where they do, rp_plan_next returns
 * 0 as at the end of the stream, because batches have one shape: rp_plan_is_stage_end tells the two
 * apart. A plan that crosses stages returns those rows. */
uint32_t rp_plan_seq_len(const struct rp_plan *plan);
bool rp_plan_is_stage_end(const struct rp_plan *plan);
void rp_plan_cross_stages(struct rp_plan *plan);
/** Places of the rows of this run, at whichever row the plan is. */
uint32_t rp_plan_run_seq_len(const struct rp_plan *plan);

/* The stage that follows the end of a run. */
struct rp_plan_stage {
    uint64_t row; /* its first */
    uint32_t number, seq_len;
};
/** If rp_plan_is_stage_end, that stage. */
bool rp_plan_next_stage(const struct rp_plan *plan, struct rp_plan_stage *stage);

/** The same in words; empty if it is not the end of a stage. */
void rp_plan_stage_text(const struct rp_plan *plan, char *text, size_t capacity);
/** The first row after `row` at which a stage or a record begins; UINT64_MAX: none. */
uint64_t rp_plan_next_boundary(const struct rp_plan *plan, uint64_t row);
/** Whether the plan is at a row of this run, or at its end. */
bool rp_plan_is_in_run(const struct rp_plan *plan);
/** Whether the records of the run that are begun at a token's row are the token's, in version 2.
 * The plan is at row 0 then, or where it was. */
bool rp_plan_has_records_of(struct rp_plan *plan, const void *token, size_t bytes);

/** For a run with drop_last: refuse a numbering if the stage ahead that ends the run does not begin
 * at one of its steps (STREAM2.md section 10.2); unless the stream ends at the plan's row. Errors:
 * -RP_E_CONFIG; the plan may have planned a row then. */
RP_MUST_CHECK int rp_plan_check_steps(struct rp_plan *plan, const struct rp_numbering *numbering,
                                      struct rp_error *error);

/** How many documents were read for the rows before that one. O(lanes). */
uint64_t rp_plan_documents(const struct rp_plan *plan);

/** Plan all rows before `row`. Returns 0, -RP_E_USAGE if `row` was planned already or the stream
 * ends before it, or the error of rp_plan_next. */
RP_MUST_CHECK int rp_plan_seek(struct rp_plan *plan, uint64_t row, struct rp_error *error);

/** The plan digest of all rows before the next one (STREAM.md section 7), or before the deal window
 * that has it; zero if it is not known, because the plan was continued from a token of an older
 * version. */
struct rp_hash128 rp_plan_digest(const struct rp_plan *plan);
/** The digest is not known from here on. Version 2 always knows it. */
void rp_plan_forget_digest(struct rp_plan *plan);

/** The most fragments that a row of this plan can have. */
uint32_t rp_plan_max_docs_per_row(const struct rp_plan *plan);

/** Upper bound of a state token of this plan, in bytes, at any row. */
size_t rp_plan_state_bytes_max(const struct rp_plan *plan);

/** Write the state token of the current position. Returns its length, at most
 * rp_plan_state_bytes_max; 0 if a plan of version 2 cannot make it. */
size_t rp_plan_save(const struct rp_plan *plan, void *token);
/** The same. Errors, of version 2 only: -ENOMEM, the error of a plan that failed, and errors of an
 * index that cannot be read. */
RP_MUST_CHECK int rp_plan_try_save(const struct rp_plan *plan, void *token, size_t *bytes,
                                   struct rp_error *error);

/** Continue at the position of a token. Every byte of it is checked first; on failure the plan does
 * not change. accept_weights: the plan's own weights apply from this row on; otherwise the token's
 * must be equal to them. Errors: -RP_E_CORRUPT, -RP_E_VERSION, -ENOMEM, -RP_E_MISMATCH (the message
 * names the field, both values, and a remedy). */
RP_MUST_CHECK int rp_plan_load(struct rp_plan *plan, const void *token, size_t bytes,
                               bool accept_weights, struct rp_error *error);

/** The same for a run that continues from a token: the plan's num_epochs may differ from the
 * token's, if no source was read beyond it (STREAM.md section 8). */
RP_MUST_CHECK int rp_plan_resume(struct rp_plan *plan, const void *token, size_t bytes,
                                 bool accept_weights, struct rp_error *error);

/* A record that a command appends to the calendar: it sets one of these from `row` on, by source of
 * the config. */
struct rp_plan_record {
    uint64_t row;
    const uint32_t *weights;   /* reduced; NULL: none are set */
    const uint64_t *documents; /* 0: the source keeps its number; NULL: none are set */
};

/* What a start from a token may change, and facts that the token does not hold. */
struct rp_plan_start {
    bool accept_weights; /* version 1: as rp_plan_load */
    /* Version 2. The stream record of the checkpoint's contract, whose records are begun; NULL:
     * only the token's history is known */
    const struct rp_record *contract;
    const uint32_t *weights; /* other weights, accepted, in the order of the config; NULL: none */
    bool grow;               /* documents that were appended join */
    bool keeps_records;      /* to deliver rows again: all records of the contract, and no other */
    /* Records that the run took while it ran; weights of the contract are known anyway. Entries
     * whose row is begun are ignored. */
    const struct rp_plan_record *ahead;
    uint32_t ahead_count;
};

/** Continue a run from a token, in a new engine or in a tool: as rp_plan_resume. In version 2,
 * growth and other weights become records of the plan's calendar here. load and resume make none:
 * they go to another row of the calendar that the plan has. */
RP_MUST_CHECK int rp_plan_start(struct rp_plan *plan, const void *token, size_t bytes,
                                const struct rp_plan_start *start, struct rp_error *error);

/** Go to row 0 of a run that rp_plan_start has continued: with the records of its contract, which
 * need not be those that the present config makes. Version 2 only. -RP_E_MISMATCH: they are not
 * known. */
RP_MUST_CHECK int rp_plan_rewind(struct rp_plan *plan, struct rp_error *error);

/** Load tokens from here on as `started` does, a plan of the same spec that rp_plan_start was
 * called on: with its records and its seq_len. Nothing to do in version 1. */
RP_MUST_CHECK int rp_plan_follow(struct rp_plan *plan, const struct rp_plan *started,
                                 struct rp_error *error);

/** Append a record to the calendar of a plan of version 2, at its position. Rows before its row
 * stay. Returns 0; 1 if the calendar has it already; -RP_E_USAGE if the row is begun; -RP_E_CONFIG
 * if a stage or a record sets the same there to other values, weights are inside a ramp, or a
 * source cannot have these documents. */
RP_MUST_CHECK int rp_plan_append_record(struct rp_plan *plan, const struct rp_plan_record *record,
                                        struct rp_error *error);

void rp_plan_counts(const struct rp_plan *plan, struct rp_plan_counts *counts);

/** Write the stream record of the contract: all fields that decide the tokens of a row (STREAM.md
 * section 9). */
void rp_plan_contract(const struct rp_plan *plan, struct rp_record_writer *writer);

/* The facts that a token contains, for listings. No plan and no corpus is needed. */
struct rp_state_info {
    struct rp_plan_config config; /* version 2 has no num_epochs, lanes and fingerprints in it */
    uint32_t stream_version;      /* 1 or 2 */
    uint64_t next_row;
    uint64_t window_first, window_end; /* the deal window; next_row in version 1 */
    struct rp_hash128 digest; /* plan digest of the rows before window_first; zero if not known */
    uint32_t source_count;
    uint32_t bytes;
    struct rp_plan_counts counts; /* cuts and capped are 0 */
};
/** Check magic, length and hash of a token, and decode it. Errors: -RP_E_CORRUPT, -RP_E_VERSION. */
RP_MUST_CHECK int rp_state_info(const void *token, size_t bytes, struct rp_state_info *info,
                                struct rp_error *error);

/* The first bytes of a token of any version. */
struct rp_state_head {
    uint32_t stream_version; /* 1 or 2; 0: no token, or of a newer ringpack */
    uint32_t bytes;
    uint64_t next_row;
    bool has_digest;
};
#define RP_STATE_HEAD_BYTES 104u
/** Read them, without a check: `token` has RP_STATE_HEAD_BYTES at least. */
struct rp_state_head rp_state_head(const void *token);

/** The stream record of a token's stream, as rp_plan_contract writes it, but for the names of the
 * sources, which are not in a token: needs no plan and no corpus. In version 2 a token has the
 * fixed parameters and the sources, but not the stages. Errors: as rp_state_info, and -ENOMEM. The
 * caller frees writer->text, also after an error. */
RP_MUST_CHECK int rp_state_contract(const void *token, size_t bytes,
                                    struct rp_record_writer *writer, struct rp_error *error);

/* The name of a source in messages. */
struct rp_plan_source_word {
    char text[80];
};
struct rp_plan_source_word rp_plan_source_word(const struct rp_plan_source *source,
                                               uint32_t number);

const char *rp_shuffle_name(enum rp_shuffle shuffle);
const char *rp_packing_name(enum rp_packing packing);
const char *rp_plan_row_gap_name(enum rp_row_gap row_gap);
/** The key of `window` of a packing: packing_buffer, or open_bins. */
const char *rp_plan_window_name(enum rp_packing packing);
const char *rp_long_doc_name(enum rp_long_doc long_doc);

#endif
