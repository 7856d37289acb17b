/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar.h — what `ringpack index` learnt about a shard, kept in a file PATH.rpx beside it (or in
 * an index directory), so that a run starts without a scan and notices a changed token.
 *
 * The file, little-endian, without gaps:
 *
 *      0    8  magic 89 'R' 'P' 'X' 0D 0A 1A 0A
 *      8  u32  version, 2; or 3, which is the same with a tokenizer at the end
 *     12  u32  bytes in a block, 4096
 *     16  u32  format           (enum rp_format)
 *     20  u32  token type       (enum rp_token_type)
 *     24  i64  eos              (-1: the format needs none)
 *     32  u64  bytes of the token file
 *     40  u64  offset of its first token
 *     48  u64  tokens in its documents
 *     56  u64  documents
 *     64  u64  largest token id; 2^64 - 1: not known
 *     72  u64  B: blocks of the token file
 *     80  u64  T: bytes of the image of the table (table.h); 0 where there is none
 *     88  u64  bytes of the .idx; 0 where there is none, as the next two
 *     96   16  rp_index_sample of the .idx
 *    112   16  XXH3-128 of the whole .idx
 *    128   16  XXH3-128 of the block table: the content hash of the token file
 *    144  u32  what the table has: 1 extents, 2 spans
 *    148  u32  how the mask was read: 1 labels, 2 `ignore`, 4 of the next token
 *    152  u64  spans in the table
 *    160   16  root of the table: XXH3-128 of its page hashes
 *    176   32  name of the column of token ids, zeros after it
 *    208   32  name of the mask that the spans were made of, likewise
 *    240   16  XXH3-128 of bytes 0 .. 239, zeros included
 *    256  u64  [B] block table: XXH3-64 of every block; the last block may be short
 *         u8   [T] image of the table
 *         u64  [T / 4096, rounded up] page hashes: XXH3-64 of every page of the image
 *
 * and at the end of version 3, which is written only where the tokenizer is known (tokenizer_id.h):
 *
 *      0   48  name of the tokenizer, zeros after it
 *     48   16  XXH3-128 of its tokenizer.json, not zeros
 *     64   16  XXH3-128 of these 64 bytes
 *
 * Spans of a shard with an .idx are a table without extents: bit 2 alone. A version 1 sidecar of
 * such a shard is a version 2 one without a table, and is read. Those of other formats had a table
 * of another form, so they are refused, and the message says how to build them again: that takes
 * seconds for a file of some GB, and a second form of the table would have to be kept for ever.
 *
 * Invariants: nothing is used before every size has been checked against the file. The header is
 * verified at open. Of a sidecar that is mapped, a page of the table is verified at its first use,
 * and a wrong entry of the block table or of the page hashes differs from its block or page and so
 * stops whoever reads that; a small one is copied and verified whole. So a start does not take
 * longer with more tokens or documents. The hashes find damage, not forgery: values that index
 * memory are checked where they are used. A sidecar is written whole or not at all (rp_new_file).
 */
#ifndef RP_CORPUS_SIDECAR_H
#define RP_CORPUS_SIDECAR_H

#include "base/file.h"
#include "corpus/table.h"
#include "corpus/tokenizer_id.h"

#define RP_SIDECAR_HEADER_BYTES 256u

/* The header as values. */
struct rp_sidecar_info {
    enum rp_format format;
    enum rp_token_type type;
    int64_t eos;
    uint64_t bytes, token_offset, tokens, token_max;
    uint64_t block_count;
    uint64_t index_bytes;
    struct rp_hash128 index_sample, index_content, content, table_root;
    struct rp_table_shape table; /* with the number of documents */
    char column[RP_COLUMN_BYTES];
    struct rp_mask_origin mask;
    struct rp_tokenizer_id tokenizer;
};

struct rp_sidecar {
    struct rp_map map;
    char *path;
    struct rp_sidecar_info info;
    const uint64_t *block_hashes; /* [block_count] */
    struct rp_table table;
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

/** -RP_E_CORRUPT unless the whole table and its page hashes are what was written. */
RP_MUST_CHECK int rp_sidecar_check_table(const struct rp_sidecar *sidecar, const char *token_path,
                                         struct rp_error *error);

/** Search index_dir, then beside the token file. 1 = found and open, 0 = none, negative = it is
 * bad. */
RP_MUST_CHECK int rp_sidecar_find(struct rp_sidecar *sidecar, const char *token_path,
                                  const char *index_dir, struct rp_error *error);
void rp_sidecar_close(struct rp_sidecar *sidecar);

/* A part of a sidecar while it is being written. */
struct rp_sidecar_section {
    int fd;
    uint64_t begin, offset; /* in that file: of the section, and of the next flush */
    size_t buffered;        /* bytes */
    uint8_t buffer[8192];
};

/* The block table and the first section of the table are written to their place. The sections after
 * them, whose place depends on the number of documents, are kept in files of their own until all
 * documents are known: memory use is constant. */
enum { RP_SIDECAR_LENGTHS, RP_SIDECAR_SPAN_ENDS, RP_SIDECAR_SPANS, RP_SIDECAR_SPILLED };

struct rp_sidecar_writer {
    struct rp_new_file file, spills[RP_SIDECAR_SPILLED];
    char *path;
    struct rp_hasher content;
    struct rp_sidecar_section blocks, bytes, spilled[RP_SIDECAR_SPILLED];
    uint64_t span_count;
    bool has_spans;            /* set before the first document */
    bool is_scratch;           /* set before rp_sidecar_begin: as rp_new_file_open_scratch */
    struct rp_new_file *whole; /* set likewise: gets the finished file, which the caller publishes;
                                  NULL: it is published */
};

/** Begin to replace the sidecar at `path`. The number of blocks is fixed now; blocks and documents
 * are then added in any interleaving. */
RP_MUST_CHECK int rp_sidecar_begin(struct rp_sidecar_writer *writer, const char *path,
                                   uint64_t block_count, struct rp_error *error);
RP_MUST_CHECK int rp_sidecar_add_blocks(struct rp_sidecar_writer *writer, const uint64_t *hashes,
                                        size_t count, struct rp_error *error);
RP_MUST_CHECK int rp_sidecar_add_document(struct rp_sidecar_writer *writer, uint64_t byte,
                                          uint32_t tokens, const struct rp_span *spans,
                                          size_t span_count, struct rp_error *error);
/** The same for a shard whose documents are in an index of its own: its spans alone. */
RP_MUST_CHECK int rp_sidecar_add_spans(struct rp_sidecar_writer *writer,
                                       const struct rp_span *spans, size_t span_count,
                                       struct rp_error *error);
/** Complete the table and *info (block_count, content; of the table shape.span_count and root),
 * write the header and publish, or give the file to writer->whole. Ends the writer in any case. */
RP_MUST_CHECK int rp_sidecar_finish(struct rp_sidecar_writer *writer, struct rp_sidecar_info *info,
                                    struct rp_error *error);
void rp_sidecar_discard(struct rp_sidecar_writer *writer);

#endif
