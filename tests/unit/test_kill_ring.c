/* SPDX-License-Identifier: Apache-2.0 */
/* SIGKILL at any instruction of either end leaves a ring that the other end can continue with:
 * batches stay contiguous and whole, and a batch that is delivered twice was never returned. An
 * engine that publishes before it has written its slot must be caught by the same check. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/hash.h"
#include "shm/ring.h"

#define KILLS 300
#define SLOTS 4u
#define REPLICAS 3u
#define IDS 2048u

static struct rp_ring ring;
static unsigned seed;

static struct rp_ring_engine *engine_words(void)
{
    return (struct rp_ring_engine *)(void *)(ring.data.data + RP_PAGE_BYTES);
}

static uint64_t released_by(uint32_t seat)
{
    const struct rp_ring_control *words =
        (const struct rp_ring_control *)(const void *)ring.seats[seat].control.data;
    return rp_a64_load_acquire(&words->release);
}

static void make_ring(uint32_t replicas)
{
    struct rp_error error;
    struct rp_geometry g = {.rows = 1,
                            .seq_len = IDS,
                            .max_docs_per_row = 1,
                            .world = 1,
                            .micro_batches = 1,
                            .slots = SLOTS};
    assert_true(rp_geometry_layout(&g, 0, RP_DTYPE_I64) > 0);
    assert_int_equal(
        rp_ring_create(&ring, &g, replicas, (struct rp_ring_identity){{0}, 1}, 0, &error), 0);
    for (uint32_t seat = 0; seat < replicas; seat++)
        assert_int_equal(rp_ring_attach_trainer(&ring, seat, 0, &error), 0);
}

static struct rp_ring_view open_view(uint32_t seat, uint64_t first)
{
    struct rp_ring_view view;
    struct rp_error error;
    int code = rp_ring_view_open(&view, dup(ring.data.fd), dup(ring.seats[seat].control.fd), first,
                                 &error);
    RP_ASSERT(code == 0);
    view.replica = seat;
    return view;
}

/* The header carries the hash of the ids, so a slot that is half old and half new is seen. */
static void write_slot(uint64_t batch)
{
    uint8_t *slot = rp_ring_slot(&ring, batch);
    uint64_t *ids = (uint64_t *)(void *)(slot +
                                         ring.geometry.sections[RP_SECTION_INPUT_IDS].offset);
    for (uint64_t i = 0; i < IDS; i++)
        ids[i] = batch * IDS + i;
    struct rp_slot_header header = {.batch = batch,
                                    .generation = 1,
                                    .first_row = batch,
                                    .next_row = batch + 1,
                                    .rows = 1,
                                    .micro_batches = 1,
                                    .rows_real = 1,
                                    .tokens_real = IDS,
                                    .state_offset = RP_SLOT_STATE_OFFSET,
                                    .sum_len_squared = rp_hash64(ids, IDS * sizeof *ids)};
    memcpy(slot, &header, sizeof header);
}

static bool slot_is_whole(const struct rp_ring_view *view, const uint8_t *slot,
                          const struct rp_slot_header *header)
{
    const uint64_t *ids =
        (const uint64_t *)(const void *)(slot +
                                         view->geometry.sections[RP_SECTION_INPUT_IDS].offset);
    return ids[0] == header->batch * IDS &&
           rp_hash64(ids, IDS * sizeof *ids) == header->sum_len_squared;
}

enum engine { GOOD, PUBLISHES_FIRST, FREES_WITH_THE_FIRST };

static void free_with_the_first(void)
{
    for (uint32_t seat = 0; seat < ring.replicas; seat++)
        ring.release = rp_max_u64(ring.release, ring.seats[seat].release);
}

/* An engine that takes over from a killed one, with only the words in memory. */
static void produce(enum engine engine)
{
    ring.tail = rp_a64_load_acquire(&engine_words()->tail);
    for (uint32_t seat = 0; seat < ring.replicas; seat++)
        ring.seats[seat].release = released_by(seat);
    for (;;) {
        if (rp_ring_poll_release(&ring) < 0)
            _exit(1);
        if (engine == FREES_WITH_THE_FIRST)
            free_with_the_first();
        if (ring.tail - ring.release == SLOTS)
            continue;
        uint64_t batch = ring.tail;
        if (engine == PUBLISHES_FIRST) {
            rp_ring_publish(&ring, batch + 1);
            rp_sleep_ns(1000000); /* whatever else the machine does, somebody reads */
        }
        write_slot(batch);
        if (engine != PUBLISHES_FIRST)
            rp_ring_publish(&ring, batch + 1);
    }
}

/* A trainer that takes over; *cursor is its progress, as a checkpoint would keep it. */
static void consume(uint32_t seat, volatile uint64_t *cursor)
{
    struct rp_error error;
    struct rp_ring_view view = open_view(seat, released_by(seat));
    if (view.next > *cursor)
        _exit(1); /* returned before it was seen: a gap */
    for (;;) {
        const uint8_t *slot;
        struct rp_slot_header header;
        int code = rp_ring_view_take(&view, &slot, &header, &error);
        if (code == RP_RING_EMPTY)
            rp_ring_view_wait(&view, 1000000);
        if (code == RP_RING_EMPTY)
            continue;
        if (code != RP_RING_TAKEN || !slot_is_whole(&view, slot, &header) || header.batch > *cursor)
            _exit(2);
        if (header.batch == *cursor)
            *cursor = header.batch + 1;
        rp_ring_view_release(&view, header.batch + 1);
    }
}

static pid_t start_engine(enum engine engine)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        produce(engine);
    }
    return pid;
}

