/* SPDX-License-Identifier: Apache-2.0 */
/* reads_blocks.c — the tickets that read whole blocks. */
#include "base/bits.h"
#include "corpus/sides.h"
#include "flow/reads_private.h"

/* Later epochs that must use a block which is read past the page cache before it is also read into
 * the page cache. That second read saves one in each later epoch, so it pays from the second on. */
#define LATER_EPOCHS 2u

/* Length of the pieces into which a read of `bytes` is split: nearly equal, and about as long as
 * the file prefers. A short last piece would take a place among the reads in flight and bring
 * little. */
static uint64_t piece_bytes(const struct rp_file *file, uint64_t bytes)
{
    uint64_t wanted = file->object.read_bytes;
    uint64_t pieces = rp_max_u64(1, (bytes + wanted / 2) / wanted);
    return rp_align_up(rp_div_up(bytes, pieces), RP_BLOCK_BYTES);
}

/* Round each run to the range of its file that is read, and add up the bytes of all of them. False
 * if that is too much for one ticket. */
static bool round_runs(const struct rp_reads *reads, const struct rp_file *file,
                       struct rp_block_read *block_read, uint64_t *bytes)
{
    uint64_t read_count = 0;
    *bytes = 0;
    for (uint32_t i = 0; i < block_read->run_count; i++) {
        struct rp_block_run *run = &block_read->runs[i];
        struct rp_file_range range = file_range(reads, file, block_read->shard,
                                                block_read->past_cache, run->first, run->last);
        run->first = range.first;
        run->last = rp_min_u64(range.last, range.file_bytes);
        run->data_offset = *bytes; /* in the region */
        *bytes += rp_align_up(range.last - range.first, RP_BLOCK_BYTES);
        uint64_t length = range.last - range.first;
        read_count += rp_div_up(length, piece_bytes(file, length));
    }
    return read_count <= RP_TICKET_TRANSFERS_MAX && *bytes <= reads->data_ring.bytes / 8;
}

struct due {
    struct rp_plan_block block; /* a block that is due: all of it, or the rest that is not read */
    struct rp_plan_block part;  /* the documents of it that are in the first one's shard */
    uint64_t bytes;             /* room that the part needs in the data */
};

static bool next_due(struct rp_reads *reads, const struct rp_plan *plan,
                     struct rp_plan_block *block)
{
    if (!reads->from_corpus || reads->block_reads.blocks.documents == 0)
        return false;
    *block = reads->rest;
    return block->documents > 0 ||
           rp_block_reads_peek(&reads->block_reads, &reads->data_ring, plan, block);
}

/* The part is read, or never will be as a block: move to the documents after it. */
static void advance_part(struct rp_reads *reads, const struct due *due)
{
    reads->rest = due->block;
    reads->next_side = 0;
    reads->rest.first_document += due->part.documents;
    reads->rest.documents -= due->part.documents;
    if (reads->rest.documents == 0)
        rp_block_reads_take(&reads->block_reads);
}

/* The tokens or the column `next_side` of the part are read, or never will be as a block: move to
 * its next column or, after the last one, to the documents after it. */
static void advance_side(struct rp_reads *reads, const struct due *due)
{
    if (reads->next_side == rp_corpus_sides(reads->options->corpus)->count) {
        advance_part(reads, due);
        return;
    }
    reads->rest = due->block;
    reads->next_side++;
}

/* If a column is next, turn the runs of the tokens into runs of the column. False if the column is
 * read for each document, because its entries are long; the runs are then of no use. */
static bool find_side_runs(const struct rp_reads *reads, struct rp_block_read *block_read)
{
    const struct rp_corpus *corpus = reads->options->corpus;
    if (reads->next_side == 0)
        return true;
    uint32_t c = reads->next_side - 1, shard = block_read->shard;
    uint32_t token_bytes = rp_token_width(rp_corpus_shard(corpus, shard)->type);
    bool is_narrow = rp_block_reads_take_column(corpus, c);
    for (uint32_t i = 0; is_narrow && i < block_read->run_count; i++) {
        struct rp_block_run *run = &block_read->runs[i];
        struct rp_extent entries, tokens = {.shard = shard,
                                            .width = token_bytes,
                                            .byte_offset = run->first,
                                            .tokens = (run->last - run->first) / token_bytes};
        struct rp_error ignored;
        is_narrow = rp_sides_extent(corpus, c, &tokens, &entries, &ignored) == 0;
        run->first = is_narrow ? entries.byte_offset : 0;
        run->last = is_narrow ? entries.byte_offset + entries.tokens * entries.width : 0;
        block_read->shard = is_narrow ? entries.shard : shard;
    }
    return is_narrow;
}

enum block_way { BY_DOCUMENT, MAPPED, AS_BLOCK };

