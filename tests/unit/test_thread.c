/* SPDX-License-Identifier: Apache-2.0 */
/* A thread or a process without room is tried again; and a thread has the stack that we chose,
 * whatever the limit of the stack is. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/thread.h"

#define MS UINT64_C(1000000)

static struct {
    uint64_t room_at_ns; /* until then there is no room */
    int failure;
    unsigned calls;
} system_of_test;

static bool has_room(void)
{
    system_of_test.calls++;
    return rp_now_ns() >= system_of_test.room_at_ns;
}

static void have_no_room(uint64_t ns, int failure)
{
    system_of_test.room_at_ns = rp_now_ns() + ns;
    system_of_test.failure = failure;
    system_of_test.calls = 0;
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*main)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*main)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*main)(void *), void *argument)
{
    return has_room() ? __real_pthread_create(thread, attributes, main, argument)
                      : system_of_test.failure;
}

pid_t __real_fork(void);
pid_t __wrap_fork(void);
pid_t __wrap_fork(void)
{
    if (has_room())
        return __real_fork();
    errno = system_of_test.failure;
    return -1;
}

static void *say_stack(void *bytes)
{
    pthread_attr_t attributes;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attributes), 0);
    assert_int_equal(pthread_attr_getstacksize(&attributes, bytes), 0);
    pthread_attr_destroy(&attributes);
    return NULL;
}

static void a_thread_is_asked_for_again(void **state)
{
    (void)state;
    pthread_t thread;
    size_t bytes = 0;
    have_no_room(1000 * MS, EAGAIN);
    assert_int_equal(rp_thread_start(&thread, say_stack, &bytes), 0);
    pthread_join(thread, NULL);
    assert_true(system_of_test.calls > 1);
}

static void a_process_is_asked_for_again(void **state)
{
    (void)state;
    int status;
    have_no_room(1000 * MS, EAGAIN);
    pid_t pid = rp_fork();
    if (pid == 0)
        _exit(7);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 7);
}

static void patience_ends(void **state)
{
    (void)state;
    pthread_t thread;
    have_no_room(3600 * 1000 * MS, EAGAIN);
    assert_int_equal(rp_thread_try(&thread, say_stack, NULL), EAGAIN);
    assert_int_equal(system_of_test.calls, 1);
    assert_int_equal(rp_thread_start(&thread, say_stack, NULL), EAGAIN);
    assert_true(system_of_test.calls > 10); /* some 30, in five seconds */
}

static void another_failure_is_final(void **state)
{
    (void)state;
    pthread_t thread;
    have_no_room(1000 * MS, EPERM);
    assert_int_equal(rp_thread_start(&thread, say_stack, NULL), EPERM);
    assert_int_equal(system_of_test.calls, 1);
    assert_int_equal(rp_fork(), -1);
    assert_int_equal(errno, EPERM);
}

static void the_limit_of_the_stack_does_not_count(void **state)
{
    (void)state;
    struct rlimit before, small;
    pthread_t thread;
    size_t bytes = 0;
    have_no_room(0, 0);
    assert_int_equal(getrlimit(RLIMIT_STACK, &before), 0);
    small = before;
    small.rlim_cur = 64 << 10;
    assert_int_equal(setrlimit(RLIMIT_STACK, &small), 0);
    assert_int_equal(rp_thread_start(&thread, say_stack, &bytes), 0);
    assert_int_equal(setrlimit(RLIMIT_STACK, &before), 0);
    pthread_join(thread, NULL);
    assert_int_equal(bytes, RP_STACK_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_is_asked_for_again),
        cmocka_unit_test(a_process_is_asked_for_again),
        cmocka_unit_test(patience_ends),
        cmocka_unit_test(another_failure_is_final),
        cmocka_unit_test(the_limit_of_the_stack_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
