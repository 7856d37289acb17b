/* SPDX-License-Identifier: Apache-2.0 */
/* reads_shard.c — places a range of a shard in a ticket, of tokens or of a side column. */
#include "base/bits.h"
#include "flow/reads_private.h"

/* Two ranges with a gap of at most this many bytes are read as one: a second read costs about as
 * much as copying 4 KiB. */
#define COALESCE_GAP_BYTES 4096u

/* Extend the last read of the ticket so that it covers the range. False if the range does not begin
 * inside or just after that read, or if there is no room to extend it. */
static bool extend_last_read(struct rp_reads *reads, const struct rp_file_range *range,
                             uint64_t *data_offset)
{
    struct rp_ticket *ticket = reads->ticket;
    struct rp_read *read = ticket->read_count ? &ticket->reads[ticket->read_count - 1] : NULL;
    bool is_same_way = read && read->past_cache == range->past_cache;
    if (!is_same_way || read->shard != range->shard || range->first < read->offset)
        return false;
    uint64_t end = read->offset + rp_align_up(read->bytes, range->alignment);
    if (range->first > end + COALESCE_GAP_BYTES)
        return false;
    if (range->last > end) {
        uint64_t more = range->last - end;
        if (reads->ticket_bytes + more > reads->ticket_bytes_max ||
            !rp_data_ring_extend(&reads->data_ring, more, retired(reads)))
            return false;
        rp_file_range_end_read(range, range->last, read);
        reads->ticket_bytes += more;
    }
    *data_offset = read->data_offset + (range->wanted - read->offset);
    return true;
}

bool rp_reads_place_range(struct rp_reads *reads, const struct rp_file_range *range,
                          uint64_t *data_offset)
{
    if (extend_last_read(reads, range, data_offset))
        return true;
    struct rp_ticket *ticket = reads->ticket;
    uint64_t bytes = range->last - range->first, start;
    uint64_t alignment = rp_max_u64(range->alignment, 64);
    bool is_first = ticket->read_count == 0;
    if (ticket->read_count == RP_TICKET_TRANSFERS_MAX ||
        (!is_first && reads->ticket_bytes + bytes > reads->ticket_bytes_max) ||
        (start = rp_data_ring_take(&reads->data_ring, rp_align_up(bytes, range->alignment),
                                   alignment, reads->number, !is_first, retired(reads))) ==
            RP_DATA_RING_FULL)
        return false;
    struct rp_read *read = &ticket->reads[ticket->read_count++];
    *read = (struct rp_read){.offset = range->first,
                             .shard = range->shard,
                             .past_cache = range->past_cache,
                             .data_offset = start};
    rp_file_range_end_read(range, range->last, read);
    reads->ticket_bytes += bytes;
    *data_offset = start + (range->wanted - range->first);
    return true;
}

/* Take the bytes [first, last) of a shard from the block read that has the document. False if there
 * is none. */
static bool place_in_block_read(struct rp_reads *reads, uint32_t shard, uint64_t first,
                                uint64_t last, struct rp_transfer *transfer)
{
    const struct rp_block_read *block_read = rp_block_reads_find(
        &reads->block_reads, &reads->data_ring, transfer->fragment.source,
        transfer->fragment.document, shard);
    if (!block_read)
        return false;
    for (uint32_t i = 0; i < block_read->run_count; i++) {
        const struct rp_block_run *run = &block_read->runs[i];
        if (first < run->first || last > run->last)
            continue;
        transfer->data_offset = run->data_offset + (first - run->first);
        transfer->loaded_by = block_read->ticket;
        bool is_direct = block_read->past_cache || reads->files->files[shard].o_direct;
        rp_files_count_read(reads->files, shard, is_direct, last - first);
        rp_data_ring_use(&reads->data_ring, block_read->region, reads->number);
        return true;
    }
    return false;
}

static void place_mapped(const struct rp_reads *reads, const struct rp_file *file, uint32_t shard,
                         uint64_t first, struct rp_transfer *transfer)
{
    transfer->mapped_shard = shard + 1;
    transfer->data_offset = first;
    if (!file->checked)
        return;
    struct rp_hashed_range blocks = rp_files_hashed_range(reads->files, transfer);
    transfer->expected = rp_files_expected(reads->files, shard, blocks.first,
                                           blocks.end - blocks.first);
}

/* Read the bytes [first, last) of a shard for this ticket: a single-document read. False if the
 * ticket or the data is full. */
static bool place_single_read(struct rp_reads *reads, enum rp_read_mode mode, uint32_t shard,
                              uint64_t first, uint64_t last, struct rp_transfer *transfer)
{
    const struct rp_file *file = &reads->files->files[shard];
    bool past_cache = goes_past_cache(reads, file, mode, shard);
    struct rp_file_range range = file_range(reads, file, shard, past_cache, first, last);
    if (!rp_reads_place_range(reads, &range, &transfer->data_offset))
        return false;
    if (file->stretches && (reads->reads_single || !past_cache ||
                            rp_corpus_shard(reads->options->corpus, shard)->kind == RP_SHARD_SIDE))
        rp_residency_want(file->stretches, first, last);
    if (file->stretches && reads->block_reads.blocks.documents == 0)
        rp_residency_announce(&reads->files->residency);
    rp_files_count_read(reads->files, shard, range.beyond_end, last - first);
    rp_files_pin(reads->files, shard, reads->number);
    return true;
}

int rp_reads_place_shard(struct rp_reads *reads, const struct rp_extent *extent,
                         struct rp_transfer *transfer, struct rp_error *error)
{
    const struct rp_file *file;
    int code = rp_files_get(reads->files, extent->shard, retired(reads), &file, &reads->room_at,
                            error);
    if (code != RP_FILES_OPEN)
        return code < 0 ? code : RP_READS_FULL;
    reads->room_at = 0;
    uint64_t first_own = rp_fragment_first_own(&transfer->fragment, reads->options->form.has_bos);
    uint64_t first = extent->byte_offset + first_own * extent->width;
    uint64_t last = first + (uint64_t)rp_transfer_stored(transfer) * extent->width;
    transfer->width = (uint16_t)extent->width;
    reads->from_corpus = true;
    enum rp_read_mode mode = rp_files_mode(file, first, last);
    if (mode == RP_READ_MAPPED)
        place_mapped(reads, file, extent->shard, first, transfer);
    else if (!place_in_block_read(reads, extent->shard, first, last, transfer) &&
             !place_single_read(reads, mode, extent->shard, first, last, transfer))
        return RP_READS_FULL;
    rp_files_note_taken(reads->files, extent->shard, reads->number, last - first);
    return RP_READS_PLACED;
}
