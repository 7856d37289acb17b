/* SPDX-License-Identifier: Apache-2.0 */
/* ring.c — the engine's end. The trainer's end is ring_view.c, the shape of a slot ring_geometry.c.
 *
 * The engine addresses memory only with its private copies: a trainer's words decide when a slot is
 * written again and never which one. */
#include "shm/ring.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"
#include "shm/peer.h"
#include "shm/wait.h"

/* From here on huge pages save more page-table work at attach than they waste at the end. */
#define RP_RING_HUGE_BYTES (8u << 20)

static struct rp_ring_engine *engine_words(const struct rp_ring *ring)
{
    return (struct rp_ring_engine *)(void *)(ring->data.data + RP_PAGE_BYTES);
}

static void write_header(const struct rp_ring *ring, struct rp_ring_identity identity,
                         uint64_t total_bytes)
{
    struct rp_ring_header *header = (struct rp_ring_header *)(void *)ring->data.data;
    *header = (struct rp_ring_header){
        .magic = RP_RING_MAGIC,
        .abi_version = RP_ABI_VERSION,
        .header_bytes = sizeof *header,
        .total_bytes = total_bytes,
        .slots_offset = RP_RING_SLOTS_OFFSET,
        .generation = identity.generation,
        .contract = identity.contract,
        .geometry = ring->geometry,
    };
    header->header_hash = rp_hash128(header, offsetof(struct rp_ring_header, header_hash));
    rp_a32_store_release(&header->ready, 1);
}

int rp_ring_create(struct rp_ring *ring, const struct rp_geometry *geometry, uint32_t replicas,
                   struct rp_ring_identity identity, uint64_t first_batch, struct rp_error *error)
{
    RP_ASSERT(replicas > 0 && replicas <= RP_REPLICAS_MAX);
    *ring = (struct rp_ring){.data.fd = -1,
                             .geometry = *geometry,
                             .contract = identity.contract,
                             .tail = first_batch,
                             .announced = first_batch,
                             .release = first_batch,
                             .status = RP_RING_RUNNING,
                             .replicas = replicas};
    for (uint32_t r = 0; r < replicas; r++)
        ring->seats[r] = (struct rp_ring_seat){
            .control.fd = -1, .release = first_batch, .reader_fd = RP_PEER_NONE};
    uint64_t total = rp_geometry_total(geometry);
    if (total == 0)
        return rp_fail(error, -RP_E_USAGE, NULL,
                       "batch ring of rank %" PRIu32 ": its geometry is not laid out",
                       geometry->rank);
    char name[32];
    snprintf(name, sizeof name, "ringpack-batch-%" PRIu32, geometry->rank);
    int code = rp_segment_create(&ring->data, name, total, total >= RP_RING_HUGE_BYTES, error);
    if (code < 0)
        return code;
    RP_ASSERT(ring->data.bytes >= total);
    rp_a64_store_relaxed(&engine_words(ring)->tail, first_batch);
    write_header(ring, identity, total);
    code = rp_segment_seal_readers(&ring->data, error);
    if (code < 0)
        rp_ring_close(ring);
    return code;
}

static void set_quarantined(struct rp_ring *ring, uint32_t quarantined)
{
    ring->quarantined = quarantined;
    rp_a32_store_relaxed(&engine_words(ring)->quarantined, quarantined);
}

int rp_ring_attach_trainer(struct rp_ring *ring, uint32_t replica, uint64_t batch,
                           struct rp_error *error)
{
    RP_ASSERT(replica < ring->replicas && !rp_ring_is_taken(ring, replica));
    struct rp_ring_seat *seat = &ring->seats[replica];
    int code = rp_segment_create(&seat->control, "ringpack-control", RP_PAGE_BYTES, false, error);
    if (code == 0)
        code = rp_segment_seal_size(&seat->control, error);
    if (code < 0) {
        rp_segment_close(&seat->control);
        return code;
    }
    RP_ASSERT(seat->control.bytes >= sizeof *seat->words);
    seat->words = (struct rp_ring_control *)(void *)seat->control.data;
    rp_a64_store_release(&seat->words->release, batch);
    rp_ring_place_seat(ring, replica, batch);
    set_quarantined(ring, ring->quarantined & ~(1u << replica));
    return 0;
}

