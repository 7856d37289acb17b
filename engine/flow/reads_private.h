/* SPDX-License-Identifier: Apache-2.0 */
/* reads_private.h — common parts of reads.c and reads_blocks.c. */
#ifndef RP_FLOW_READS_PRIVATE_H
#define RP_FLOW_READS_PRIVATE_H

#include "flow/range.h"
#include "flow/reads.h"

/* Are documents of some lane read individually? */
static inline bool lacks_blocks(const struct rp_block_reads *block_reads)
{
    return block_reads->blocks.documents == 0 || block_reads->leaves_lanes_out;
}

static inline uint64_t retired(const struct rp_reads *reads)
{
    return rp_a64_load_acquire(&reads->arena->words->retired);
}

static inline struct rp_file_range file_range(const struct rp_reads *reads,
                                              const struct rp_file *file, uint32_t shard,
                                              bool past_cache, uint64_t first, uint64_t last)
{
    uint64_t file_bytes = rp_corpus_shard(reads->options->corpus, shard)->bytes;
    return rp_file_range_of(file, shard, file_bytes, past_cache, first, last);
}

/* Is a read past the page cache by the second descriptor of the file? */
static inline bool goes_past_cache(const struct rp_reads *reads, const struct rp_file *file,
                                   enum rp_read_mode mode, uint32_t shard)
{
    return mode == RP_READ_DIRECT && !file->o_direct && rp_files_need_direct(reads->files, shard);
}

/** Give the ticket the bytes of a range, by a read of its own or a longer last read. False if the
 * ticket or the data is full. */
bool rp_reads_place_range(struct rp_reads *reads, const struct rp_file_range *range,
                          uint64_t *data_offset);

/** Place the bytes of a transfer that are at an extent of a shard, of tokens or of a side column.
 * As rp_reads_place. */
RP_MUST_CHECK int rp_reads_place_shard(struct rp_reads *reads, const struct rp_extent *extent,
                                       struct rp_transfer *transfer, struct rp_error *error);

#endif
