/* SPDX-License-Identifier: Apache-2.0 */
/* A ring gets new memory while packers and another replica's trainer are at work. The flow is a
 * fake, so that both do their worst at a chosen moment: when the copy of a save ends, which frees
 * slots. */
#define rp_engine_finish_copy fake_finish_copy
#define rp_engine_swap_ring fake_swap_ring
#define rp_engine_watch_packers fake_watch_packers
#define rp_flow_deliver fake_deliver
#define rp_flow_is_catching_up fake_is_catching_up
#define rp_flow_packed_end fake_packed_end
#define rp_flow_pause_packers fake_pause_packers
#define rp_flow_resume_packers fake_resume_packers
#include "server/rebuild.c"

#include "ring_pair.h"

#include <signal.h>

#define SLOTS 4u
#define REPLICAS 2u
#define RETURNS 0u /* the seat whose trainer has died and is back */
#define READS 1u   /* the seat whose trainer takes batches all the time */

static struct {
    struct rp_ring ring, fresh;
    struct rp_ring_view view; /* that READS has */
    struct rp_engine engine;
    uint64_t packed_end;
    bool copies; /* a save under way copies the ring, and keeps its released slots */
    bool is_paused;
} world;

/* Packers write whatever they may: all slots that are free. */
static void pack_all(void)
{
    assert_false(world.is_paused);
    for (; world.packed_end < world.ring.release + SLOTS; world.packed_end++)
        fill(&world.ring, world.packed_end);
}

static void take_and_release(void)
{
    struct rp_slot_header header;
    struct rp_error error;
    const uint8_t *slot;
    assert_int_equal(rp_ring_view_take(&world.view, &slot, &header, &error), RP_RING_TAKEN);
    (void)rp_ring_view_release(&world.view, world.view.next);
}

/* The trainer releases two batches, the hold on slots ends, and packers use the free ones. */
void fake_finish_copy(struct rp_engine *engine)
{
    (void)engine;
    if (!world.copies)
        return;
    world.copies = false;
    take_and_release();
    take_and_release();
    (void)rp_ring_poll_release(&world.ring);
    pack_all();
}

void fake_swap_ring(struct rp_engine *engine, uint32_t ring, const struct rp_ring *fresh)
{
    (void)engine;
    assert_int_equal(ring, 0);
    world.fresh = *fresh;
}

void fake_watch_packers(struct rp_engine *engine)
{
    (void)engine;
}

int fake_deliver(struct rp_flow *flow, struct rp_error *error)
{
    (void)flow, (void)error;
    return RP_FLOW_IDLE;
}

bool fake_is_catching_up(const struct rp_flow *flow, uint32_t ring)
{
    (void)flow, (void)ring;
    return false;
}

uint64_t fake_packed_end(const struct rp_flow *flow, uint32_t ring)
{
    (void)flow, (void)ring;
    assert_true(world.is_paused);
    return world.packed_end;
}

void fake_pause_packers(struct rp_flow *flow)
{
    (void)flow;
    world.is_paused = true;
}

int fake_resume_packers(struct rp_flow *flow, struct rp_error *error)
{
    (void)flow, (void)error;
    world.is_paused = false;
    return 0;
}

/* A ring of two replicas that has batches 0 to `tail`; the one that returns had released `position`
 * of them. */
static void world_open(uint64_t tail, uint64_t position)
{
    struct rp_error error;
    struct rp_geometry g = tiny(SLOTS);
    memset(&world, 0, sizeof world);
    int code = rp_ring_create(&world.ring, &g, REPLICAS,
                              (struct rp_ring_identity){{1, 2}, GENERATION}, 0, &error);
    for (uint64_t k = 0; k < tail && code == 0; k++)
        fill(&world.ring, k);
    if (code == 0)
        rp_ring_publish(&world.ring, world.packed_end = tail);
    if (code == 0)
        code = rp_ring_attach_trainer(&world.ring, READS, 0, &error);
    if (code == 0)
        code = rp_ring_view_open(&world.view, dup(world.ring.data.fd),
                                 dup(world.ring.seats[READS].control.fd), 0, &error);
    if (code != 0)
        fail_msg("%s", error.message);
    world.view.replica = READS;
    rp_ring_place_seat(&world.ring, RETURNS, position);
    world.engine.delivery.rings = &world.ring;
    world.engine.delivery.ring_count = 1;
    world.engine.delivery.state = RP_DELIVERY_RUNNING;
    world.engine.delivery.generation = GENERATION;
}

static void world_close(void)
{
    rp_ring_view_close(&world.view);
    rp_ring_close(&world.ring);
    rp_ring_close(&world.fresh);
}

/* The new ring has every batch that a replica needs, and the packed, unpublished ones. */
static void check_fresh(uint64_t release, uint64_t tail, uint64_t batch)
{
    assert_int_equal(world.fresh.release, release);
    assert_int_equal(world.fresh.tail, tail);
    assert_int_equal(world.fresh.seats[RETURNS].release, batch);
    assert_int_equal(world.fresh.seats[READS].release, world.ring.seats[READS].release);
    for (uint64_t k = release; k < world.packed_end; k++)
        assert_memory_equal(rp_ring_slot(&world.fresh, k), rp_ring_slot(&world.ring, k),
                            world.ring.geometry.slot_bytes);
}

static void rebuild(uint64_t batch)
{
    struct rp_error error;
    const struct rp_rebuild job = {.replica = RETURNS, .batch = batch};
    assert_true(can_rebuild_running(&world.engine.delivery, &job));
    if (rp_engine_rebuild(&world.engine, &job, &error) != 0)
        fail_msg("%s", error.message);
    assert_false(world.is_paused);
}

/* Before the copy of the save has ended, slots that the trainer has released are not free. So the
 * new ring may not begin before that: batches packed then would not fit into it. */
static void a_save_ends_while_a_ring_is_rebuilt(void **state)
{
    (void)state;
    for (uint64_t position = 2; position <= SLOTS; position++) {
        world_open(SLOTS, position);
        world.copies = true;
        rebuild(position);
        assert_int_equal(world.packed_end, SLOTS + 2);
        check_fresh(2, SLOTS, position);
        world_close();
    }
}

/* Without a save, for each place of the two trainers: packed batches come along. */
static void a_rebuilt_ring_has_what_is_packed(void **state)
{
    (void)state;
    for (uint64_t tail = 0; tail <= SLOTS; tail++)
        for (uint64_t batch = 0; batch <= tail; batch++)
            for (uint64_t position = batch; position <= tail; position++) {
                world_open(tail, position);
                pack_all();
                rebuild(batch);
                check_fresh(0, tail, batch);
                world_close();
            }
}

/* An assertion of the engine fails the test as one of its own does. */
static void has_aborted(int number)
{
    (void)number;
    _exit(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_ends_while_a_ring_is_rebuilt),
        cmocka_unit_test(a_rebuilt_ring_has_what_is_packed),
    };
    signal(SIGABRT, has_aborted);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
