/* SPDX-License-Identifier: Apache-2.0 */
/* The word to the service manager that the engine is ready: it waits for room in the manager's
 * queue, and a manager that is not there costs a warning. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/notify.h"

#define OTHERS_MAX 1000

static void *notify(void *argument)
{
    rp_notify_ready();
    return argument;
}

/* An abstract socket: there is no file to remove. */
static struct sockaddr_un name_socket(socklen_t *bytes)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char *name = address.sun_path;
    int length = snprintf(name, sizeof address.sun_path, "@rp-test-notify-%d", (int)getpid());
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    name[0] = '\0';
    *bytes = (socklen_t)offsetof(struct sockaddr_un, sun_path) + (socklen_t)length;
    return address;
}

/* Send until a new socket cannot: sends are also limited by the socket's own buffer. */
static size_t fill_queue(const struct sockaddr_un *address, socklen_t bytes, int *others)
{
    size_t count = 0;
    for (bool has_room = true; has_room; count++) {
        assert_true(count < OTHERS_MAX);
        others[count] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(others[count], (const struct sockaddr *)address, bytes), 0);
        has_room = false;
        while (send(others[count], "other", 5, MSG_DONTWAIT) == 5)
            has_room = true;
        assert_int_equal(errno, EAGAIN);
    }
    return count;
}

static void a_full_queue_is_waited_for(void **state)
{
    static const struct timeval patience = {.tv_sec = 30};
    (void)state;
    socklen_t bytes;
    struct sockaddr_un address = name_socket(&bytes);
    int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int others[OTHERS_MAX];
    pthread_t thread;
    char text[16] = "";
    assert_int_equal(bind(manager, (struct sockaddr *)&address, bytes), 0);
    size_t other_count = fill_queue(&address, bytes, others);
    assert_int_equal(pthread_create(&thread, NULL, notify, NULL), 0);
    rp_sleep_ns(50000000); /* enough for one that does not wait to be lost */
    setsockopt(manager, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ssize_t got = 5;
    while (got == 5)
        got = recv(manager, text, sizeof text, 0);
    assert_int_equal(got, 7);
    assert_memory_equal(text, "READY=1", 7);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < other_count; i++)
        close(others[i]);
    close(manager);
}

static void a_manager_that_is_not_there_is_not_waited_for(void **state)
{
    (void)state;
    socklen_t bytes;
    (void)name_socket(&bytes);
    rp_notify_ready();
    unsetenv("NOTIFY_SOCKET");
    rp_notify_ready();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_queue_is_waited_for),
        cmocka_unit_test(a_manager_that_is_not_there_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
