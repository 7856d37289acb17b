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
    bool from_corpus;    /* a transfer has needed the corpus; no block is read before that */
    bool no_block_reads; /* a block read has failed: there are none from then on */
    /* Single-document reads are the rule: there are no block reads, or some lane has none, or the
     * last due block cannot be read as one. Only then does such a read bring its stretches into the
     * page cache: otherwise block reads do. */
    bool reads_single;
    /* The part of the last due block that is not read yet; 0 documents = none. A block is read in
     * parts, one for each shard, and a part in turns: next_side 0 reads its tokens, c + 1 the
     * entries of side column c. */
    struct rp_plan_block rest;
    uint32_t next_side;

    /* Set if rp_reads_place or rp_reads_next_block refuses for want of a descriptor or of room for
     * spans: it succeeds when the tickets below this are retired. 0: no refusal, or a refusal for
     * want of data (rp_reads_room_at). */
    uint64_t room_at;

    struct rp_ticket *ticket;  /* under construction */
    uint64_t number;           /* that ticket's */
    uint64_t ticket_bytes;     /* that it reads */
    uint64_t ticket_bytes_max; /* no limit with side columns: side_reads.c has one for them */
};

RP_MUST_CHECK int rp_reads_open(struct rp_reads *reads, const struct rp_flow_options *options,
                                struct rp_files *files, const struct rp_arena *arena,
                                struct rp_error *error);
void rp_reads_close(struct rp_reads *reads);
/** Before each start of the flow, with the plan where it begins. */
RP_MUST_CHECK int rp_reads_start(struct rp_reads *reads, const struct rp_plan *plan,
                                 uint64_t base_row, struct rp_error *error);

/** After rows were planned or blocks read: note the positions for the forecast of next uses. */
void rp_reads_note(struct rp_reads *reads, const struct rp_plan *plan);

/** Begin a ticket: the next transfers are placed in it. */
void rp_reads_begin(struct rp_reads *reads, struct rp_ticket *ticket, uint64_t number);

/** Take the expected hashes of a complete ticket's reads from the sidecars. */
void rp_reads_take_hashes(const struct rp_reads *reads, struct rp_ticket *ticket);

enum rp_reads_place { RP_READS_FULL, RP_READS_PLACED };
/** Place the tokens of the next transfer of the ticket, a fragment of `row`, and add its mask to
 * the ticket. The transfer's fragment, ring, row, offset and index are set; this sets its other
 * members. FULL: the ticket has no room for the transfer. If the ticket is empty, it has room once
 * the tickets below rp_reads_room_at are retired. Or a negative code: the token file cannot be
 * opened. */
RP_MUST_CHECK int rp_reads_place(struct rp_reads *reads, uint64_t row, struct rp_transfer *transfer,
                                 struct rp_error *error);

enum rp_reads_block { RP_READS_NO_BLOCK, RP_READS_BLOCK, RP_READS_BLOCK_WAITS };
/** The next block that is due. BLOCK: it has room in the data, for ticket `number`, which has to be
 * filled with rp_reads_fill_block next. WAITS: the next rows use it, and there is no room before
 * the tickets below rp_reads_room_at are retired. */
enum rp_reads_block rp_reads_next_block(struct rp_reads *reads, const struct rp_plan *plan,
                                        uint64_t number, struct rp_block_read *block_read);
/** Give the ticket, which is empty, the reads of the block. */
void rp_reads_fill_block(struct rp_reads *reads, struct rp_ticket *ticket,
                         const struct rp_block_read *block_read);
/** After FULL for an empty ticket, or WAITS: the same call succeeds when the tickets below this are
 * retired. */
uint64_t rp_reads_room_at(const struct rp_reads *reads);

#endif
