/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a trainer's control page: steps of u8 action and a number.
 *
 * A release word is believed if and only if it is between the last one and the tail; after the
 * first other one the ring is quarantined until the next trainer, and no word of it moves. The
 * engine never writes to a slot that the trainer may read. */
#include "memory_segment.h"
#include "shm/ring.h"
#include "shm/waits.h"

#define SLOTS 4u
#define BATCH_MAX (UINT64_C(1) << 62) /* no ring comes near to where the numbers wrap */

static struct rp_ring ring;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct rp_geometry g = {
        .rows = 1, .seq_len = 4, .max_docs_per_row = 1, .world = 1, .slots = SLOTS};
    FUZZ_REQUIRE(rp_geometry_layout(&g, 0, RP_DTYPE_I32) > 0);
    FUZZ_REQUIRE(rp_ring_create(&ring, &g, 1, (struct rp_ring_identity){{1, 2}, 3}, 0, NULL) == 0);
    FUZZ_REQUIRE(rp_ring_attach_trainer(&ring, 0, 0, NULL) == 0);
    return 0;
}

/* Their sum is a number of JSON in stat, also when many trainers wrote them. */
static void check_waits(const struct rp_ring_control *control)
{
    static struct rp_waits waits;
    rp_waits_add(&waits, control);
    FUZZ_REQUIRE(rp_waits_count(&waits) <= INT64_MAX && waits.total_ns <= INT64_MAX);
    FUZZ_REQUIRE(rp_waits_percentile_ns(&waits, 99) <= waits.longest_ns);
}

static void step(unsigned what, uint64_t value)
{
    struct rp_ring_control *control = (struct rp_ring_control *)(void *)ring.seats[0].control.data;
    uint64_t release = ring.release, tail = ring.tail;
    bool was_quarantined = ring.quarantined;
    switch (what) {
    case 0: /* hostile: any word, and any of the other words */
        rp_a64_store_release(&control->release, value);
        rp_a32_store_relaxed(&control->want_data, (uint32_t)(value >> 7));
        rp_a64_store_relaxed(&control->heartbeat_ns, ~value);
        rp_a64_store_relaxed(&control->wait_total_ns, value);
        rp_a64_store_relaxed(&control->wait_longest_ns, value >> 9);
        rp_a64_store_relaxed(&control->wait_counts[value % RP_WAIT_BUCKETS], ~value);
        check_waits(control);
        break;
    case 1: /* near the legal values */
        rp_a64_store_release(&control->release, release + value % 8 - 1);
        break;
    case 2:
        if (tail - release < SLOTS && !was_quarantined)
            rp_ring_publish(&ring, tail + 1 + value % (SLOTS - (tail - release)));
        return;
    default:
        rp_ring_detach_trainer(&ring, 0);
        FUZZ_REQUIRE(
            rp_ring_attach_trainer(&ring, 0, what & 1 ? value % BATCH_MAX : release, NULL) == 0);
        FUZZ_REQUIRE(!ring.quarantined && rp_ring_poll_release(&ring) == 0);
        FUZZ_REQUIRE(ring.tail - ring.release <= SLOTS);
        return;
    }
    uint64_t word = rp_a64_load_relaxed(&control->release);
    bool legal = !was_quarantined && word - release <= tail - release;
    FUZZ_REQUIRE(rp_ring_poll_release(&ring) == (legal ? 0 : -RP_E_PROTOCOL));
    FUZZ_REQUIRE(ring.quarantined == !legal);
    FUZZ_REQUIRE(ring.release == (legal ? word : release) && ring.tail == tail);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    uint64_t first = fuzz_number(&input, 8) % BATCH_MAX;
    rp_ring_detach_trainer(&ring, 0);
    ring.release = ring.tail = ring.announced = first;
    FUZZ_REQUIRE(rp_ring_attach_trainer(&ring, 0, first, NULL) == 0);
    for (unsigned steps = 0; steps < 64 && input.left; steps++) {
        unsigned what = (unsigned)fuzz_number(&input, 1);
        step(what >= 240 ? what : what % 3, fuzz_number(&input, what & 64 ? 8 : 1));
        for (uint64_t batch = ring.tail; batch - ring.release < SLOTS; batch++) {
            uint64_t ahead = batch - ring.release;
            for (uint64_t k = 0; k < ring.tail - ring.release; k++)
                FUZZ_REQUIRE(rp_ring_slot(&ring, ring.release + k) != rp_ring_slot(&ring, batch));
            FUZZ_REQUIRE(ahead < SLOTS);
        }
    }
    return 0;
}
