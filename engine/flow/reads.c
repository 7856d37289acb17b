/* SPDX-License-Identifier: Apache-2.0 */
/* reads — see reads.h. */
#include "flow/reads.h"

#include <inttypes.h>

#include "base/bits.h"
#include "base/defect.h"
#include "corpus/sides.h"
#include "flow/contents.h"
#include "flow/fragment.h"
#include "flow/next_use.h"
#include "flow/reads_private.h"
#include "flow/side_reads.h"

/* Two ranges with a gap of at most this many bytes are read as one: a second read costs about as
 * much as copying 4 KiB. */
#define COALESCE_GAP_BYTES 4096u
/* The most that one ticket reads, unless a single range is longer: enough for many reads in flight,
 * little enough that the packer finds the bytes in cache. */
#define TICKET_DATA_BYTES (256u << 10)

int rp_reads_open(struct rp_reads *reads, const struct rp_flow_options *options,
                  struct rp_files *files, const struct rp_arena *arena, struct rp_error *error)
{
    *reads = (struct rp_reads){.options = options,
                               .files = files,
                               .arena = arena,
                               .ticket_bytes_max = rp_corpus_sides(options->corpus)->count
                                                       ? UINT64_MAX
                                                       : TICKET_DATA_BYTES};
    /* a region for every ticket that is not retired, and for every block read */
    uint64_t regions = rp_pow2_at_least(arena->slot_count + RP_BLOCK_READS_MAX);
    int code = rp_masks_open(&reads->masks, options, arena, error);
    return code < 0
               ? code
               : rp_data_ring_open(&reads->data_ring, arena->data_bytes - rp_masks_bytes(options),
                                   regions, error);
}

void rp_reads_close(struct rp_reads *reads)
{
    rp_block_reads_close(&reads->block_reads);
    rp_data_ring_close(&reads->data_ring);
    rp_masks_close(&reads->masks);
}

int rp_reads_start(struct rp_reads *reads, const struct rp_plan *plan, uint64_t base_row,
                   struct rp_error *error)
{
    rp_data_ring_reset(&reads->data_ring);
    rp_data_ring_reset(&reads->masks.span_ring);
    rp_descriptors_restart(&reads->files->descriptors);
    rp_block_reads_close(&reads->block_reads);
    rp_files_restart(reads->files);
    reads->from_corpus = false;
    reads->rest.documents = 0;
    reads->next_side = 0;
    reads->ticket = NULL;
    int code = 0;
    if (!reads->no_block_reads && !rp_files_are_mapped(reads->files))
        code = rp_block_reads_open(&reads->block_reads, plan, reads->options, base_row,
                                   reads->data_ring.bytes, error);
    reads->reads_alone = has_no_blocks(&reads->block_reads);
    if (reads->options->next_use)
        rp_next_use_start(reads->options->next_use, plan, &reads->block_reads);
    return code;
}

void rp_reads_note(struct rp_reads *reads, const struct rp_plan *plan)
{
    if (reads->options->next_use)
        rp_next_use_note(reads->options->next_use, plan, &reads->block_reads);
}

void rp_reads_begin(struct rp_reads *reads, struct rp_ticket *ticket, uint64_t number)
{
    RP_ASSERT(ticket->read_count == 0 && ticket->transfer_count == 0);
    reads->ticket = ticket;
    reads->number = number;
    reads->ticket_bytes = 0;
    reads->masks.has_region = false;
}

void rp_reads_expect(const struct rp_reads *reads, struct rp_ticket *ticket)
{
    for (uint32_t i = 0; i < ticket->read_count; i++) {
        struct rp_read *read = &ticket->reads[i];
        if (read->shard != RP_READ_CONTENTS && reads->files->files[read->shard].checked)
            read->expected = rp_files_expected(reads->files, read->shard, read->offset,
                                               read->bytes_needed);
    }
}

uint64_t rp_reads_room_at(const struct rp_reads *reads)
{
    return reads->room_at ? reads->room_at : rp_data_ring_oldest_ticket(&reads->data_ring) + 1;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* Extend the last read of the ticket so that it covers the range. False if the range does not begin
 * inside or just after that read, or if there is no room to extend it. */
static bool extend_last_read(struct rp_reads *reads, const struct rp_file_range *range,
                             uint64_t *data_offset)
{
    struct rp_ticket *ticket = reads->ticket;
    struct rp_read *read = ticket->read_count ? &ticket->reads[ticket->read_count - 1] : NULL;
    bool is_same_way = read &&
                       (read->past_cache == range->past_cache || RP_DEFECT(merge_ways_of_reading));
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

/* Find a place for the range in the ticket. False when it is full. */
static bool place_range(struct rp_reads *reads, const struct rp_file_range *range,
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
        !rp_data_ring_take(&reads->data_ring, rp_align_up(bytes, range->alignment), alignment,
                           reads->number, !is_first, retired(reads), &start))
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

/* ---- transfers ------------------------------------------------------------------------------- */

/* The place in the row of a transfer's first own token. */
static uint32_t own_offset(const struct rp_transfer *transfer)
{
    return transfer->offset + (transfer->extra & RP_EXTRA_BOS);
}

static int place_contents(struct rp_reads *reads, const struct rp_content_run *run,
                          struct rp_transfer *transfer)
{
    uint64_t skip = (uint64_t)(own_offset(transfer) - run->offset) * run->width;
    struct rp_file_range range = {.shard = RP_READ_CONTENTS,
                                  .alignment = 1,
                                  .first = run->byte_offset + skip,
                                  .wanted = run->byte_offset + skip};
    range.last = range.first + (uint64_t)rp_transfer_own(transfer) * run->width;
    (void)rp_contents_bytes(reads->options->contents, &range.file_bytes);
    transfer->width = (uint16_t)run->width;
    return place_range(reads, &range, &transfer->data_offset) ? RP_READS_PLACED : RP_READS_FULL;
}

/* The bytes [first, last) of a shard, out of the block read that has the document. */
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
        rp_files_count(reads->files, shard, is_direct, last - first);
        rp_data_ring_use(&reads->data_ring, block_read->region, reads->number);
        return true;
    }
    return false;
}

