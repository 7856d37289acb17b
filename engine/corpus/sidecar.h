/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar.h — what `ringpack index` learnt about a shard, kept in a file PATH.rpx beside it (or in
 * an index directory), so that a run starts without a scan and notices a changed token.
 *
 * The file, little-endian, without gaps:
 *
 *      0    8  magic 89 'R' 'P' 'X' 0D 0A 1A 0A
 *      8  u32  version, 1
 *     12  u32  bytes in a block, 4096
 *     16  u32  format           (enum rp_format)
 *     20  u32  token type       (enum rp_token_type)
 *     24  i64  eos              (-1: the format needs none)
 *     32  u64  bytes of the token file
 *     40  u64  offset of its first token
 *     48  u64  tokens in its documents
 *     56  u64  documents
 *     64  u64  largest token id
 *     72  u64  B: blocks of the token file
 *     80  u64  S: entries of the document table: documents + 1; 0 where an .idx has them
 *     88  u64  bytes of the index: of the .idx, or of the document table
 *     96   16  rp_index_sample of the index
 *    112   16  XXH3-128 of the whole index
 *    128   16  XXH3-128 of the block table: the content hash of the token file
 *    144   96  zero
 *    240   16  XXH3-128 of bytes 0 .. 239, zeros included
 *    256  u64  [B] block table: XXH3-64 of every block; the last block may be short
 *         u64  [S] document table: first token of every document, then the number of tokens
 *
 * Invariants: nothing is used before every size has been checked against the file and every byte
 * against a hash, but for the block table of a sidecar that is mapped: there, a wrong hash differs
 * from its block and so stops whoever reads it. So a start does not take longer with more tokens.
 * The hashes find damage, not forgery: values that index memory are checked where they are used. A
 * sidecar is written whole or not at all (rp_new_file). */
#ifndef RP_CORPUS_SIDECAR_H
#define RP_CORPUS_SIDECAR_H

#include "base/file.h"
#include "corpus/corpus.h"

#define RP_SIDECAR_HEADER_BYTES 256u

/* The header as values. */
struct rp_sidecar_info {
    enum rp_format format;
    enum rp_token_type type;
    int64_t eos;
    uint64_t bytes, token_offset, tokens, documents, token_max;
    uint64_t block_count, start_count;
    uint64_t index_bytes;
    struct rp_hash128 index_sample, index_content, content;
};

struct rp_sidecar {
    struct rp_map map;
    char *path;
    struct rp_sidecar_info info;
    const uint64_t *block_hashes; /* [block_count] */
    const uint64_t *starts;       /* [start_count] */
};

/** Where the sidecar of a token file lies: beside it, or in index_dir if that is not NULL, under a
 * name that keeps equal base names apart. The caller frees it; NULL when out of memory. */
char *rp_sidecar_path(const char *token_path, const char *index_dir);

/** Open the sidecar at `path`. -ENOENT if there is none; -RP_E_CORRUPT, -RP_E_VERSION, … if it is
 * bad. */
RP_MUST_CHECK int rp_sidecar_open(struct rp_sidecar *sidecar, const char *path,
                                  const char *token_path, struct rp_error *error);

/** -RP_E_CORRUPT unless the block table is what was written. For when a block differs from it. */
RP_MUST_CHECK int rp_sidecar_check_blocks(const struct rp_sidecar *sidecar, const char *token_path,
                                          struct rp_error *error);

/** Look in index_dir, then beside the token file. 1 = found and open, 0 = none, negative = it is
 * bad. */
RP_MUST_CHECK int rp_sidecar_find(struct rp_sidecar *sidecar, const char *token_path,
                                  const char *index_dir, struct rp_error *error);
void rp_sidecar_close(struct rp_sidecar *sidecar);

/* One of the two tables while it is being written. */
struct rp_sidecar_table {
    uint64_t offset; /* in the file, of the next flush */
    uint64_t entries;
    struct rp_hasher hasher;
    size_t buffered;
    uint64_t buffer[1024];
};

struct rp_sidecar_writer {
    struct rp_new_file file;
    char *path;
    struct rp_sidecar_table blocks, starts;
};

/** Begin to replace the sidecar at `path`. The number of blocks is fixed now; entries of both
 * tables are then added in any interleaving. Memory use is constant. */
RP_MUST_CHECK int rp_sidecar_begin(struct rp_sidecar_writer *writer, const char *path,
                                   uint64_t block_count, struct rp_error *error);
RP_MUST_CHECK int rp_sidecar_add(struct rp_sidecar_writer *writer, struct rp_sidecar_table *table,
                                 const uint64_t *entries, size_t count, struct rp_error *error);
/** Hash the tables, complete *info (block_count, start_count, content; and for a shard with a
 * document table documents, index_bytes and the index hashes), write the header and publish. Ends
 * the writer in any case. */
RP_MUST_CHECK int rp_sidecar_finish(struct rp_sidecar_writer *writer, struct rp_sidecar_info *info,
                                    struct rp_error *error);
void rp_sidecar_discard(struct rp_sidecar_writer *writer);

#endif
