/* SPDX-License-Identifier: Apache-2.0 */
/* table.h — where each document of a shard lies: one table for all formats without an index that
 * can be mapped as it is.
 *
 * Its image has these sections, each after the one before and filled with zeros to a multiple of 8:
 *
 *     u64  [D]      bytes: first byte of every document in the token file, at any alignment
 *     u32  [D]      lengths: its tokens
 *     u64  [D + 1]  span ends: spans before document d; absent where nothing is masked
 *     u32  [S][2]   spans: begin and end of every span, document by document (spans.h)
 *
 * The last two are there if the layout has_spans. A format whose extents are in an index of its own
 * may have a table of spans alone. The plan reads lengths and nothing else: 4 bytes a document.
 *
 * The image is in memory, or mapped in a sidecar. There it is verified page by page, a page of
 * RP_BLOCK_BYTES at its first use, so that a start takes no longer with more documents. It is not
 * hashed at each use, because planning a document takes some 50 ns and hashing a page several times
 * that; a later write to a mapped sidecar is noticed by look.c.
 *
 * Invariants: no entry is used before its page was compared with its hash. Where a document lies is
 * checked against the file at each use, whatever the hash says. */
#ifndef RP_CORPUS_TABLE_H
#define RP_CORPUS_TABLE_H

#include "base/atomic.h"
#include "base/bits.h"
#include "corpus/manifest/page_tree.h"
#include "corpus/readers.h"

/* In memory a table is built of at most so many documents: 192 MiB. */
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
    struct rp_hash128 root;      /* XXH3-128 of the hashes of its pages */
    const uint64_t *page_hashes; /* XXH3-64 of every page; NULL: of a tree, or verified whole */
    const struct rp_tree *tree;  /* that has the image at its beginning; NULL: none does */
    struct rp_a64 *verified;     /* a bit for each page; NULL: the image was verified whole */
    void *built;                 /* the image, where it is in memory of its own */
};

/** The bytes of the image. False if there is no such number. */
bool rp_table_image_bytes(const struct rp_table_shape *shape, uint64_t *bytes);
static inline uint64_t rp_table_pages(uint64_t image_bytes)
{
    return rp_div_up(image_bytes, RP_BLOCK_BYTES);
}

/** A table over an image. With page hashes, pages are verified at their first use; the memory for
 * that is freed by rp_table_close. */
RP_MUST_CHECK int rp_table_over(struct rp_table *table, const struct rp_table_shape *shape,
                                const uint8_t *image, const uint64_t *page_hashes,
                                struct rp_error *error);
/** The same over the first pages of a tree, which verifies them. It needs no close. */
RP_MUST_CHECK int rp_table_over_tree(struct rp_table *table, const struct rp_table_shape *shape,
                                     const struct rp_tree *tree, struct rp_error *error);
void rp_table_close(struct rp_table *table);

/** Hash the pages of an image into hashes[] (may be NULL); returns the root. */
struct rp_hash128 rp_table_hash(const uint8_t *image, uint64_t bytes, uint64_t *hashes);

/** Walk a file and keep its documents in memory. */
RP_MUST_CHECK int rp_table_build(struct rp_table *table, struct rp_layout *layout,
                                 const struct rp_reader *reader, const struct rp_probe *probe,
                                 const struct rp_reader_options *options, uint64_t *tokens_out,
                                 struct rp_error *error);

/** Is the page with this byte of the image what was written? Compares it, the first time. A caller
 * that reads spans verifies the pages of their ends and of themselves first. */
bool rp_table_verify(const struct rp_table *table, uint64_t byte);
/** The same for the ends of a document's spans; and for these and the spans themselves. */
bool rp_table_verify_ends(const struct rp_table *table, uint64_t document);
bool rp_table_verify_spans(const struct rp_table *table, uint64_t document);

/** The tokens of a document, or UINT64_MAX where the table is damaged. */
uint64_t rp_table_length(const struct rp_table *table, uint64_t document);
/** What is wrong with the entry of a document of a file of so many bytes; NULL: nothing is, and its
 * tokens and its first byte are set. */
const char *rp_table_locate(const struct rp_table *table, uint64_t document, uint32_t width,
                            uint64_t file_bytes, uint64_t *tokens, uint64_t *byte);
/** Verify the lengths of the documents from `first` on, `count` of them at the least if there are
 * so many. Returns the first document after them; less where the table is damaged. */
uint64_t rp_table_learn(const struct rp_table *table, uint64_t first, uint64_t count);

#endif
