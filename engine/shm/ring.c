/* SPDX-License-Identifier: Apache-2.0 */
/* ring — the engine's end. The trainer's end is ring_view.c, the shape of a slot ring_geometry.c.
 *
 * The engine addresses memory with its private copies alone: what the trainer can write decides
 * when a slot is written again and never which one. */
#include "shm/ring.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/defect.h"
#include "shm/wait.h"

/* From here on huge pages save more page-table work at attach than they waste at the end. */
#define RP_RING_HUGE_BYTES (8u << 20)

static struct rp_ring_engine *engine_words(const struct rp_ring *ring)
{
    return (struct rp_ring_engine *)(void *)(ring->data.data + RP_PAGE_BYTES);
}

static struct rp_ring_control *control_words(const struct rp_ring *ring)
{
    return (struct rp_ring_control *)(void *)ring->control.data;
}

static void write_header(const struct rp_ring *ring, struct rp_hash128 identity,
                         uint64_t generation, uint64_t total_bytes)
{
    struct rp_ring_header *header = (struct rp_ring_header *)(void *)ring->data.data;
    *header = (struct rp_ring_header){
        .magic = RP_RING_MAGIC,
        .abi_version = RP_ABI_VERSION,
        .header_bytes = sizeof *header,
        .total_bytes = total_bytes,
        .slots_offset = RP_RING_SLOTS_OFFSET,
        .generation = generation,
        .identity = identity,
        .geometry = ring->geometry,
    };
    header->header_hash = rp_hash128(header, offsetof(struct rp_ring_header, header_hash));
    rp_a32_store_release(&header->ready, 1);
}

int rp_ring_create(struct rp_ring *ring, const struct rp_geometry *geometry,
                   struct rp_hash128 identity, uint64_t generation, uint64_t first_batch,
                   struct rp_error *error)
{
    *ring = (struct rp_ring){.data.fd = -1,
                             .control.fd = -1,
                             .geometry = *geometry,
                             .tail = first_batch,
                             .release = first_batch,
                             .status = RP_RING_RUNNING};
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
    rp_a64_store_relaxed(&engine_words(ring)->tail, first_batch);
    write_header(ring, identity, generation, total);
    code = rp_segment_seal_readers(&ring->data, error);
    if (code < 0)
        rp_ring_close(ring);
    return code;
}

int rp_ring_attach_trainer(struct rp_ring *ring, uint64_t batch, struct rp_error *error)
{
    RP_ASSERT(ring->control.fd == -1);
    int code = rp_segment_create(&ring->control, "ringpack-control", RP_PAGE_BYTES, false, error);
    if (code == 0)
        code = rp_segment_seal_size(&ring->control, error);
    if (code < 0) {
        rp_segment_close(&ring->control);
        return code;
    }
    if (batch - ring->release > ring->tail - ring->release)
        ring->tail = batch;
    ring->release = batch;
    rp_a64_store_release(&control_words(ring)->release, batch);
    rp_a64_store_release(&engine_words(ring)->tail, ring->tail);
    if (ring->quarantined) {
        ring->quarantined = false;
        rp_ring_set_status(ring, ring->status, ring->end, NULL);
    }
    return 0;
}

void rp_ring_detach_trainer(struct rp_ring *ring)
{
    rp_segment_close(&ring->control);
}

static void store_status(struct rp_ring *ring, enum rp_ring_status status, uint64_t end,
                         const char *message)
{
    struct rp_ring_engine *words = engine_words(ring);
    rp_a64_store_relaxed(&words->end, end);
    if (message)
        snprintf(words->message, sizeof words->message, "%s", message);
    rp_a32_store_release(&words->status, status); /* PAIRS ring-status */
    rp_futex_wake_all(
        rp_a64_low(&words->tail)); /* rare: not worth asking whether somebody sleeps */
}

void rp_ring_set_status(struct rp_ring *ring, enum rp_ring_status status, uint64_t end,
                        const char *message)
{
    ring->status = status;
    ring->end = end;
    if (!ring->quarantined)
        store_status(ring, status, end, message);
}

static int quarantine(struct rp_ring *ring, uint64_t found)
{
    char message[256];
    snprintf(message, sizeof message,
             "rank %" PRIu32 ": the trainer's release word says %" PRIu64 "; expected %" PRIu64
             " to %" PRIu64 ": its control page was overwritten, so this ring has stopped",
             ring->geometry.rank, found, ring->release, ring->tail);
    store_status(ring, RP_RING_QUARANTINED, 0, message);
    ring->quarantined = true;
    return -RP_E_PROTOCOL;
}

int rp_ring_poll_release(struct rp_ring *ring)
{
    if (ring->quarantined)
        return -RP_E_PROTOCOL;
    if (!ring->control.data)
        return 0;
    uint64_t release = rp_a64_load_acquire(&control_words(ring)->release); /* PAIRS ring-release */
    bool lies = release - ring->release > ring->tail - ring->release;
    if (lies && !RP_DEFECT(trust_release_word))
        return quarantine(ring, release);
    ring->release = release;
    return 0;
}

uint8_t *rp_ring_slot(const struct rp_ring *ring, uint64_t batch)
{
    RP_ASSERT(batch - ring->release < ring->geometry.slots);
    uint64_t index = batch & (ring->geometry.slots - 1);
    return ring->data.data + RP_RING_SLOTS_OFFSET + index * ring->geometry.slot_bytes;
}

void rp_ring_publish(struct rp_ring *ring, uint64_t tail)
{
    RP_ASSERT(tail >= ring->tail && tail - ring->release <= ring->geometry.slots);
    struct rp_ring_engine *words = engine_words(ring);
    ring->tail = tail;
    rp_a64_store_release(&words->tail, tail); /* PAIRS ring-publish */
    if (!ring->control.data)
        return;
    rp_fence_seq_cst(); /* PAIRS ring-data */
    if (rp_a32_load_relaxed(&control_words(ring)->want_data))
        rp_futex_wake_all(rp_a64_low(&words->tail));
}

void rp_ring_want_space(struct rp_ring *ring, bool wanted)
{
    rp_a32_store_relaxed(&engine_words(ring)->want_space, wanted);
    if (wanted)
        rp_fence_seq_cst(); /* PAIRS ring-space */
}

void rp_ring_close(struct rp_ring *ring)
{
    rp_segment_close(&ring->control);
    rp_segment_close(&ring->data);
}
