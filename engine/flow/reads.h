/* SPDX-License-Identifier: Apache-2.0 */
/* reads.h — the source of each transfer's tokens, and the reads of a ticket that fetch them.
 *
 *     a checkpoint's contents  ── copied by the reader
 *     a mapped token file, or stretch of one (residency.h)  ── stay where they are
 *     a block read (block_reads.h)          ── stay in the region of the ticket that read it
 *     else                     ── a read of this ticket, or part of one: a range that begins inside
 *                                 or just after the last read extends it
 *
 * Thread: dispatch's own. */
#ifndef RP_FLOW_READS_H
#define RP_FLOW_READS_H

#include "flow/block_reads.h"
#include "flow/files.h"
#include "flow/data_ring.h"
#include "flow/masks.h"

struct rp_reads {
    const struct rp_flow_options *options;
    struct rp_files *files;
    const struct rp_arena *arena;
    struct rp_data_ring data_ring;
    struct rp_block_reads block_reads;
    struct rp_masks masks;
    bool from_corpus;    /* a document had to be read: until then there is no block_read */
    bool no_block_reads; /* one could not be read */
    /* Documents are read individually as a rule: there are no block reads, or some lane has none,
     * or the last due block cannot be read as one. Only then is a single-document read a reason to
     * bring its stretches into the page cache: otherwise their blocks are read as well. */
    bool reads_alone;
    /* The last block's documents in later shards: the next block read; 0 documents = no rest. */
    struct rp_plan_block rest;
    uint32_t next_side; /* 0: the block's tokens are next; c + 1: the entries of column c */

    /* Set if rp_reads_place or rp_reads_next_block refuses for want of a descriptor or of room for
     * spans: it succeeds when the tickets below this are retired. 0: no refusal, or for want of
     * data. */
    uint64_t room_at;

    struct rp_ticket *ticket; /* under construction; its number, and the bytes that it reads */
    uint64_t number, ticket_bytes;
    uint64_t ticket_bytes_max; /* without side columns, which decide themselves (side_reads.h) */
};

RP_MUST_CHECK int rp_reads_open(struct rp_reads *reads, const struct rp_flow_options *options,
                                struct rp_files *files, const struct rp_arena *arena,
                                struct rp_error *error);
void rp_reads_close(struct rp_reads *reads);
/** Before each start of the flow, with the plan where it begins. */
RP_MUST_CHECK int rp_reads_start(struct rp_reads *reads, const struct rp_plan *plan,
                                 uint64_t base_row, struct rp_error *error);

/** Rows were planned, and blocks taken: note the positions for the forecast of next uses. */
void rp_reads_note(struct rp_reads *reads, const struct rp_plan *plan);

/** The next transfers are for this ticket. */
void rp_reads_begin(struct rp_reads *reads, struct rp_ticket *ticket, uint64_t number);

/** Take the expected hashes of a complete ticket's reads from the sidecars. */
void rp_reads_expect(const struct rp_reads *reads, struct rp_ticket *ticket);

enum rp_reads_place { RP_READS_FULL, RP_READS_PLACED };
/** Set data_offset, loaded_by, mapped_shard, width, id_bits and extra of a transfer of `row`; its
 * fragment, ring and offset are set, and it is the next one of the ticket, which gets its mask.
 * FULL: the ticket takes no more; an empty one does when the tickets below rp_reads_room_at are
 * retired. Or a negative code: the token file cannot be opened. */
RP_MUST_CHECK int rp_reads_place(struct rp_reads *reads, uint64_t row, struct rp_transfer *transfer,
                                 struct rp_error *error);

enum rp_reads_block { RP_READS_NO_BLOCK, RP_READS_BLOCK, RP_READS_BLOCK_WAITS };
/** The next block that is due. BLOCK: its place is taken for ticket `number`, which has to be
 * filled with rp_reads_fill_block next. WAITS: the next rows want it, and there is no room before
 * the tickets below rp_reads_room_at are retired. */
enum rp_reads_block rp_reads_next_block(struct rp_reads *reads, const struct rp_plan *plan,
                                        uint64_t number, struct rp_block_read *block_read);
/** The call that returned FULL for an empty ticket, or WAITS, succeeds when the tickets below this
 * are retired. Only after such a return. */
uint64_t rp_reads_room_at(const struct rp_reads *reads);
void rp_reads_fill_block(struct rp_reads *reads, struct rp_ticket *ticket,
                         const struct rp_block_read *block_read);

#endif
