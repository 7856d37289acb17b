/* SPDX-License-Identifier: Apache-2.0 */
/* page_tree.h — a tree of hashes over the pages of a large mapped file: a page is compared with the
 * root at its first use, and no other part of the file is read.
 *
 * Level 0 is the XXH3-64 of every page of RP_BLOCK_BYTES; the last page may be short. If a level
 * has more than 512 hashes, each chunk of 512 (the last may be short) has its XXH3-64 in the next
 * level. The root is the XXH3-128 of the last level. The levels follow the data, in order.
 *
 * Invariants: a page counts as verified only after it was equal to its hash, the hash's chunk to
 * the hash in the next level, and so on up to the root. Two threads that verify the same page get
 * the same result. The hashes find damage, not forgery. */
#ifndef RP_CORPUS_INDEX_PAGE_TREE_H
#define RP_CORPUS_INDEX_PAGE_TREE_H

#include "base/atomic.h"
#include "base/bits.h"
#include "corpus/corpus.h"

#define RP_TREE_FANOUT (RP_BLOCK_BYTES / 8u)
#define RP_TREE_LEVELS_MAX 8u

struct rp_tree_level {
    uint64_t first, count; /* its hashes in `hashes` */
    uint64_t first_bit;    /* its first chunk in `verified` */
};

struct rp_tree {
    const uint8_t *data;
    uint64_t bytes, pages;
    const uint64_t *hashes; /* all levels */
    uint32_t level_count;
    struct rp_tree_level levels[RP_TREE_LEVELS_MAX];
    struct rp_hash128 root;
    struct rp_a64 *verified; /* a bit for each page, then one for each chunk of each level */
    uint64_t verified_words;
};

/** The number of hashes in all levels over `pages` pages. */
uint64_t rp_tree_hash_count(uint64_t pages);

/** A tree over data of `bytes` bytes, a multiple of 8 and not 0; its hashes follow the data.
 * rp_tree_close frees the memory of its bits. */
RP_MUST_CHECK int rp_tree_over(struct rp_tree *tree, const uint8_t *data, uint64_t bytes,
                               struct rp_hash128 root, struct rp_error *error);
void rp_tree_close(struct rp_tree *tree);

/** Compare a page with its hash now. */
bool rp_tree_compare(const struct rp_tree *tree, uint64_t page);
/** Whether the page of a byte, or all pages of `bytes` bytes (at least one), match their hashes. A
 * page is compared only at its first use. */
static inline bool rp_tree_verify(const struct rp_tree *tree, uint64_t byte)
{
    uint64_t page = byte / RP_BLOCK_BYTES;
    return (rp_a64_load_relaxed(&tree->verified[page / 64]) & 1ull << page % 64) ||
           rp_tree_compare(tree, page);
}
bool rp_tree_verify_range(const struct rp_tree *tree, uint64_t byte, uint64_t bytes);

/** Compare all verified pages once more: the file was written to. */
bool rp_tree_verify_again(const struct rp_tree *tree);

/** Write level 0 for `count` pages from `first` on, to hashes[first] and after it; and, once level
 * 0 is complete, the levels above it. The second returns the root. */
void rp_tree_hash_pages(const uint8_t *data, uint64_t bytes, uint64_t first, uint64_t count,
                        uint64_t *hashes);
struct rp_hash128 rp_tree_finish(uint64_t pages, uint64_t *hashes);

#endif
