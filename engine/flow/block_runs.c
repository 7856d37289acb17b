/* SPDX-License-Identifier: Apache-2.0 */
/* block_runs.c — the runs that a block of documents occupies in its file (block_reads.h). */
#include "flow/block_reads.h"

#include "base/bits.h"

/* Two runs with a gap of at most this many bytes are read as one: reads of blocks are long. */
#define BLOCK_GAP_BYTES (16u << 10)

/* Are nearly all bytes of the file tokens? Then a block is read from its first document to its last
 * one, without looking up the others. */
static bool is_dense(const struct rp_corpus *corpus, uint32_t shard, uint32_t width)
{
    const struct rp_shard *info = rp_corpus_shard(corpus, shard);
    return info->tokens >= info->bytes / 8 * 7 / width;
}

/* Add the bytes [first, last) after the last run of a block, or to it if they are near. False if
 * there are too many runs, or they do not ascend. */
static bool add_run(struct rp_block_read *block_read, uint64_t first, uint64_t last)
{
    uint32_t count = block_read->run_count;
    struct rp_block_run *run = count ? &block_read->runs[count - 1] : NULL;
    if (first == last)
        return true;
    if (run && first < run->first)
        return false;
    if (run && first <= run->last + BLOCK_GAP_BYTES) {
        run->last = rp_max_u64(run->last, last);
        return true;
    }
    if (count == RP_BLOCK_RUNS_MAX)
        return false;
    block_read->runs[block_read->run_count++] = (struct rp_block_run){first, last, 0};
    return true;
}

static bool add_document(const struct rp_source *source, uint64_t document,
                         struct rp_block_read *block_read)
{
    struct rp_extent extent;
    struct rp_error ignored;
    return rp_source_extent(source, document, &extent, &ignored) == 0 &&
           extent.shard == block_read->shard &&
           add_run(block_read, extent.byte_offset,
                   extent.byte_offset + extent.tokens * extent.width);
}

/* Number of the block's leading documents that are in this shard, as the first one is. */
static uint64_t count_in_shard(const struct rp_source *source, const struct rp_plan_block *block,
                               uint32_t shard)
{
    uint64_t low = 1, high = block->documents, middle = high;
    while (low < high) { /* all of them is the usual answer, and tried first */
        struct rp_extent extent;
        struct rp_error ignored;
        bool is_inside = rp_source_extent(source, block->first_document + middle - 1, &extent,
                                          &ignored) == 0 &&
                         extent.shard == shard;
        if (is_inside)
            low = middle;
        else
            high = middle - 1;
        middle = low + (high - low + 1) / 2;
    }
    return low;
}

bool rp_block_runs_find(const struct rp_corpus *corpus, struct rp_plan_block *block,
                        struct rp_block_read *block_read)
{
    const struct rp_source *source = rp_corpus_source(corpus, block->source);
    uint64_t first = block->first_document;
    struct rp_extent begin, end;
    struct rp_error ignored;
    if (rp_source_extent(source, first, &begin, &ignored) < 0)
        return false;
    block->documents = count_in_shard(source, block, begin.shard);
    uint64_t last = first + block->documents - 1;
    if (rp_source_extent(source, last, &end, &ignored) < 0)
        return false;
    uint64_t end_byte = end.byte_offset + end.tokens * end.width;
    block_read->shard = begin.shard;
    block_read->run_count = 0;
    if (is_dense(corpus, begin.shard, begin.width))
        return begin.byte_offset < end_byte && add_run(block_read, begin.byte_offset, end_byte);
    for (uint64_t d = first; d <= last; d++)
        if (!add_document(source, d, block_read))
            return false;
    return block_read->run_count > 0;
}
