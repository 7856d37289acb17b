/* SPDX-License-Identifier: Apache-2.0 */
/* SIGKILL at any instruction of either end leaves a ring that the other end can go on with: batches
 * stay contiguous and whole, and what is delivered twice was never returned. An engine that
 * publishes before it has written its slot must be caught by the same check. */
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

#include "base/clock.h"
#include "base/hash.h"
#include "shm/ring.h"

#define KILLS 300
#define SLOTS 4u
#define IDS 2048u

static struct rp_ring ring;
static unsigned seed;

static struct rp_ring_engine *engine_words(void)
{
    return (struct rp_ring_engine *)(void *)(ring.data.data + RP_PAGE_BYTES);
}

static struct rp_ring_control *control_words(void)
{
    return (struct rp_ring_control *)(void *)ring.seats[0].control.data;
}

static void make_ring(void)
{
    struct rp_error error;
    struct rp_geometry g = {.rows = 1,
                            .seq_len = IDS,
                            .max_docs_per_row = 1,
                            .world = 1,
                            .micro_batches = 1,
                            .slots = SLOTS};
    assert_true(rp_geometry_layout(&g, 0, RP_DTYPE_I64) > 0);
    assert_int_equal(rp_ring_create(&ring, &g, 1, (struct rp_hash128){0}, 1, 0, &error), 0);
    assert_int_equal(rp_ring_attach_trainer(&ring, 0, 0, &error), 0);
}

static struct rp_ring_view open_view(uint64_t first)
{
    struct rp_ring_view view;
    struct rp_error error;
    int code = rp_ring_view_open(&view, dup(ring.data.fd), dup(ring.seats[0].control.fd), first,
                                 &error);
    RP_ASSERT(code == 0);
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

/* An engine that takes over from a killed one, knowing nothing but the words in memory. */
static void produce(bool publish_first)
{
    ring.tail = rp_a64_load_acquire(&engine_words()->tail);
    ring.release = ring.seats[0].release = rp_a64_load_acquire(&control_words()->release);
    for (;;) {
        if (rp_ring_poll_release(&ring) < 0)
            _exit(1);
        if (ring.tail - ring.release == SLOTS)
            continue;
        uint64_t batch = ring.tail;
        if (publish_first) {
            rp_ring_publish(&ring, batch + 1);
            rp_sleep_ns(1000000); /* whatever else the machine does, somebody looks */
        }
        write_slot(batch);
        if (!publish_first)
            rp_ring_publish(&ring, batch + 1);
    }
}

/* A trainer that takes over; *cursor is what it has seen, as a checkpoint would keep it. */
static void consume(volatile uint64_t *cursor)
{
    struct rp_error error;
    struct rp_ring_view view = open_view(rp_a64_load_acquire(&control_words()->release));
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

static pid_t start_engine(bool publish_first)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        produce(publish_first);
    }
    return pid;
}

static pid_t start_trainer(volatile uint64_t *cursor)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        consume(cursor);
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
static uint64_t kill_engines(bool publish_first, uint64_t *taken)
{
    struct rp_error error;
    make_ring();
    struct rp_ring_view view = open_view(0);
    uint64_t bad = 0;
    for (int i = 0; i < KILLS || view.next <= KILLS; i++) { /* a busy machine needs more */
        pid_t pid = start_engine(publish_first);
        uint64_t until = rp_now_ns() + 200000u + (uint64_t)rand_r(&seed) % 2500000u;
        for (bool killed = false;;) {
            const uint8_t *slot;
            struct rp_slot_header header;
            int code = rp_ring_view_take(&view, &slot, &header, &error);
            if (code == RP_RING_TAKEN) {
                bad += !slot_is_whole(&view, slot, &header);
                rp_ring_view_release(&view, view.next);
            } else if (code < 0) { /* the header is not that of this batch */
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
    assert_int_equal(kill_engines(false, &taken), 0);
    print_message("%llu batches, seed %u\n", (unsigned long long)taken, seed);
}

static void publishing_too_early_is_caught(void **state)
{
    (void)state;
    uint64_t taken;
    assert_true(kill_engines(true, &taken) > 0);
}

static void killed_trainers_lose_nothing(void **state)
{
    (void)state;
    make_ring();
    volatile uint64_t *cursor = mmap(NULL, RP_PAGE_BYTES, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t engine = start_engine(false);
    for (int i = 0; i < KILLS || *cursor <= KILLS; i++) {
        pid_t trainer = start_trainer(cursor);
        rp_sleep_ns(200000u + (uint64_t)rand_r(&seed) % 2500000u);
        kill_one(trainer);
        uint64_t released = rp_a64_load_acquire(&control_words()->release);
        assert_true(released <= *cursor &&
                    *cursor - released <= 1); /* seen, but killed before the return */
    }
    kill_one(engine);
    print_message("%llu batches, seed %u\n", (unsigned long long)*cursor, seed);
    munmap((void *)(uintptr_t)cursor, RP_PAGE_BYTES);
    rp_ring_close(&ring);
}

int main(void)
{
    seed = (unsigned)time(NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_engines_leave_whole_batches),
        cmocka_unit_test(publishing_too_early_is_caught),
        cmocka_unit_test(killed_trainers_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
