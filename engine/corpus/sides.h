/* SPDX-License-Identifier: Apache-2.0 */
/* sides.h — the side columns of a corpus: values of each token, or of each document.
 *
 * Each shard has a file for each column (side_file.h). To the flow these are files like the
 * shards': file n of column c is number (1 + c) * shards + n, and rp_corpus_shard gives it. */
#ifndef RP_CORPUS_SIDES_H
#define RP_CORPUS_SIDES_H

#include "corpus/side_file.h"

struct rp_corpus;
struct rp_corpus_spec;

/* A column of all shards. */
struct rp_side_info {
    char name[RP_SIDE_NAME_BYTES];
    struct rp_side_type type;
    enum rp_side_of of;
    struct rp_tokenizer_id tokenizer; /* that one of its files declares, as all that do */
    uint64_t file_bytes;              /* its files, objects left out */
    struct rp_hash128 content;        /* over its files, in the order of the shards */
};

struct rp_sides {
    uint32_t count; /* columns of tokens, which have files; they come first */
    uint32_t all;   /* columns of tokens and of documents */
    uint32_t shards, sources;
    const struct rp_side_file *declares; /* the first file that declares a tokenizer, or NULL */
    struct rp_side_info columns[RP_SIDES_MAX];
    struct rp_side_file *files; /* [count * shards] */
    uint64_t *token_offset;     /* [shards]: byte of the first token in the token file */
    struct rp_column **numbers; /* [(all - count) * sources]: columns of documents, in the index */
};

/* Which columns are wanted; columns of documents come last. */
struct rp_sides_spec {
    const char *const *names;
    const uint32_t *of; /* enum rp_side_of */
    uint32_t count;
};

/** Open the columns of every shard of a corpus that is open. Refuses by name: a shard without one,
 * another length, another type than other shards have, another tokenizer than the tokens or a
 * column before have, formats whose tokens are not one run. */
RP_MUST_CHECK int rp_sides_open(struct rp_sides *sides, const struct rp_corpus *corpus,
                                const struct rp_corpus_spec *spec, struct rp_error *error);
void rp_sides_close(struct rp_sides *sides);

/** The entries that a column of a shard has to have, and the byte of the first token. Refuses as
 * rp_sides_open. */
RP_MUST_CHECK int rp_sides_count_entries(const struct rp_corpus *corpus, uint32_t shard,
                                         const char *name, uint64_t *entries,
                                         uint64_t *token_offset, struct rp_error *error);

/** Compare the tokenizers of the tokens and of a column at `path`, if both are known.
 * -RP_E_MISMATCH. */
RP_MUST_CHECK int rp_sides_check_tokenizer(const struct rp_corpus *corpus,
                                           const struct rp_tokenizer_id *id, const char *path,
                                           struct rp_error *error);

/** The columns of the corpus; `count` may be 0. */
const struct rp_sides *rp_corpus_sides(const struct rp_corpus *corpus);
/** Set *out to the entries of column c for a document whose tokens are at `extent`. */
RP_MUST_CHECK int rp_sides_extent(const struct rp_corpus *corpus, uint32_t c,
                                  const struct rp_extent *extent, struct rp_extent *out,
                                  struct rp_error *error);

/** The tokens of entries that are in a range of bytes of a column's file: *shard becomes the number
 * of the shard, and the range is of its bytes then. */
void rp_sides_tokens_of(const struct rp_corpus *corpus, uint32_t *shard, uint64_t *first,
                        uint64_t *last);

/** The number of a document, of column c, as 8 bytes: i64 or f64. */
RP_MUST_CHECK int rp_sides_number(const struct rp_corpus *corpus, uint32_t c, uint32_t source,
                                  uint64_t document, uint64_t *out, struct rp_error *error);

/** The columns as the geometry of a batch has them. */
void rp_sides_describe(const struct rp_sides *sides, struct rp_side out[RP_SIDES_MAX]);
/** Compare all files of all columns with their hashes. -RP_E_CORRUPT. */
RP_MUST_CHECK int rp_sides_verify(const struct rp_sides *sides, struct rp_error *error);

#endif