static void place_mapped(const struct rp_reads *reads, const struct rp_file *file, uint32_t shard,
                         uint64_t first, struct rp_transfer *transfer)
{
    transfer->mapped_shard = shard + 1;
    bool is_wrong = file->stretches && RP_DEFECT(map_from_stretch);
    transfer->data_offset = is_wrong ? first % RP_STRETCH_BYTES : first;
    if (!file->checked)
        return;
    struct rp_hashed_range blocks = rp_files_hashed_range(reads->files, transfer);
    transfer->expected = rp_files_expected(reads->files, shard, blocks.first,
                                           blocks.end - blocks.first);
}

static bool place_alone(struct rp_reads *reads, const struct rp_file *file, enum rp_read_way way,
                        uint32_t shard, uint64_t first, uint64_t last, struct rp_transfer *transfer)
{
    bool past_cache = goes_past_cache(reads, file, way, shard);
    struct rp_file_range range = file_range(reads, file, shard, past_cache, first, last);
    if (!place_range(reads, &range, &transfer->data_offset))
        return false;
    if (file->stretches && (reads->reads_alone || !past_cache ||
                            rp_corpus_shard(reads->options->corpus, shard)->is_side))
        rp_residency_want(file->stretches, first, last);
    if (file->stretches && reads->block_reads.blocks.documents == 0)
        rp_residency_tell(&reads->files->residency);
    rp_files_count(reads->files, shard, range.beyond_end, last - first);
    rp_files_use(reads->files, shard, reads->number);
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
    enum rp_read_way way = rp_files_way(file, first, last);
    if (way == RP_READ_MAPPED)
        place_mapped(reads, file, extent->shard, first, transfer);
    else if (!place_in_block_read(reads, extent->shard, first, last, transfer) &&
             !place_alone(reads, file, way, extent->shard, first, last, transfer))
        return RP_READS_FULL;
    rp_files_note_use(reads->files, extent->shard, reads->number, last - first);
    return RP_READS_PLACED;
}

/* The contents have only the places of the row: the token after a cut is in another row. */
static const struct rp_content_run *find_contents(const struct rp_reads *reads, uint64_t row,
                                                  const struct rp_transfer *transfer)
{
    const struct rp_contents *contents = reads->options->contents;
    if (!contents || transfer->extra & RP_EXTRA_NEXT)
        return NULL;
    return rp_contents_find(contents, row, own_offset(transfer), rp_transfer_own(transfer));
}

/* Rows that a checkpoint brought are taken from it, all others from their shards. */
static int place_tokens(struct rp_reads *reads, uint64_t row, struct rp_transfer *transfer,
                        const struct rp_extent *extent, struct rp_error *error)
{
    const struct rp_sides *sides = rp_corpus_sides(reads->options->corpus);
    int code = sides->all > sides->count ? rp_side_reads_numbers(reads, transfer, error) : 0;
    if (code < 0)
        return code;
    transfer->mapped_shard = 0;
    transfer->expected = 0;
    transfer->loaded_by = reads->number;
    transfer->id_bits = (uint8_t)rp_token_bits(
        rp_corpus_shard(reads->options->corpus, extent->shard)->type);
    if (rp_transfer_stored(transfer) == 0) { /* it has only inserted tokens */
        transfer->width = (uint16_t)extent->width;
        transfer->data_offset = 0;
        return RP_READS_PLACED;
    }
    const struct rp_content_run *run = find_contents(reads, row, transfer);
    if (sides->count) {
        code = rp_side_reads_place(reads, transfer, extent, run != NULL, error);
        if (code != RP_READS_PLACED)
            return code;
    }
    return run ? place_contents(reads, run, transfer)
               : rp_reads_place_shard(reads, extent, transfer, error);
}

static int find_mask(struct rp_reads *reads, const struct rp_masks_place *place,
                     struct rp_transfer *transfer, uint64_t length, struct rp_error *error)
{
    int code = rp_masks_find(&reads->masks, place, transfer, length, error);
    if (code == 0)
        reads->room_at = rp_data_ring_oldest_ticket(&reads->masks.span_ring) + 1;
    return code == 1 ? RP_READS_PLACED : code < 0 ? code : RP_READS_FULL;
}

/* Tokens that have their place are read, and counted: so they get it when their spans have room. */
int rp_reads_place(struct rp_reads *reads, uint64_t row, struct rp_transfer *transfer,
                   struct rp_error *error)
{
    const struct rp_source *source = rp_corpus_source(reads->options->corpus,
                                                      transfer->fragment.source);
    const struct rp_masks_place place = {source, reads->ticket, reads->number, retired(reads)};
    struct rp_extent extent;
    RP_DASSERT(reads->ticket && reads->ticket->transfer_count < RP_TICKET_TRANSFERS_MAX);
    reads->room_at = 0;
    int code = rp_transfer_find(reads->options, transfer, &extent, error);
    if (code < 0)
        return code;
    if (!rp_source_has_mask(source))
        return place_tokens(reads, row, transfer, &extent, error);
    code = find_mask(reads, &place, transfer, extent.tokens, error);
    if (code == RP_READS_PLACED)
        code = place_tokens(reads, row, transfer, &extent, error);
    if (code == RP_READS_PLACED)
        rp_masks_add(&reads->masks, &place, transfer, extent.tokens);
    return code;
}
