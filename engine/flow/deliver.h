/* SPDX-License-Identifier: Apache-2.0 */
/* deliver.h — stage 3: packed tickets, in order, become published batches.
 *
 * One thread at a time delivers, the holder of the turn (turn.h): the engine's thread as long as it
 * runs; while it sleeps, the packer thread that has just packed, so that no batch waits for a
 * wake-up. Only the engine's thread ends or changes the stream, and it is woken for that. Packer
 * processes, which may be killed at any time, never deliver.
 *
 * To wake a fast trainer, which sleeps between batches, may cost more than to pack its batch. So a
 * packer that has more to pack lets the trainer sleep until batches fill half of its ring, or
 * RP_ANNOUNCE_NS have passed (on a node with many ranks RP_ANNOUNCE_RANK_NS for each); batches that
 * come more slowly than that are announced one by one.
 * Invariant: if a trainer sleeps through a batch, a packer thread is awake that will announce it:
 * before it waits, or when its ticket is packed. The engine announces all batches when it takes the
 * turn, and each batch that it publishes. (A packer that waits for the disk in a page fault does
 * not know that it waits: then trainers, which never sleep for more than 100 ms, find the batches
 * themselves.) */
#ifndef RP_FLOW_DELIVER_H
#define RP_FLOW_DELIVER_H

#include "flow/flow.h"
#include "flow/files.h"
#include "flow/looks.h"
#include "flow/turn.h"

#define RP_ANNOUNCE_NS 100000u
#define RP_ANNOUNCE_RANK_NS 12500u /* so of more than 8 ranks */

struct rp_deliver {
    const struct rp_flow_options *options;
    struct rp_arena *arena;
    struct rp_ring *rings; /* [rank_count] */
    const struct rp_files *files;
    struct rp_looks *looks;
    int wake_fd;                /* eventfd of the engine */
    struct rp_a32 space_wanted; /* by a packer that may not have got the turn. PAIRS turn */
    struct rp_a32 unannounced;  /* 1: a ring has batches to announce. Writer: who has the turn */
    struct rp_turn turn;        /* its holder owns everything below, and the rings' words */
    uint64_t base_row;
    uint64_t next_ticket; /* first ticket not yet retired */
    uint64_t wake_at;     /* wake the engine when every ring has released this many batches */
    /* a catch-up flow leaves batches from here on to the main flow. Else UINT64_MAX */
    uint64_t end_batch;
    bool *is_catching_up; /* [rank_count]: the ring's catch-up flow delivers to it, not this one */
    bool space_awaited;   /* a packer thread sleeps, and no slot was freed since its request */
    bool ends;            /* all is packed, and the end waits for the last check of token files */
    bool ended;
    bool held;
    uint64_t held_batch, held_ticket;
    uint64_t *unlabelled; /* [rank_count]: labels that masks have removed from the next batch */
    uint64_t published_ns, unannounced_ns; /* when the newest, the first unannounced batch was */
    uint64_t batches, rows, tokens;        /* published since open */
};

/** One step of the engine, which has the turn; see rp_flow_deliver. */
RP_MUST_CHECK int rp_deliver_step(struct rp_deliver *deliver, struct rp_error *error);
/** Read every trainer's release word, and let packers write the slots it freed. True if any word
 * moved. */
bool rp_deliver_poll_space(struct rp_deliver *deliver);
/** Have the trainers of all rings that this flow delivers to released the batches below this one?
 */
bool rp_deliver_is_consumed(const struct rp_deliver *deliver, uint64_t batch);
/** Give the turn back before sleeping. False if there is work after all; the turn is gone all the
 * same. */
bool rp_deliver_give_back(struct rp_deliver *deliver);
/** Wake every trainer that sleeps though it has a batch. By whoever has the turn. */
void rp_deliver_announce(struct rp_deliver *deliver);

/** Request from trainers that they ring the engine's doorbell when they release a batch. While a
 * packer thread sleeps, all trainers get the request, because the slot that it waits for may be
 * after batches that are packed but not published. Otherwise it goes to the trainers to whom the
 * batch of wake_at was published and, if packers are processes, to those whose ring is full. */
void rp_deliver_ask_for_space(struct rp_deliver *deliver);

/** A packer thread has packed a ticket: deliver, if the turn is free. */
void rp_deliver_as_packer(struct rp_deliver *deliver);
/** A packer thread is going to wait for a ticket, or to yield its processor: announce first. */
void rp_deliver_before_wait(struct rp_deliver *deliver);
/** A packer thread needs room in a ring: is there some by now? */
void rp_deliver_look_for_space(struct rp_deliver *deliver);
/** A packer thread is going to sleep until there is room: check once more, and have it woken then.
 */
void rp_deliver_want_space(struct rp_deliver *deliver);

#endif
