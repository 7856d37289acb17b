/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h — a batch ring: one engine publishes batches in order, trainers borrow and return them.
 *
 * A ring has a *seat* for each replica: a trainer takes it at attach, gets a control page of its
 * own, and is given every batch. Each seat has a release word; while the seat is absent, its value
 * is the first batch of the seat's next trainer. `release` without a seat means the
 * lowest of all seats.
 *
 * Invariants
 *
 *   I1  release <= tail <= release + slots. A seat's word only grows and stays at or below tail,
 *       which is checked at every load of it. If a trainer attached at a batch above tail, its
 *       word does not change until tail has reached it.
 *
 *   I2  A slot is written only while its batch is in [tail, release + slots), and read only below
 *       tail.
 *
 *   I3  Only `tail` publishes, and only release words give back. Each is one monotonic word with
 *       one release store, so a kill at any instruction leaves a valid ring (two words could be
 *       torn apart).
 *
 *   I4  The writes and the death of one trainer cost the others time only: the ring may
 *       wait longer.
 *
 * A trainer's death is learnt from its socket, never from these words. */
#ifndef RP_SHM_RING_H
#define RP_SHM_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/hash.h"
#include "ringpack/batch.h"
#include "shm/layout.h"
#include "shm/segment.h"

/** Fill in offsets and sizes: *geometry has rows, seq_len, max_docs_per_row, slots (a power of
 * two), state_bytes set; sections is a bit mask (1 << enum rp_section; those that are always there
 * need not be named); token_dtype is for ids, labels and positions (with U16 the latter two are
 * I32). Sections are 64-byte aligned, slots page-aligned. Returns total bytes of a data segment, or
 * 0 if that overflows or rows * seq_len does not fit cu_seqlens. */
uint64_t rp_geometry_layout(struct rp_geometry *geometry, uint32_t sections, uint32_t token_dtype);
/** Total bytes of a data segment whose geometry is laid out already; 0 unless every offset equals
 *  the result of rp_geometry_layout. */
uint64_t rp_geometry_total(const struct rp_geometry *geometry);

/* ---- engine's end ---------------------------------------------------------------------------- */

/* A replica's place at a ring. */
struct rp_ring_seat {
    struct rp_segment control;     /* fd == -1: absent */
    struct rp_ring_control *words; /* in it; NULL: absent or quarantined */
    uint64_t release;              /* private copy of its word, or where its trainer will begin */
    bool is_skipped;               /* absent, and it follows the tail */
    int reader_fd; /* pidfd of the last process that got `data` in this seat, or as in peer.h */
};

struct rp_ring {
    struct rp_segment data;
    struct rp_geometry geometry; /* private copy: never re-read from shared memory */
    struct rp_hash128 contract;  /* in its header */
    uint64_t tail;               /* private copy of the word */
    uint64_t announced;          /* <= tail: no trainer sleeps through a batch below it */
    uint64_t release;            /* the lowest of all seats */
    enum rp_ring_status status;  /* last one set */
    uint32_t quarantined;        /* bit r: the trainer in seat r broke the protocol */
    uint32_t replicas;
    struct rp_ring_seat seats[RP_REPLICAS_MAX]; /* [replicas] are used */
};

/* The stream and the engine of a ring, by which trainers know it (layout.h). */
struct rp_ring_identity {
    struct rp_hash128 contract;
    uint64_t generation;
};

/** replicas: 1 .. RP_REPLICAS_MAX. */
RP_MUST_CHECK int rp_ring_create(struct rp_ring *ring, const struct rp_geometry *geometry,
                                 uint32_t replicas, struct rp_ring_identity identity,
                                 uint64_t first_batch, struct rp_error *error);
/** A fresh control page for a new trainer in seat `replica`, which it places at `batch`. Lifts the
 * seat's quarantine. Only after the last trainer's death is proven. */
RP_MUST_CHECK int rp_ring_attach_trainer(struct rp_ring *ring, uint32_t replica, uint64_t batch,
                                         struct rp_error *error);
/** Note which process the trainer in the seat is, by its pidfd, which the ring owns from here on,
 * or RP_PEER_UNKNOWN. Call it before the trainer gets the descriptor of `data`, and only if the
 * seat's last trainer is proven dead (rp_ring_may_be_read). */
void rp_ring_set_reader(struct rp_ring *ring, uint32_t replica, int pidfd);
/** May the last trainer of a seat that is free still read the ring's data? False is a proof: there
 * was none, or its process has ended, and the memory may be the next one's. */
bool rp_ring_may_be_read(struct rp_ring *ring, uint32_t replica);
/** The trainer is dead: its control page is dropped; its unreleased batches stay. */
void rp_ring_detach_trainer(struct rp_ring *ring, uint32_t replica);
/** The next trainer in seat `replica` begins at `batch`. If the lowest word of all seats leaves
 * [release, tail] by that, the ring is emptied and starts at that word: then no other seat may have
 * a trainer. */
void rp_ring_place_seat(struct rp_ring *ring, uint32_t replica, uint64_t batch);
/** Others do not wait for a seat that is skipped and has no trainer: from the next poll on it
 * stands at most half a ring behind the tail. Placing the seat ends it. */
void rp_ring_skip_seat(struct rp_ring *ring, uint32_t replica, bool is_skipped);
static inline bool rp_ring_is_taken(const struct rp_ring *ring, uint32_t replica)
{
    RP_ASSERT(replica < ring->replicas);
    return ring->seats[replica].control.fd >= 0;
}
/** Read each trainer's release word once, check it (I1), keep it; `release` is then the lowest.
 * A trainer that violates it is quarantined: its word is not read any more, its bit is set and it
 * is woken. -RP_E_PROTOCOL while any is. A seat without a trainer keeps its word, unless it is
 * skipped.
 */
