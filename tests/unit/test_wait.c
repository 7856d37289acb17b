/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: timeouts hold, no signal is lost, and a killed sleeper costs only a syscall. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpus.h"
#include "shm/wait.h"

#define LONG_NS 1000000000000ull /* a lost wake-up sleeps this long */
#define ALARM_S 300u             /* and this ends the test */
#define ROUNDS 20000u

static void sleeping_ends(void **state)
{
    (void)state;
    struct rp_a32 word = {5};
    uint64_t begin = rp_now_ns();
    rp_futex_wait(&word, 5, 20000000);
    assert_true(rp_now_ns() - begin >= 20000000);
    alarm(ALARM_S);
    rp_futex_wait(&word, 6, LONG_NS); /* holds another value: at once */
    rp_futex_wait(&word, 5, 0);       /* no time: at once */
    alarm(0);
    struct rp_a64 wide = {0x100000005ull};
    assert_int_equal(rp_a32_load_relaxed(rp_a64_low(&wide)), 5);
}

struct relay {
    struct rp_event turned;
    struct rp_a32 turn; /* even: main thread's */
};

static void pass_on(struct relay *relay, uint32_t mine)
{
    for (;;) {
        uint32_t ticket = rp_event_prepare(&relay->turned);
        if (rp_a32_load_acquire(&relay->turn) == mine)
            break;
        rp_event_sleep(&relay->turned, ticket, LONG_NS);
    }
    rp_event_cancel(&relay->turned);
    rp_a32_store_release(&relay->turn, mine + 1);
    rp_event_signal(&relay->turned);
}

static void *run_odd(void *argument)
{
    for (uint32_t i = 1; i < ROUNDS; i += 2)
        pass_on(argument, i);
    return NULL;
}

static void no_signal_is_lost(void **state)
{
    (void)state;
    struct relay relay = {0};
    pthread_t thread;
    alarm(ALARM_S);
    pthread_create(&thread, NULL, run_odd, &relay);
    for (uint32_t i = 0; i < ROUNDS; i += 2)
        pass_on(&relay, i);
    pthread_join(thread, NULL);
    alarm(0);
    assert_int_equal(rp_a32_load_relaxed(&relay.turn), ROUNDS);
    assert_int_equal(rp_a32_load_relaxed(&relay.turned.sleepers), 0);
}

struct crowd {
    struct rp_event opened;
    struct rp_a32 open, through;
};

static void *pass_gate(void *argument)
{
    struct crowd *crowd = argument;
    for (;;) {
        uint32_t ticket = rp_event_prepare(&crowd->opened);
        if (rp_a32_load_acquire(&crowd->open))
            break;
        rp_event_sleep(&crowd->opened, ticket, LONG_NS);
    }
    rp_event_cancel(&crowd->opened);
    rp_a32_add_relaxed(&crowd->through, 1);
    return NULL;
}

static void all_sleepers_wake(void **state)
{
    (void)state;
    alarm(ALARM_S);
    for (int round = 0; round < 100; round++) {
        struct crowd crowd = {0};
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, pass_gate, &crowd);
        if (round % 2)
            sched_yield();
        else
            rp_sleep_ns(200000);
        rp_a32_store_release(&crowd.open, 1);
        rp_event_signal(&crowd.opened);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(rp_a32_load_relaxed(&crowd.through), 4);
    }
    alarm(0);
}

static void works_across_processes_and_kills(void **state)
{
    (void)state;
    struct relay *relay = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                               0);
    fflush(NULL);
    pid_t sleeper = fork();
    if (sleeper == 0) {
        rp_event_sleep(&relay->turned, rp_event_prepare(&relay->turned), LONG_NS);
        _exit(0);
    }
    alarm(ALARM_S);
    while (rp_a32_load_acquire(&relay->turned.sleepers) == 0)
        sched_yield();
    rp_sleep_ns(5000000);
    kill(sleeper, SIGKILL);
    waitpid(sleeper, NULL, 0);
    assert_int_equal(rp_a32_load_relaxed(&relay->turned.sleepers), 1); /* too high, for ever */
    fflush(NULL);
    pid_t odd = fork();
    if (odd == 0) {
        run_odd(relay);
        _exit(0);
    }
    for (uint32_t i = 0; i < ROUNDS; i += 2)
        pass_on(relay, i);
    waitpid(odd, NULL, 0);
    alarm(0);
    munmap(relay, 4096);
}

/* The number of a wait's spins before it sleeps. */
static uint64_t count_looks(void)
{
    uint32_t spins = 0;
    uint64_t looks = 0;
    while (rp_spin(&spins, RP_SPIN_NS))
        looks++;
    assert_false(rp_spin(&spins, RP_SPIN_NS)); /* and stays ended */
    return looks;
}

/* It is queried once, so the query is another process's. */
static void where_there_is_one_cpu_nobody_spins(void **state)
{
    (void)state;
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        cpu_set_t one; /* many CPUs are online; this process may use one */
        CPU_ZERO(&one);
        CPU_SET((size_t)sched_getcpu(), &one);
        if (sched_setaffinity(0, sizeof one, &one) < 0)
            exit(2);
        exit(count_looks() != 0); /* also with the cached answer */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void spinning_is_bounded(void **state)
{
    (void)state;
    alarm(ALARM_S);
    if (rp_cpus_allowed() > 1)
        while (count_looks() < 2) /* again: on a busy machine 20 us may pass between two spins */
            continue;
    else
        assert_int_equal(count_looks(), 0);
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sleeping_ends),
        cmocka_unit_test(no_signal_is_lost),
        cmocka_unit_test(all_sleepers_wake),
        cmocka_unit_test(works_across_processes_and_kills),
        cmocka_unit_test(where_there_is_one_cpu_nobody_spins),
        cmocka_unit_test(spinning_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
