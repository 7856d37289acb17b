/* SPDX-License-Identifier: Apache-2.0 */
/* table.h — the places of a shard's documents: one table for all formats without an index that can
 * be mapped as it is.
 *
 * Its image has these sections, each after the one before and filled with zeros to a multiple of 8:
 *
 *     u64  [D]      bytes: first byte of every document in the token file, at any alignment
 *     u32  [D]      lengths: its tokens
 *     u64  [D + 1]  span ends: spans before document d; absent without a mask
 *     u32  [S][2]   spans: begin and end of every span, document by document (spans.h)
 *
 * The last two are there if the layout has_spans. A format with its own index of extents may have a
 * table of only spans. The plan reads only lengths: 4 bytes a document.
 *
 * The image is in memory, or mapped at the beginning of a segment of an index (index/index.h).
 * There a page of RP_BLOCK_BYTES is verified at its first use, so that a start takes no longer with
 * more documents. It is not hashed at each use, because planning a document takes some 50 ns and
 * hashing a page several times that; rp_index_revalidate notices a later write to a mapped index.
 *
 * Invariants: no entry is used before its page was compared with its hash. A document's place is
 * checked against the file at each use, whatever the hash says. */
#ifndef RP_CORPUS_TABLE_H
#define RP_CORPUS_TABLE_H

#include "base/atomic.h"
#include "base/bits.h"
#include "corpus/index/page_tree.h"
#include "corpus/reader.h"

/* The most documents of a table that is built in memory: 192 MiB. */
#define RP_TABLE_AT_OPEN_MAX (16u << 20)

struct rp_table_shape {
    uint64_t documents;
    uint64_t span_count;
    bool has_extents; /* the first two sections */
    bool has_spans;   /* the last two */
};

struct rp_table {
    struct rp_table_shape shape;
    const uint8_t *image; /* aligned to 8 */
    uint64_t image_bytes;
    const uint64_t *bytes;   /* [documents] */
    const uint32_t *lengths; /* [documents] */
    struct rp_spans spans;
    const struct rp_tree *tree; /* over the image and more; NULL: the image is in own memory */
    void *built;                /* the image, if the table has to free it */
};

/** The bytes of the image. False if there is no such number. */
bool rp_table_image_bytes(const struct rp_table_shape *shape, uint64_t *bytes);

/** A table over an image whose pages the tree, which has the image at its beginning, verifies at
 * their first use; NULL: no page is verified. */
void rp_table_over(struct rp_table *table, const struct rp_table_shape *shape, const uint8_t *image,
                   const struct rp_tree *tree);
void rp_table_close(struct rp_table *table);

/** XXH3-128 of the XXH3-64 of every page of an image; the last page may be short. This root covers
 * only documents, and is part of a shard's fingerprint. */
struct rp_hash128 rp_table_root(const struct rp_table *table);

/** Walk a file and keep its documents in memory. Returns the number of its tokens. */
RP_MUST_CHECK int64_t rp_table_build(struct rp_table *table, struct rp_layout *layout,
                                     const struct rp_reader *reader, const struct rp_probe *probe,
                                     const struct rp_reader_options *options,
                                     struct rp_error *error);

/** Do the pages of a document's span ends match their hashes? The second: also the pages of the
 * spans? Call before spans are read. */
bool rp_table_verify_ends(const struct rp_table *table, uint64_t document);
bool rp_table_verify_spans(const struct rp_table *table, uint64_t document);

/** The tokens of a document, or UINT64_MAX if the table is damaged. */
uint64_t rp_table_length(const struct rp_table *table, uint64_t document);
/** Sets a document's tokens and first byte in a file of `file_bytes` bytes. Returns NULL, or the
 * fault of its entry. */
const char *rp_table_locate(const struct rp_table *table, uint64_t document, uint32_t width,
                            uint64_t file_bytes, uint64_t *tokens, uint64_t *byte);
/** Verify the lengths of at least `count` documents from `first` on, or of all that are left.
 * Returns the first document after them; less if the table is damaged. */
uint64_t rp_table_check_ahead(const struct rp_table *table, uint64_t first, uint64_t count);

#endif
