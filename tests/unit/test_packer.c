/* SPDX-License-Identifier: Apache-2.0 */
/* The consequences of the death of a packer process: a crash ends the engine at once, and so does
 * the 11th death at one ticket. After any other death the process is replaced. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "patience.h"

#include "flow/packer.h"

#define RINGS 2u
#define TICKETS 8u
#define BATCH 5u

struct bench {
    struct rp_arena arena;
    struct rp_pack_plan plan;
    struct rp_packer packer;
};

static void set_phase(struct bench *bench, uint64_t ticket, enum rp_ticket_phase phase)
{
    rp_a64_store_release(&rp_arena_ticket(&bench->arena, ticket)->state,
                         rp_ticket_word(ticket, phase));
}

/* Each ticket has a transfer for each ring, whose tokens it reads itself; no packer lives to see a
 * ticket that is READY. */
static void bench_open(struct bench *bench)
{
    struct rp_error error;
    *bench = (struct bench){0};
    const struct rp_arena_sizes sizes = {.ring_count = RINGS,
                                         .slot_count = TICKETS,
                                         .data_bytes = 4096,
                                         .state_count = 16,
                                         .state_bytes = 64};
    if (rp_arena_create(&bench->arena, false, &sizes, &error) != 0)
        fail_msg("%s", error.message);
    for (uint64_t t = 0; t < TICKETS; t++) {
        struct rp_ticket *ticket = rp_arena_ticket(&bench->arena, t);
        *ticket = (struct rp_ticket){.batch = BATCH, .transfer_count = RINGS};
        for (uint32_t ring = 0; ring < RINGS; ring++)
            ticket->transfers[ring] = (struct rp_transfer){.ring = ring, .loaded_by = t};
        set_phase(bench, t, RP_TICKET_PLANNED);
    }
    for (uint32_t ring = 0; ring < RINGS; ring++)
        rp_a64_store_relaxed(&bench->arena.free_until[ring], BATCH + 1);
    bench->plan = (struct rp_pack_plan){
        .arena = &bench->arena, .packers = 1, .wake_fd = eventfd(0, EFD_NONBLOCK)};
    bench->packer = (struct rp_packer){.plan = &bench->plan, .pidfd = -1};
}

static void bench_close(struct bench *bench)
{
    close(bench->plan.wake_fd);
    rp_arena_close(&bench->arena);
}

/* The verdict on the death of a packer by this signal. It dies while it waits for its first ticket,
 * which is in phase `then` when the death is judged: READY as if it had died of packing. */
static int judge_kill(struct bench *bench, int number, enum rp_ticket_phase then,
                      struct rp_error *error)
{
    uint64_t ticket = rp_a64_load_relaxed(&bench->arena.words->retired);
    if (rp_packer_start(&bench->packer, true, error) != 0)
        fail_msg("%s", error->message);
    assert_int_equal(kill(bench->packer.pid, number), 0);
    struct pollfd entry = {.fd = bench->packer.pidfd, .events = POLLIN};
    assert_int_equal(poll(&entry, 1, PATIENCE_MS), 1);
    set_phase(bench, ticket, then);
    int code = rp_packer_judge_death(&bench->packer, error);
    set_phase(bench, ticket, RP_TICKET_PLANNED);
    rp_packer_join(&bench->packer);
    return code;
}

static void must_be_replaced(struct bench *bench, unsigned death, enum rp_ticket_phase then)
{
    struct rp_error error = {0};
    if (judge_kill(bench, SIGKILL, then, &error) != 0)
        fail_msg("death %u: %s", death, error.message);
}

/* Its replacement would die as well. The message names the signal, and the next step. */
static void a_packer_that_dies_of_a_ticket_is_given_up(void **state)
{
    (void)state;
    struct bench bench;
    struct rp_error error = {0};
    bench_open(&bench);
    for (unsigned i = 0; i < 10; i++)
        must_be_replaced(&bench, i, RP_TICKET_READY);
    assert_int_equal(judge_kill(&bench, SIGKILL, RP_TICKET_READY, &error), -EIO);
    assert_non_null(
        strstr(error.message, "expected at most 10, found 11, the last one by signal 9"));
    assert_non_null(strstr(error.hint, "delivered and saved rows are valid; `dmesg | tail`"));
    bench_close(&bench);
}

static void deaths_at_other_tickets_are_not_counted(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    for (unsigned i = 0; i < 30; i++) {
        rp_a64_store_release(&bench.arena.words->retired, i / 10);
        must_be_replaced(&bench, i, RP_TICKET_READY);
    }
    bench_close(&bench);
}

/* For reads, for another ticket's reads, and for room in one of the rings. */
static void deaths_of_a_packer_that_waits_are_not_counted(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    for (unsigned i = 0; i < 30; i++)
        must_be_replaced(&bench, i, RP_TICKET_PLANNED);
    rp_arena_ticket(&bench.arena, 0)->transfers[RINGS - 1].loaded_by = 1;
    for (unsigned i = 0; i < 30; i++)
        must_be_replaced(&bench, i, RP_TICKET_READY);
    rp_arena_ticket(&bench.arena, 0)->transfers[RINGS - 1].loaded_by = 0;
    rp_a64_store_release(&bench.arena.free_until[RINGS - 1], BATCH);
    for (unsigned i = 0; i < 30; i++)
        must_be_replaced(&bench, i, RP_TICKET_READY);
    bench_close(&bench);
}

static void a_crash_is_final_at_once(void **state)
{
    (void)state;
    static const int crashes[] = {SIGABRT, SIGSYS, SIGTRAP}; /* ASan handles the others */
    void (*of_cmocka)(int) = signal(SIGSYS, SIG_DFL); /* a packer would inherit its handler */
    struct bench bench;
    struct rp_error error = {0};
    bench_open(&bench);
    for (size_t i = 0; i < RP_ARRAY_COUNT(crashes); i++) {
        assert_int_equal(judge_kill(&bench, crashes[i], RP_TICKET_READY, &error), -EIO);
        assert_non_null(strstr(error.message, strsignal(crashes[i])));
    }
    bench_close(&bench);
    signal(SIGSYS, of_cmocka);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packer_that_dies_of_a_ticket_is_given_up),
        cmocka_unit_test(deaths_at_other_tickets_are_not_counted),
        cmocka_unit_test(deaths_of_a_packer_that_waits_are_not_counted),
        cmocka_unit_test(a_crash_is_final_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