void rp_ring_set_reader(struct rp_ring *ring, uint32_t replica, int pidfd)
{
    RP_ASSERT(replica < ring->replicas && pidfd != RP_PEER_NONE);
    RP_ASSERT(ring->seats[replica].reader_fd == RP_PEER_NONE);
    rp_peer_close(ring->seats[replica].reader_fd);
    ring->seats[replica].reader_fd = pidfd;
}

bool rp_ring_may_be_read(struct rp_ring *ring, uint32_t replica)
{
    RP_ASSERT(replica < ring->replicas && !rp_ring_is_taken(ring, replica));
    struct rp_ring_seat *seat = &ring->seats[replica];
    if (seat->reader_fd == RP_PEER_NONE)
        return false;
    if (!rp_peer_has_ended(seat->reader_fd))
        return true;
    rp_peer_close(seat->reader_fd);
    seat->reader_fd = RP_PEER_NONE;
    return false;
}

void rp_ring_detach_trainer(struct rp_ring *ring, uint32_t replica)
{
    RP_ASSERT(replica < ring->replicas);
    ring->seats[replica].words = NULL;
    rp_segment_close(&ring->seats[replica].control);
}

void rp_ring_place_seat(struct rp_ring *ring, uint32_t replica, uint64_t batch)
{
    RP_ASSERT(replica < ring->replicas);
    uint64_t lowest = ring->seats[replica].release = batch;
    ring->seats[replica].is_skipped = false;
    for (uint32_t r = 0; r < ring->replicas; r++)
        lowest = rp_min_u64(lowest, ring->seats[r].release);
    if (lowest - ring->release > ring->tail - ring->release) {
        for (uint32_t r = 0; r < ring->replicas; r++)
            RP_ASSERT(r == replica || !rp_ring_is_taken(ring, r));
        ring->tail = ring->announced = lowest;
        rp_a64_store_relaxed(&engine_words(ring)->tail, lowest); /* all are absent */
    }
    RP_ASSERT(lowest <= ring->tail && ring->tail - lowest <= ring->geometry.slots); /* I1 */
    ring->release = lowest;
}

void rp_ring_skip_seat(struct rp_ring *ring, uint32_t replica, bool is_skipped)
{
    RP_ASSERT(replica < ring->replicas);
    RP_ASSERT(!is_skipped || !rp_ring_is_taken(ring, replica));
    ring->seats[replica].is_skipped = is_skipped;
}

/* The newer half of the ring stays for a trainer that may yet come; the rest is room. */
static void follow_tail(const struct rp_ring *ring, struct rp_ring_seat *seat)
{
    RP_ASSERT(!seat->words);
    uint64_t kept = ring->geometry.slots / 2;
    if (ring->tail > kept && seat->release < ring->tail - kept)
        seat->release = ring->tail - kept;
}

void rp_ring_set_status(struct rp_ring *ring, enum rp_ring_status status, uint64_t end,
                        const char *message)
{
    RP_ASSERT(status <= RP_RING_FAILED); /* a quarantine shows in its bit */
    RP_ASSERT(ring->status != RP_RING_FAILED || status == RP_RING_FAILED);
    struct rp_ring_engine *words = engine_words(ring);
    ring->status = status;
    rp_a64_store_relaxed(&words->end, end);
    if (message)
        snprintf(words->message, sizeof words->message, "%s", message);
    rp_a32_store_release(&words->status, status); /* PAIRS ring-status */
    /* Rare, so it wakes without a check for sleepers. */
    rp_futex_wake_all(rp_a64_low(&words->tail));
}

const char *rp_ring_message(const struct rp_ring *ring)
{
    return engine_words(ring)->message;
}