int rp_ring_poll_release(struct rp_ring *ring);
/** The slot of batch k; k in [tail, release + slots). */
uint8_t *rp_ring_slot(const struct rp_ring *ring, uint64_t batch);
/** Publish every batch below `tail` (>= the present one); wake the trainers if one sleeps. */
void rp_ring_publish(struct rp_ring *ring, uint64_t tail);
/** The same in two parts, so that one wake-up serves several batches. The first wakes no trainer,
 * and returns the number of published batches through which a trainer may sleep; 0: none sleeps.
 * The second wakes the trainers if that number is not 0. The caller may not sleep between the two.
 */
uint64_t rp_ring_publish_silently(struct rp_ring *ring, uint64_t tail);
void rp_ring_announce(struct rp_ring *ring);
/** end: of END the number of batches, of FAILED the negative code. message: of FAILED and of END
 * (enum rp_ring_status); NULL: it stays.
 * Wakes the trainers. FAILED is final; END and RUNNING may replace each other. */
void rp_ring_set_status(struct rp_ring *ring, enum rp_ring_status status, uint64_t end,
                        const char *message);
/** The message of its status. */
const char *rp_ring_message(const struct rp_ring *ring);
/** Has the ring no room for another batch, as of the last poll? */
static inline bool rp_ring_is_full(const struct rp_ring *ring)
{
    RP_ASSERT(ring->tail - ring->release <= ring->geometry.slots); /* I1 */
    return ring->tail - ring->release == ring->geometry.slots;
}
/** Does the trainer in the seat say that it sleeps until a batch comes? It may still hold leases of
 * others. The trainer wrote the word, so the answer may be false. */
static inline bool rp_ring_is_awaited(const struct rp_ring *ring, uint32_t replica)
{
    RP_ASSERT(replica < ring->replicas);
    const struct rp_ring_control *words = ring->seats[replica].words;
    return words && rp_a32_load_relaxed(&words->want_data);
}
/** Request that trainers ring at each release, or no more. After a request, poll the release words
 * once more. */
void rp_ring_set_doorbell(struct rp_ring *ring, bool is_on);
void rp_ring_close(struct rp_ring *ring);

/* ---- trainer's end --------------------------------------------------------------------------- */

struct rp_ring_view {
    struct rp_segment data, control;
    struct rp_geometry geometry; /* validated private copy */
    struct rp_hash128 contract;
    uint64_t generation;
    uint32_t replica;           /* its seat; set by the caller of rp_ring_view_open */
    uint64_t next;              /* next batch to take */
    uint64_t next_row;          /* its first row, over all ranks */
    uint64_t taken_rows;        /* rows of the batch that was taken last */
    uint64_t tail;              /* last tail seen; may be below next until the ring reaches next */
    uint64_t release;           /* last release stored */
    uint32_t waits_in_vain;     /* how many ended in sleep since a long spin found something */
    enum rp_ring_status status; /* last one seen by rp_ring_view_take, and its `end` */
    uint64_t end;
};
/** Map and validate both segments (magic, ABI, hash, every offset against the size). Takes both
 * fds. The caller may set next_row then; by default all batches have the geometry's rows. */
RP_MUST_CHECK int rp_ring_view_open(struct rp_ring_view *view, int data_fd, int control_fd,
                                    uint64_t first_batch, struct rp_error *error);
enum rp_ring_take { RP_RING_TAKEN, RP_RING_EMPTY, RP_RING_CLOSED };
/** The next batch if it is published: *slot points at it, *header is a checked copy of its header.
 * CLOSED: view->status is not RUNNING and there will be no such batch. -RP_E_PROTOCOL if the
 * engine's words make no sense. Never waits. With next - release == slots no batch can come: the
 * caller must release first. */
RP_MUST_CHECK int rp_ring_view_take(struct rp_ring_view *view, const uint8_t **slot,
                                    struct rp_slot_header *header, struct rp_error *error);
/** Undo the last take, if no lease was made for it: the next take returns the same batch. */
void rp_ring_view_put_back(struct rp_ring_view *view);
/** The message of the view's status END, FAILED or QUARANTINED; always terminated. */
void rp_ring_view_message(const struct rp_ring_view *view, char *text, size_t capacity);
/** With the status END: whether the next engine begins at another stage. */
bool rp_ring_view_ends_stage(const struct rp_ring_view *view);
/** After EMPTY: spin, then sleep until tail moves, the status changes, or timeout_ns has passed (at
 * most; it may return early, and a change of status may be seen only then, so callers bound it to
 * about 100 ms). */
void rp_ring_view_wait(struct rp_ring_view *view, uint64_t timeout_ns);
/** Batches below `release` are given back. Returns true if the engine wants the doorbell. */
bool rp_ring_view_release(struct rp_ring_view *view, uint64_t release);
/** Write the heartbeat, which `ringpack stat` shows. */
void rp_ring_view_beat(struct rp_ring_view *view, uint64_t now_ns);
/** Write since when the trainer waits for a batch, for `ringpack stat`; 0: it does not wait. */
void rp_ring_view_waits_since(struct rp_ring_view *view, uint64_t begin_ns);
/** Count a wait that has ended with a batch, for `ringpack stat`. */
void rp_ring_view_waited(struct rp_ring_view *view, uint64_t ns);
void rp_ring_view_close(struct rp_ring_view *view);

#endif
