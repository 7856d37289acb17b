/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/side_reads.h"

#include "base/bits.h"
#include "corpus/sides.h"
#include "flow/reads_private.h"

/* The most by which a range grows when it is rounded out at both ends, and placed. */
#define SLACK_BYTES (3 * (uint64_t)RP_BLOCK_BYTES)
/* The most bytes that a ticket reads, unless its first transfer needs more: as TICKET_DATA_BYTES in
 * reads.c. */
#define TICKET_BYTES (256u << 10)

uint64_t rp_sidereads_part_bytes(const struct rp_flow_options *options)
{
    const struct rp_sides *sides = rp_corpus_sides(options->corpus);
    uint64_t widest = sizeof(uint64_t), more = sides->count ? 1 : 0;
    for (uint32_t c = 0; c < sides->count; c++)
        widest = rp_max_u64(widest, sides->columns[c].type.bytes);
    return (options->seq_len + more) * widest + 2 * RP_BLOCK_BYTES;
}

uint64_t rp_sidereads_transfer_bytes(const struct rp_flow_options *options)
{
    const struct rp_sides *sides = rp_corpus_sides(options->corpus);
    uint64_t bytes = (uint64_t)options->seq_len * sizeof(uint64_t) + 2 * RP_BLOCK_BYTES;
    for (uint32_t c = 0; c < sides->count; c++)
        bytes += (options->seq_len + 1ull) * sides->columns[c].type.bytes;
    return bytes + (sides->count ? (1 + sides->count) * SLACK_BYTES : 0);
}

/* Open the file, until the ticket is retired. */
static int hold_file(struct rp_reads *reads, uint32_t shard, struct rp_error *error)
{
    const struct rp_file *file;
    int code = rp_files_get(reads->files, shard, retired(reads), &file, &reads->room_at, error);
    if (code != RP_FILES_OPEN)
        return code < 0 ? code : RP_READS_FULL;
    reads->room_at = 0;
    rp_files_pin(reads->files, shard, reads->number);
    return RP_READS_PLACED;
}

static int hold_files(struct rp_reads *reads, uint32_t shard, bool has_contents,
                      struct rp_error *error)
{
    const struct rp_sides *sides = rp_corpus_sides(reads->options->corpus);
    int code = has_contents ? RP_READS_PLACED : hold_file(reads, shard, error);
    for (uint32_t c = 0; c < sides->count && code == RP_READS_PLACED; c++)
        code = hold_file(reads, (1 + c) * sides->shards + shard, error);
    return code;
}

/* Does the ticket take the transfer and all of its columns? */
static bool has_room(struct rp_reads *reads, const struct rp_transfer *transfer)
{
    const struct rp_sides *sides = rp_corpus_sides(reads->options->corpus);
    const struct rp_ticket *ticket = reads->ticket;
    uint64_t stored = rp_transfer_stored(transfer), bytes = stored * sizeof(uint64_t);
    for (uint32_t c = 0; c < sides->count; c++)
        bytes += stored * sides->columns[c].type.bytes;
    if (ticket->read_count + 1 + sides->count > RP_TICKET_TRANSFERS_MAX ||
        (ticket->transfer_count > 0 && reads->ticket_bytes + bytes > TICKET_BYTES))
        return false;
    bytes = rp_align_up(bytes + (1 + sides->count) * SLACK_BYTES, RP_BLOCK_BYTES);
    return rp_data_ring_has_room(&reads->data_ring, bytes, RP_BLOCK_BYTES, retired(reads));
}

int rp_sidereads_place(struct rp_reads *reads, const struct rp_transfer *transfer,
                       const struct rp_extent *extent, bool has_contents, struct rp_error *error)
{
    const struct rp_corpus *corpus = reads->options->corpus;
    const struct rp_sides *sides = rp_corpus_sides(corpus);
    struct rp_side_place *places = rp_arena_side_places(reads->arena, reads->number,
                                                        reads->ticket->transfer_count);
    int code = hold_files(reads, extent->shard, has_contents, error);
    if (code != RP_READS_PLACED)
        return code;
    if (!has_room(reads, transfer))
        return RP_READS_FULL;
    for (uint32_t c = 0; c < sides->count; c++) {
        struct rp_transfer part = *transfer;
        struct rp_extent entries;
        part.mapped_shard = 0;
        part.expected = 0;
        part.loaded_by = reads->number;
        code = rp_sides_extent(corpus, c, extent, &entries, error);
        if (code == 0)
            code = rp_reads_place_shard(reads, &entries, &part, error);
        if (code < 0)
            return code;
        RP_ASSERT(code == RP_READS_PLACED);
        places[c] = (struct rp_side_place){.data_offset = part.data_offset,
                                           .expected = part.expected,
                                           .loaded_by = part.loaded_by,
                                           .mapped_shard = part.mapped_shard};
    }
    return RP_READS_PLACED;
}

int rp_sidereads_numbers(struct rp_reads *reads, const struct rp_transfer *transfer,
                         struct rp_error *error)
{
    const struct rp_corpus *corpus = reads->options->corpus;
    const struct rp_sides *sides = rp_corpus_sides(corpus);
    struct rp_side_place *places = rp_arena_side_places(reads->arena, reads->number,
                                                        reads->ticket->transfer_count);
    int code = 0;
    for (uint32_t c = sides->count; c < sides->all && code == 0; c++)
        code = rp_sides_number(corpus, c, transfer->fragment.source, transfer->fragment.document,
                               &places[c].data_offset, error);
    return code;
}