/* The seat keeps the last valid value of the trainer's word, as if the trainer had stopped there:
 * the ring's other trainers get batches as long as there is room above that value. */
__attribute__((noinline)) static int quarantine(struct rp_ring *ring, struct rp_ring_seat *seat)
{
    if (!seat)
        return -RP_E_PROTOCOL;
    RP_ASSERT(seat->words && (size_t)(seat - ring->seats) < ring->replicas);
    seat->words = NULL;
    set_quarantined(ring, ring->quarantined | 1u << (seat - ring->seats));
    rp_futex_wake_all(rp_a64_low(&engine_words(ring)->tail));
    return -RP_E_PROTOCOL;
}

int rp_ring_poll_release(struct rp_ring *ring)
{
    uint64_t lowest = UINT64_MAX;
    struct rp_ring_seat *liar = NULL; /* if there are several, the next polls find the others */
    uint32_t r = 0, count = ring->replicas;
    do {
        struct rp_ring_seat *seat = &ring->seats[r];
        if (seat->words) {
            uint64_t release = rp_a64_load_acquire(&seat->words->release); /* PAIRS ring-release */
            bool grows = release > seat->release && release <= ring->tail;
            if (grows)
                seat->release = release;
            else if (release != seat->release)
                liar = seat;
        } else if (seat->is_skipped) {
            follow_tail(ring, seat);
        }
        lowest = rp_min_u64(lowest, seat->release);
    } while (++r < count);
    ring->release = lowest;
    return liar || ring->quarantined ? quarantine(ring, liar) : 0;
}

uint8_t *rp_ring_slot(const struct rp_ring *ring, uint64_t batch)
{
    RP_ASSERT(batch - ring->release < ring->geometry.slots);
    uint64_t index = batch & (ring->geometry.slots - 1);
    return ring->data.data + RP_RING_SLOTS_OFFSET + index * ring->geometry.slot_bytes;
}

/* Has a trainer said that it sleeps, or is about to? */
static bool is_awaited_by_any(const struct rp_ring *ring)
{
    bool wanted = false;
    uint32_t r = 0;
    do {
        wanted = rp_ring_is_awaited(ring, r);
    } while (!wanted && ++r < ring->replicas);
    return wanted;
}

uint64_t rp_ring_publish_silently(struct rp_ring *ring, uint64_t tail)
{
    RP_ASSERT(tail >= ring->tail && tail - ring->release <= ring->geometry.slots);
    struct rp_ring_engine *words = engine_words(ring);
    ring->tail = tail;
    rp_a64_store_release(&words->tail, tail); /* PAIRS ring-publish */
    rp_fence_seq_cst();                       /* PAIRS ring-data */
    if (!is_awaited_by_any(ring))             /* a later sleeper has seen this tail */
        ring->announced = tail;
    return tail - ring->announced;
}

void rp_ring_announce(struct rp_ring *ring)
{
    RP_ASSERT(ring->announced <= ring->tail);
    if (ring->announced == ring->tail)
        return;
    ring->announced = ring->tail;
    rp_futex_wake_all(rp_a64_low(&engine_words(ring)->tail)); /* all trainers sleep on it */
}

void rp_ring_publish(struct rp_ring *ring, uint64_t tail)
{
    (void)rp_ring_publish_silently(ring, tail);
    rp_ring_announce(ring);
}

void rp_ring_set_doorbell(struct rp_ring *ring, bool is_on)
{
    rp_a32_store_relaxed(&engine_words(ring)->want_space, is_on);
    if (is_on)
        rp_fence_seq_cst(); /* PAIRS ring-space */
}

void rp_ring_close(struct rp_ring *ring)
{
    for (uint32_t r = 0; r < ring->replicas; r++) {
        rp_ring_detach_trainer(ring, r);
        rp_peer_close(ring->seats[r].reader_fd);
        ring->seats[r].reader_fd = RP_PEER_NONE;
    }
    rp_segment_close(&ring->data);
}