/* Find the part of a due block and its runs, and choose how they are read. */
static enum block_way choose_way(struct rp_reads *reads, struct due *due,
                                 struct rp_block_read *block_read)
{
    struct rp_error ignored;
    const struct rp_file *file;
    uint64_t room_at;
    due->part = due->block;
    if (!rp_block_runs_find(reads->options->corpus, &due->part, block_read) ||
        !find_side_runs(reads, block_read) ||
        rp_files_get(reads->files, block_read->shard, retired(reads), &file, &room_at, &ignored) !=
            RP_FILES_OPEN)
        return BY_DOCUMENT;
    enum rp_read_mode mode = rp_files_mode(file, block_read->runs[0].first,
                                           block_read->runs[block_read->run_count - 1].last);
    block_read->past_cache = goes_past_cache(reads, file, mode, block_read->shard);
    if (mode == RP_READ_MAPPED)
        return MAPPED;
    return round_runs(reads, file, block_read, &due->bytes) ? AS_BLOCK : BY_DOCUMENT;
}

/* Find the next block that is due and not mapped. False if none is due, or if the tokens of one
 * have to be read by document. */
static bool find_block(struct rp_reads *reads, const struct rp_plan *plan,
                       struct rp_block_read *block_read, struct due *due)
{
    while (next_due(reads, plan, &due->block)) {
        switch (choose_way(reads, due, block_read)) {
        case AS_BLOCK:
            reads->reads_single = lacks_blocks(&reads->block_reads);
            return true;
        case MAPPED:
            advance_side(reads, due);
            break;
        case BY_DOCUMENT:
            if (reads->next_side > 0) {
                advance_side(reads, due);
                break;
            }
            due->part.documents = due->block.documents; /* all of it, and no column */
            advance_part(reads, due);
            reads->reads_single = true;
            return false;
        }
    }
    return false;
}

enum rp_reads_block rp_reads_next_block(struct rp_reads *reads, const struct rp_plan *plan,
                                        uint64_t number, struct rp_block_read *block_read)
{
    struct due due;
    reads->room_at = 0;
    if (!find_block(reads, plan, block_read, &due))
        return RP_READS_NO_BLOCK;
    block_read->source = due.block.source;
    block_read->number = due.block.number;
    block_read->epoch = due.block.epoch;
    block_read->is_wanted = block_read->past_cache && due.block.later_epochs >= LATER_EPOCHS;
    block_read->ticket = number;
    uint64_t data_offset = rp_data_ring_take(&reads->data_ring, due.bytes, RP_BLOCK_BYTES, number,
                                             false, retired(reads));
    if (data_offset == RP_DATA_RING_FULL) {
        bool is_in_window = rp_block_reads_is_in_window(&reads->block_reads);
        if (reads->rest.documents == 0)
            rp_block_reads_defer(&reads->block_reads);
        return is_in_window ? RP_READS_BLOCK_WAITS : RP_READS_NO_BLOCK;
    }
    advance_side(reads, &due);
    for (uint32_t i = 0; i < block_read->run_count; i++)
        block_read->runs[i].data_offset += data_offset;
    rp_files_pin(reads->files, block_read->shard, number);
    block_read->region = rp_data_ring_youngest(&reads->data_ring);
    rp_block_reads_add(&reads->block_reads, block_read);
    return RP_READS_BLOCK;
}

void rp_reads_fill_block(struct rp_reads *reads, struct rp_ticket *ticket,
                         const struct rp_block_read *block_read)
{
    const struct rp_file *file = &reads->files->files[block_read->shard];
    RP_ASSERT(ticket->read_count == 0 && block_read->ticket == reads->number);
    ticket->kind = RP_TICKET_BLOCK_READ;
    if (block_read->is_wanted) /* buffered reads fill the page cache themselves */
        rp_residency_want(file->stretches, block_read->runs[0].first,
                          block_read->runs[block_read->run_count - 1].last);
    for (uint32_t i = 0; i < block_read->run_count; i++) {
        const struct rp_block_run *run = &block_read->runs[i];
        struct rp_file_range range = file_range(reads, file, block_read->shard,
                                                block_read->past_cache, run->first, run->last);
        uint64_t piece = piece_bytes(file, range.last - range.first);
        for (uint64_t at = range.first; at < range.last; at += piece) {
            RP_ASSERT(ticket->read_count < RP_TICKET_TRANSFERS_MAX);
            struct rp_read *read = &ticket->reads[ticket->read_count++];
            *read = (struct rp_read){.offset = at,
                                     .shard = block_read->shard,
                                     .past_cache = range.past_cache,
                                     .data_offset = run->data_offset + (at - range.first)};
            rp_file_range_end_read(&range, rp_min_u64(at + piece, range.last), read);
        }
    }
}
