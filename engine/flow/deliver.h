/* SPDX-License-Identifier: Apache-2.0 */
/* deliver.h — last step of the flow: packed tickets, in order, become published batches.
 *
 * One thread at a time delivers, the holder of the turn: the engine's thread as long as it runs;
 * while it is parked, the packer thread that has just packed, so that no batch waits for a wake-up.
 * Only the engine's thread ends or changes the stream, and it is woken for that. Packer processes,
 * which may be killed at any time, never deliver: they wake the engine.
 *
 * THE TURN is a lock that packer threads only try. A thread that does not get it leaves its work to
 * the holder: it makes the work visible, fences, and tries; the holder gives back, fences, and
 * checks for work once more. At least one of them sees the other (PAIRS turn). Work is a packed
 * ticket, or a request for room. By its reason for taking the turn, a packer
 *
 *                       retires tickets   announces   frees slots            requests room
 *   RP_TURN_PACKED      yes               if due      if wake_at is set      -
 *   RP_TURN_WAITS       yes               yes         if wake_at is set      -
 *   RP_TURN_POLLS_ROOM  yes               yes         yes                    -
 *   RP_TURN_LACKS_ROOM  yes               yes         yes                    yes
 *
 * and the engine's thread does all of it. A request that another packer has left is served too.
 *
 * ROOM. Packers may write a slot once the holder of the turn has read that every consumer of its
 * ring has released it (rp_deliver_free_slots). While no thread polls, a doorbell has to tell the
 * engine of a release; trainers ring it if the engine has set it. `room` says whether packer
 * threads need that:
 *
 *   RP_ROOM_ENOUGH     no packer thread has lacked room since slots were freed
 *   RP_ROOM_WANTED     a packer thread lacks room, and the holder of the turn has not yet seen that
 *   RP_ROOM_REQUESTED  a packer thread lacks room; the doorbells of all rings are on, because the
 *                      slot that it waits for may be after batches that are not published
 *
 *   event                     writer          ENOUGH   WANTED     REQUESTED
 *   a packer lacks room       its thread      wanted   wanted     wanted
 *   doorbells are set         has the turn    enough   requested  requested
 *   a slot is freed           has the turn    enough   enough     enough
 *
 * A freed slot wakes all packers that lack room, after the store. A packer whose WANTED was
 * overwritten wakes too, and repeats it if it still lacks room.
 *
 * ANNOUNCING. To wake a fast trainer, which sleeps between batches, may cost more than to pack its
 * batch. So a packer that has more to pack lets the trainer sleep until batches fill half of its
 * ring, or RP_ANNOUNCE_NS have passed (on a node with many ranks RP_ANNOUNCE_RANK_NS for each);
 * batches that come more slowly than that are announced one by one.
 * Invariant: if a trainer sleeps through a batch, a packer thread is awake that will announce it:
 * before it waits, or when its ticket is packed. The engine announces all batches when it takes the
 * turn, and each batch that it publishes. (A packer that waits for the disk in a page fault does
 * not know that it waits: then trainers, which never sleep for more than 100 ms, find the batches
 * themselves.) */
#ifndef RP_FLOW_DELIVER_H
#define RP_FLOW_DELIVER_H

#include "flow/flow.h"
#include "flow/files.h"
#include "flow/revalidation.h"

#define RP_ANNOUNCE_NS 100000u
#define RP_ANNOUNCE_RANK_NS 12500u /* for each rank: the longer time from 9 ranks on */

enum rp_room { RP_ROOM_ENOUGH, RP_ROOM_WANTED, RP_ROOM_REQUESTED };

enum rp_turn_reason {
    RP_TURN_PACKED,     /* the packer has packed a ticket */
    RP_TURN_WAITS,      /* it is going to wait for a ticket, or to yield its processor */
    RP_TURN_POLLS_ROOM, /* it polls for room in a ring */
    RP_TURN_LACKS_ROOM  /* it is going to sleep until there is room */
};

enum rp_stream_phase {
    RP_STREAM_RUNS,
    RP_STREAM_LAST_CHECK, /* all is packed, and the end waits for the last check of token files */
    RP_STREAM_ENDED
};

/* Sums over the rows of a batch whose tickets are retired. */
struct rp_batch_sums {
    int64_t
        unlabelled; /* labels that masks have removed, less the labels of the ends of fragments */
    uint64_t cost;
    uint64_t without_cost; /* rows that have a fragment and no cost */
};

struct rp_deliver {
    const struct rp_flow_options *options;
    struct rp_arena *arena;
    struct rp_ring *rings; /* [rank_count] */
    const struct rp_files *files;
    struct rp_revalidation *revalidation;
    int wake_fd;               /* eventfd of the engine */
    struct rp_a32 room;        /* enum rp_room, see above */
    struct rp_a32 unannounced; /* 1: a ring has batches to announce. Writer: who has the turn */
    struct rp_a32 turn; /* 1: taken. Its holder owns all that follows, and the rings' words */
    struct rp_event turn_given_back;
    const struct rp_numbering *numbering;
    uint64_t next_ticket; /* first ticket not yet retired */
    uint64_t wake_at;     /* wake the engine when every ring has released this many batches */
    /* a catch-up flow leaves batches from here on to the main flow. Else UINT64_MAX */
    uint64_t end_batch;
    bool *is_left_out; /* [rank_count]: the ring's catch-up flow delivers to it, not this one */
    enum rp_stream_phase phase; /* the engine's thread alone changes it */
    bool held;
    uint64_t held_batch, held_ticket;
    struct rp_batch_sums *sums;            /* [rank_count]: of the next batch */
    struct rp_flow_costs *costs;           /* the flow's, since it was opened */
    uint64_t published_ns, unannounced_ns; /* when the newest, the first unannounced batch was */
    uint64_t batches, rows, tokens;        /* published since open */
};

/* ---- by the engine's thread, which has the turn unless it is parked -------------------------- */

/** One step of the engine; see rp_flow_deliver. */
RP_MUST_CHECK int rp_deliver_step(struct rp_deliver *deliver, struct rp_error *error);
/** Set the doorbells and give the turn back, before sleeping. False if there is work after all; the
 * turn is gone all the same. A doorbell is on for a ring that has the batch of wake_at; for a full
 * one, if packers are processes; and for all, if a packer sleeps for lack of room. */
bool rp_deliver_park(struct rp_deliver *deliver);
/** Take the turn again, and announce all batches. */
void rp_deliver_unpark(struct rp_deliver *deliver);
/** Have the trainers of all rings that this flow delivers to released the batches below this one?
 */
bool rp_deliver_is_consumed(const struct rp_deliver *deliver, uint64_t batch);
/** Read every trainer's release word, and let packers write the slots it freed. True if any word
 * moved. */
bool rp_deliver_free_slots(struct rp_deliver *deliver);

/* ---- by packer threads ----------------------------------------------------------------------- */

/** Deliver, if the turn is free. */
void rp_deliver_as_packer(struct rp_deliver *deliver, enum rp_turn_reason reason);

#endif