static pid_t start_trainer(uint32_t seat, volatile uint64_t *cursor)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        consume(seat, cursor);
    }
    return pid;
}

static void kill_one(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    if (!WIFSIGNALED(status))
        fail_msg("it ended by itself with status %d", WEXITSTATUS(status));
}

/* Kill engines in mid-work; take everything they publish. Returns how many batches were torn or out
 * of order. */
static uint64_t kill_engines(enum engine engine, uint64_t *taken)
{
    struct rp_error error;
    make_ring(1);
    struct rp_ring_view view = open_view(0, 0);
    uint64_t bad = 0;
    for (int i = 0; i < KILLS || view.next <= KILLS; i++) { /* a busy machine needs more */
        pid_t pid = start_engine(engine);
        uint64_t until = rp_now_ns() + 200000u + (uint64_t)rand_r(&seed) % 2500000u;
        for (bool killed = false;;) {
            const uint8_t *slot;
            struct rp_slot_header header;
            int code = rp_ring_view_take(&view, &slot, &header, &error);
            if (code == RP_RING_TAKEN) {
                bad += !slot_is_whole(&view, slot, &header);
                rp_ring_view_release(&view, view.next);
            } else if (code < 0) { /* the header is not this batch's */
                bad++;
                view.next = view.tail;
                rp_ring_view_release(&view, view.next);
            } else if (killed) {
                break;
            }
            if (!killed && rp_now_ns() >= until) {
                kill_one(pid);
                killed = true;
            }
        }
    }
    *taken = view.next;
    rp_ring_view_close(&view);
    rp_ring_close(&ring);
    return bad;
}

static void killed_engines_leave_whole_batches(void **state)
{
    (void)state;
    uint64_t taken;
    assert_int_equal(kill_engines(GOOD, &taken), 0);
    print_message("%llu batches, seed %u\n", (unsigned long long)taken, seed);
}

static void publishing_too_early_is_caught(void **state)
{
    (void)state;
    uint64_t taken;
    assert_true(kill_engines(PUBLISHES_FIRST, &taken) > 0);
}

static volatile uint64_t *make_cursors(void)
{
    void *page = mmap(NULL, RP_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
    assert_true(page != MAP_FAILED);
    return page;
}

static void sleep_a_little(void)
{
    rp_sleep_ns(200000u + (uint64_t)rand_r(&seed) % 2500000u);
}

/* Batches that were seen have been returned, but for a batch between the two; and none of them is
 * overwritten. */
static void check_dead(uint32_t seat, uint64_t seen)
{
    uint64_t released = released_by(seat);
    assert_true(released <= seen && seen - released <= 1);
    assert_true(rp_a64_load_acquire(&engine_words()->tail) <= released + SLOTS);
}

static void killed_trainers_lose_nothing(void **state)
{
    (void)state;
    make_ring(1);
    volatile uint64_t *cursor = make_cursors();
    pid_t engine = start_engine(GOOD);
    for (int i = 0; i < KILLS || *cursor <= KILLS; i++) {
        pid_t trainer = start_trainer(0, cursor);
        sleep_a_little();
        kill_one(trainer);
        check_dead(0, *cursor);
    }
    kill_one(engine);
    print_message("%llu batches, seed %u\n", (unsigned long long)*cursor, seed);
    munmap((void *)(uintptr_t)cursor, RP_PAGE_BYTES);
    rp_ring_close(&ring);
}

/* One of several at a ring is killed, in this seat and in that; the others stand still at its
 * position, and continue with its successor. */
static void a_killed_replica_loses_nothing(void **state)
{
    (void)state;
    make_ring(REPLICAS);
    volatile uint64_t *cursors = make_cursors();
    pid_t trainers[REPLICAS], engine = start_engine(GOOD);
    for (uint32_t seat = 0; seat < REPLICAS; seat++)
        trainers[seat] = start_trainer(seat, &cursors[seat]);
    for (uint32_t i = 0; i < KILLS || cursors[0] <= KILLS; i++) {
        uint32_t seat = i % REPLICAS;
        sleep_a_little();
        kill_one(trainers[seat]);
        check_dead(seat, cursors[seat]);
        trainers[seat] = start_trainer(seat, &cursors[seat]);
    }
    for (uint32_t seat = 0; seat < REPLICAS; seat++)
        kill_one(trainers[seat]); /* none has ended because of a batch that was not his next */
    kill_one(engine);
    print_message("%llu batches, seed %u\n", (unsigned long long)cursors[0], seed);
    munmap((void *)(uintptr_t)cursors, RP_PAGE_BYTES);
    rp_ring_close(&ring);
}

/* The control: the other seats are empty, and the first one does not wait for them. */
static void freeing_with_the_first_is_caught(void **state)
{
    (void)state;
    make_ring(REPLICAS);
    volatile uint64_t *cursors = make_cursors();
    pid_t engine = start_engine(FREES_WITH_THE_FIRST), first = start_trainer(0, &cursors[0]);
    while (cursors[0] <= 2 * SLOTS)
        sleep_a_little();
    for (uint32_t seat = 1; seat < REPLICAS; seat++) {
        int status;
        assert_true(waitpid(start_trainer(seat, &cursors[seat]), &status, 0) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    }
    kill_one(first);
    kill_one(engine);
    munmap((void *)(uintptr_t)cursors, RP_PAGE_BYTES);
    rp_ring_close(&ring);
}

int main(void)
{
    seed = (unsigned)time(NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_engines_leave_whole_batches),
        cmocka_unit_test(publishing_too_early_is_caught),
        cmocka_unit_test(killed_trainers_lose_nothing),
        cmocka_unit_test(a_killed_replica_loses_nothing),
        cmocka_unit_test(freeing_with_the_first_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
