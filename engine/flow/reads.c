/* SPDX-License-Identifier: Apache-2.0 */
/* reads.c — places the transfers of a ticket: contents, masks, side columns and tokens. */
#include "flow/reads.h"

#include "base/bits.h"
#include "corpus/sides.h"
#include "flow/contents.h"
#include "flow/fragment.h"
#include "flow/next_use.h"
#include "flow/reads_private.h"
#include "flow/side_reads.h"

/* The most bytes that one ticket reads, unless a single range is longer: enough for many reads in
 * flight, few enough that the packer finds them in cache. */
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
    reads->reads_single = lacks_blocks(&reads->block_reads);
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

void rp_reads_take_hashes(const struct rp_reads *reads, struct rp_ticket *ticket)
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
    return rp_reads_place_range(reads, &range, &transfer->data_offset) ? RP_READS_PLACED
                                                                       : RP_READS_FULL;
}

/* The contents have the tokens of a row. The token after a cut, a label of the row's end, is not
 * among them. */
static const struct rp_content_run *find_contents(const struct rp_reads *reads, uint64_t row,
                                                  const struct rp_transfer *transfer)
{
    const struct rp_contents *contents = reads->options->contents;
    if (!contents || transfer->extra & RP_EXTRA_NEXT)
        return NULL;
    return rp_contents_find(contents, row, own_offset(transfer), rp_transfer_own(transfer));
}

/* Place the tokens of a transfer, from the checkpoint's contents or from the shard, and the entries
 * of its side columns. */
static int place_all(struct rp_reads *reads, uint64_t row, struct rp_transfer *transfer,
                     const struct rp_extent *extent, struct rp_error *error)
{
    const struct rp_sides *sides = rp_corpus_sides(reads->options->corpus);
    int code = sides->all > sides->count ? rp_sidereads_numbers(reads, transfer, error) : 0;
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
        code = rp_sidereads_place(reads, transfer, extent, run != NULL, error);
        if (code != RP_READS_PLACED)
            return code;
    }
    return run ? place_contents(reads, run, transfer)
               : rp_reads_place_shard(reads, extent, transfer, error);
}

/* Look up the mask. FULL: its spans have no room. */
static int find_mask(struct rp_reads *reads, const struct rp_masks_place *place,
                     struct rp_transfer *transfer, uint64_t length, struct rp_error *error)
{
    int code = rp_masks_find(&reads->masks, place, transfer, length, error);
    if (code == 0)
        reads->room_at = rp_data_ring_oldest_ticket(&reads->masks.span_ring) + 1;
    return code == 1 ? RP_READS_PLACED : code < 0 ? code : RP_READS_FULL;
}

/* Placing tokens commits the ticket to read them, and counts them. So room for the spans of the
 * mask is found first. */
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
        return place_all(reads, row, transfer, &extent, error);
    code = find_mask(reads, &place, transfer, extent.tokens, error);
    if (code == RP_READS_PLACED)
        code = place_all(reads, row, transfer, &extent, error);
    if (code == RP_READS_PLACED)
        rp_masks_add(&reads->masks, &place, transfer, extent.tokens);
    return code;
}
