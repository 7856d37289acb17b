/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/index/page_tree.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

static uint64_t chunks_of(uint64_t hashes)
{
    return rp_div_up(hashes, RP_TREE_FANOUT);
}

uint64_t rp_tree_hash_count(uint64_t pages)
{
    uint64_t all = pages;
    for (uint64_t count = pages; count > RP_TREE_FANOUT; all += count)
        count = chunks_of(count);
    return all;
}

static uint64_t hash_page(const uint8_t *data, uint64_t bytes, uint64_t page)
{
    uint64_t at = page * RP_BLOCK_BYTES;
    return rp_hash64(data + at, (size_t)rp_min_u64(RP_BLOCK_BYTES, bytes - at));
}

int rp_tree_over(struct rp_tree *tree, const uint8_t *data, uint64_t bytes, struct rp_hash128 root,
                 struct rp_error *error)
{
    uint64_t pages = rp_div_up(bytes, RP_BLOCK_BYTES);
    RP_ASSERT(pages > 0 && bytes % 8 == 0 && (uintptr_t)data % 8 == 0);
    *tree = (struct rp_tree){
        .data = data,
        .bytes = bytes,
        .pages = pages,
        .hashes = (const uint64_t *)(const void *)(data + bytes),
        .root = root,
    };
    uint64_t first = 0, bits = pages;
    for (uint64_t count = pages;; count = chunks_of(count)) {
        RP_ASSERT(tree->level_count < RP_TREE_LEVELS_MAX); /* 2^64 pages have 8 levels */
        tree->levels[tree->level_count++] = (struct rp_tree_level){first, count, bits};
        first += count;
        bits += chunks_of(count);
        if (count <= RP_TREE_FANOUT)
            break;
    }
    tree->verified_words = rp_div_up(bits, 64);
    tree->verified = rp_calloc((size_t)tree->verified_words, sizeof *tree->verified);
    return tree->verified ? 0 : rp_fail(error, -ENOMEM, NULL, "no memory for a tree of hashes");
}

void rp_tree_close(struct rp_tree *tree)
{
    free(tree->verified);
    *tree = (struct rp_tree){0};
}

static bool is_verified(const struct rp_tree *tree, uint64_t bit)
{
    return rp_a64_load_relaxed(&tree->verified[bit / 64]) & 1ull << bit % 64;
}

/* Set the bit of a page or a chunk that is good. */
static bool mark(const struct rp_tree *tree, uint64_t bit, bool is_good)
{
    if (is_good)
        rp_a64_or_relaxed(&tree->verified[bit / 64], 1ull << bit % 64);
    return is_good;
}

/* Verify a chunk of hashes: climb to the first verified chunk above it, or to the root; then
 * compare each chunk on the way down. At most eight levels. */
static bool verify_chunk(const struct rp_tree *tree, uint32_t level, uint64_t chunk)
{
    uint64_t chunks[RP_TREE_LEVELS_MAX];
    uint32_t top = level;
    for (chunks[top] = chunk; !is_verified(tree, tree->levels[top].first_bit + chunks[top]);
         top++) {
        if (top + 1 == tree->level_count) {
            top++;
            break;
        }
        chunks[top + 1] = chunks[top] / RP_TREE_FANOUT;
    }
    while (top > level) {
        const struct rp_tree_level *at = &tree->levels[--top];
        uint64_t first = chunks[top] * RP_TREE_FANOUT;
        const uint64_t *hashes = tree->hashes + at->first + first;
        size_t bytes = 8 * (size_t)rp_min_u64(RP_TREE_FANOUT, at->count - first);
        bool is_good = top + 1 == tree->level_count
                           ? rp_hash128_equal(rp_hash128(hashes, bytes), tree->root)
                           : rp_hash64(hashes, bytes) ==
                                 tree->hashes[tree->levels[top + 1].first + chunks[top]];
        if (!mark(tree, at->first_bit + chunks[top], is_good))
            return false;
    }
    return true;
}

bool rp_tree_compare(const struct rp_tree *tree, uint64_t page)
{
    RP_DASSERT(page < tree->pages);
    bool is_good = verify_chunk(tree, 0, page / RP_TREE_FANOUT) &&
                   hash_page(tree->data, tree->bytes, page) == tree->hashes[page];
    return mark(tree, page, is_good);
}

bool rp_tree_verify_range(const struct rp_tree *tree, uint64_t byte, uint64_t bytes)
{
    RP_DASSERT(bytes > 0);
    uint64_t last = (byte + bytes - 1) / RP_BLOCK_BYTES;
    for (uint64_t page = byte / RP_BLOCK_BYTES; page <= last; page++)
        if (!rp_tree_verify(tree, page * RP_BLOCK_BYTES))
            return false;
    return true;
}

/* Other threads may set bits at the same time, each after its own comparison. */
bool rp_tree_verify_again(const struct rp_tree *tree)
{
    bool is_good = true;
    uint64_t first_of_chunks = tree->pages / 64;
    for (uint64_t word = first_of_chunks; word < tree->verified_words; word++) {
        uint64_t below = word == first_of_chunks ? (1ull << tree->pages % 64) - 1 : 0;
        rp_a64_and_relaxed(&tree->verified[word], below);
    }
    for (uint64_t word = 0; word < rp_div_up(tree->pages, 64); word++) {
        uint64_t left = rp_a64_load_relaxed(&tree->verified[word]);
        for (; left; left &= left - 1) {
            uint64_t page = 64 * word + (uint64_t)__builtin_ctzll(left);
            if (page >= tree->pages)
                break;
            rp_a64_and_relaxed(&tree->verified[word], ~(1ull << page % 64));
            is_good &= rp_tree_verify(tree, page * RP_BLOCK_BYTES);
        }
    }
    return is_good;
}

/* ---- writing --------------------------------------------------------------------------------- */

void rp_tree_hash_pages(const uint8_t *data, uint64_t bytes, uint64_t first, uint64_t count,
                        uint64_t *hashes)
{
    for (uint64_t page = first; page < first + count; page++)
        hashes[page] = hash_page(data, bytes, page);
}

struct rp_hash128 rp_tree_finish(uint64_t pages, uint64_t *hashes)
{
    uint64_t count = pages;
    while (count > RP_TREE_FANOUT) {
        uint64_t *next = hashes + count;
        for (uint64_t chunk = 0; chunk < chunks_of(count); chunk++) {
            uint64_t first = chunk * RP_TREE_FANOUT;
            next[chunk] = rp_hash64(hashes + first,
                                    8 * (size_t)rp_min_u64(RP_TREE_FANOUT, count - first));
        }
        hashes = next;
        count = chunks_of(count);
    }
    return rp_hash128(hashes, 8 * (size_t)count);
}
