/* SPDX-License-Identifier: Apache-2.0 */
/* token_records.h — the records of a state token, byte by byte (STREAM.md section 8), and the three
 * steps that check a token: open, match, verify.
 *
 * A token comes from a file or from a trainer and may be forged: the hash finds damage, not malice.
 * So no value of it is used before rp_state_verify has checked it. */
#ifndef RP_PLAN_TOKEN_RECORDS_H
#define RP_PLAN_TOKEN_RECORDS_H

#include <string.h>

#include "plan/plan_state.h"

#define RP_TOKEN_MAGIC "RPSTATE" /* with its zero byte: 8 bytes */
/* The version says which fields are between the lanes and the hash that ends a token. */
#define RP_TOKEN_VERSION_PLAIN 1u     /* none */
#define RP_TOKEN_VERSION_TOKENIZER 2u /* the tokenizer */
#define RP_TOKEN_VERSION_DIGEST 3u    /* the tokenizer, or zeros, then the plan digest */

struct rp_state_header {
    char magic[8];
    uint32_t version, bytes;
    struct rp_hash128 corpus_sampled, corpus_full;
    uint64_t seed;
    uint32_t seq_len;
    uint8_t shuffle, packing, row_gap, long_doc;
    uint32_t window, max_docs_per_row, block_documents, window_blocks, lanes, source_count;
    uint64_t num_epochs;
    uint64_t next_row;
};
RP_STATIC_ASSERT(sizeof(struct rp_state_header) == 104, "STREAM.md section 8");

struct rp_state_source {
    uint64_t weight, documents;
};

struct rp_state_lane {
    struct rp_lane_counts counts;
    uint32_t fifo, pending, open_rows, zero;
};
RP_STATIC_ASSERT(sizeof(struct rp_state_lane) == 80, "STREAM.md section 8");

struct rp_state_cursor {
    uint64_t epoch, position, mixed;
};

struct rp_state_piece {
    uint64_t document, offset, length;
    uint32_t source, zero;
};
RP_STATIC_ASSERT(sizeof(struct rp_state_piece) == 32, "STREAM.md section 8");

struct rp_state_open_row {
    uint64_t opened_at;
    uint32_t fragments, zero; /* the fragments follow as struct rp_fragment */
};
RP_STATIC_ASSERT(sizeof(struct rp_state_open_row) == 16, "STREAM.md section 8");

/* Reads the records between the header and the end of a token: tokenizer, plan digest and hash. */
struct rp_state_reader {
    const uint8_t *at;
    size_t left;
    struct rp_hash128 tokenizer, digest; /* zero: not known */
};
/** Copy the next record out; false if fewer bytes are left. */
static inline bool rp_state_read(struct rp_state_reader *reader, void *record, size_t bytes)
{
    if (reader->left < bytes)
        return false;
    memcpy(record, reader->at, bytes);
    reader->at += bytes;
    reader->left -= bytes;
    return true;
}
/** Skip `count` records; false if fewer bytes are left. */
static inline bool rp_state_skip(struct rp_state_reader *reader, uint64_t count, size_t bytes)
{
    if (count > reader->left / bytes)
        return false;
    reader->at += count * bytes;
    reader->left -= (size_t)count * bytes;
    return true;
}

/** Skip the pieces and open rows that a lane holds back for later rows; false if fewer are left. */
bool rp_state_skip_held(struct rp_state_reader *reader, const struct rp_state_lane *lane);

/** The rows of lane `number` of `lanes` before next_row. */
static inline uint64_t rp_rows_of_lane(uint64_t number, uint64_t lanes, uint64_t next_row)
{
    return next_row > number ? (next_row - 1 - number) / lanes + 1 : 0;
}

/** Check magic, length and hash of a token of any version, which has `least` bytes (16 or more) of
 * its header. A token without lanes and pieces has `empty_bytes`. */
RP_MUST_CHECK int rp_state_check_bytes(const void *token, size_t bytes, size_t least,
                                       size_t empty_bytes, struct rp_error *error);
/** The same, and its version; read the header. */
RP_MUST_CHECK int rp_state_open(struct rp_state_reader *reader, struct rp_state_header *header,
                                const void *token, size_t bytes, struct rp_error *error);

/** The header of a token of `plan` at its current row. The field `bytes` is left 0. */
struct rp_state_header rp_state_header_of(const struct rp_plan *plan);

/* The permitted differences between a token and the plan that continues it. */
struct rp_state_accepts {
    bool weights, epochs;
};

/** Read the source table, and check that the token is of the plan's stream. *weights_differ is set
 * on success. Errors: -RP_E_MISMATCH, -RP_E_CORRUPT, -ENOMEM. */
RP_MUST_CHECK int rp_state_match(struct rp_state_reader *reader,
                                 const struct rp_state_header *header, const struct rp_plan *plan,
                                 struct rp_state_accepts accepts, bool *weights_differ,
                                 struct rp_error *error);

/** Check every value of every lane against plan and corpus. The records of the lanes must be all
 * that `reader` has left. Errors: -RP_E_CORRUPT; -RP_E_MISMATCH where a source was read further
 * than the plan's num_epochs. */
RP_MUST_CHECK int rp_state_verify(struct rp_state_reader reader,
                                  const struct rp_state_header *header, const struct rp_plan *plan,
                                  struct rp_error *error);

#define RP_TOKEN_DAMAGED_HINT                                                                      \
    "the run is unchanged; take another state token or an older checkpoint"
#define RP_TOKEN_DAMAGED(error, ...)                                                               \
    rp_fail(error, -RP_E_CORRUPT, RP_TOKEN_DAMAGED_HINT, "state token" __VA_ARGS__)

#endif
