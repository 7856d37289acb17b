/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory and the socket in it: one engine per name, leftovers of kills replaced,
 * strangers and planted files refused, descriptors passed, garbage survived. */
#include "listener_kit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "descriptor_zero.h"
#include "receive.h"

/* A connection with both its ends. */
struct ends {
    struct rp_listener listener;
    int engine, trainer;
};

static struct ends open_ends(void)
{
    struct ends ends = {.listener = open_listener("r")};
    ends.trainer = rp_socket_connect(run_dir, "r", &error);
    assert_true(ends.trainer >= 0);
    ends.engine = rp_listener_accept(&ends.listener, &error);
    assert_true(ends.engine >= 0);
    return ends;
}

static void close_ends(struct ends *ends)
{
    close(ends->engine);
    close(ends->trainer);
    rp_listener_close(&ends->listener);
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* ---- names ----------------------------------------------------------------------------------- */

static void one_engine_has_a_name(void **state)
{
    (void)state;
    char pid[32];
    struct stat status;
    struct rp_listener first = open_listener("run.1-a_B"), second;
    assert_int_equal(stat(run_dir, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0700);
    assert_int_equal(rp_listener_open(&second, run_dir, "run.1-a_B", &error), -RP_E_BUSY);
    snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    assert_non_null(strstr(error.message, pid));
    char lock[128];
    snprintf(lock, sizeof lock, "%s/run.1-a_B.lock", run_dir);
    assert_int_equal(stat(lock, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    struct rp_listener other = open_listener("other");
    rp_listener_close(&first);
    assert_int_equal(access(run_dir, F_OK), 0); /* another run lives there */
    first = open_listener("run.1-a_B");
    rp_listener_close(&first);
    rp_listener_close(&other);
    rp_listener_close(&other);
    assert_int_equal(rmdir(base), -1); /* run_dir existed when `other` was opened, so it stays */
    assert_int_equal(rmdir(run_dir), 0);
}

static void what_it_made_it_removes(void **state)
{
    (void)state;
    struct rp_listener listener = open_listener("r");
    rp_listener_close(&listener);
    assert_int_equal(access(run_dir, F_OK), -1);
    assert_int_equal(rp_socket_connect(run_dir, "r", &error), -RP_E_GONE);
    assert_non_null(strstr(error.hint, "ringpack serve"));
}

static void bad_names_are_refused(void **state)
{
    (void)state;
    struct rp_listener listener;
    char longest[RP_RUN_NAME_BYTES + 1];
    memset(longest, 'x', sizeof longest);
    longest[RP_RUN_NAME_BYTES] = '\0';
    const char *const names[] = {"",      ".",   "..",  ".hidden",  "a/b",
                                 "../up", "a b", "a\n", "\xc3\xa9", longest};
    for (size_t i = 0; i < RP_ARRAY_COUNT(names); i++) {
        assert_int_equal(rp_listener_open(&listener, run_dir, names[i], &error), -RP_E_USAGE);
        assert_int_equal(rp_socket_connect(run_dir, names[i], &error), -RP_E_USAGE);
    }
    longest[RP_RUN_NAME_BYTES - 1] = '\0';
    listener = open_listener(longest);
    rp_listener_close(&listener);
}

static void long_paths_work(void **state)
{
    (void)state;
    char deep[256], part[101] = {0};
    memset(part, 'd', 100); /* sun_path has 108 bytes */
    snprintf(deep, sizeof deep, "%s/%s/%s", base, part, part);
    struct rp_listener listener;
    assert_int_equal(rp_listener_open(&listener, deep, "r", &error), 0);
    int fd = rp_socket_connect(deep, "r", &error);
    assert_true(fd >= 0);
    close(fd);
    rp_listener_close(&listener);
}

/* An engine that is killed leaves socket and lock behind; the next start takes over without a word.
 */
static void leftovers_of_a_kill_are_replaced(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        int ready[2];
        assert_int_equal(pipe(ready), 0);
        fflush(NULL);
        pid_t engine = fork();
        if (engine == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            struct rp_listener listener;
            if (rp_listener_open(&listener, run_dir, "r", NULL) != 0 ||
                write(ready[1], "x", 1) != 1)
                _exit(1);
            pause();
        }
        char byte;
        struct rp_listener second;
        assert_int_equal(read(ready[0], &byte, 1), 1);
        assert_int_equal(rp_listener_open(&second, run_dir, "r", &error), -RP_E_BUSY);
        int fd = rp_socket_connect(run_dir, "r", &error);
        assert_true(fd >= 0);
        assert_false(rp_socket_hung_up(fd));
        kill(engine, SIGKILL);
        waitpid(engine, NULL, 0);
        assert_true(rp_socket_hung_up(fd));
        close(fd);
        assert_int_equal(rp_socket_connect(run_dir, "r", &error), -RP_E_GONE);
        close(ready[0]);
        close(ready[1]);
    }
    struct rp_listener next = open_listener("r");
    rp_listener_close(&next);
    assert_int_equal(rmdir(run_dir), 0); /* no other file was left in it */
}

/* Many starts at once: exactly one of them gets the name, and keeps it until the others have given
 * up. A second winner would wait with it, and the alarm would end the test. */
static void a_race_has_one_winner(void **state)
{
    (void)state;
    alarm(300);
    for (int round = 0; round < 20; round++) {
        enum { RACERS = 6 };
        int start[2], stop[2], status;
        char byte;
        assert_int_equal(pipe(start), 0);
        assert_int_equal(pipe(stop), 0);
        fflush(NULL);
        for (int i = 0; i < RACERS; i++) {
            if (fork() != 0)
                continue;
            struct rp_listener listener;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(start[1]);
            close(stop[1]);
            ssize_t end = read(start[0], &byte, 1);
            int code = rp_listener_open(&listener, run_dir, "r", NULL);
            if (code == 0)
                end += read(stop[0], &byte, 1);
            _exit(code == 0 && end == 0 ? 1 : code == -RP_E_BUSY ? 0 : 2);
        }
        close(start[1]);
        for (int i = 0; i < RACERS - 1; i++) {
            wait(&status);
            assert_int_equal(status, 0);
        }
        close(stop[1]);
        wait(&status);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        close(start[0]);
        close(stop[0]);
    }
    alarm(0);
}

static void planted_files_are_refused(void **state)
{
    (void)state;
    char path[128], target[128];
    struct rp_listener listener;
    snprintf(run_dir, sizeof run_dir, "%s/planted", base);
    snprintf(target, sizeof target, "%s/target", base);
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, run_dir), 0); /* for the directory */
    assert_true(rp_listener_open(&listener, run_dir, "r", &error) < 0);
    assert_non_null(strstr(error.message, "no symlink expected"));
    assert_true(rp_socket_connect(run_dir, "r", &error) < 0);
    assert_int_equal(unlink(run_dir), 0);

    assert_int_equal(mkdir(run_dir, 0700), 0);
    snprintf(path, sizeof path, "%s/r.lock", run_dir);
    snprintf(target, sizeof target, "%s/victim", base);
    assert_int_equal(symlink(target, path), 0); /* for the lock */
    assert_true(rp_listener_open(&listener, run_dir, "r", &error) < 0);
    assert_int_equal(access(target, F_OK), -1); /* not written through */
    assert_int_equal(unlink(path), 0);

    snprintf(path, sizeof path, "%s/r.sock", run_dir);
    assert_int_equal(symlink(target, path), 0); /* for the socket */
    assert_true(rp_listener_open(&listener, run_dir, "r", &error) < 0);
    assert_non_null(strstr(error.message, "r.sock is in the way"));
    assert_int_equal(unlink(path), 0);

    assert_int_equal(chmod(run_dir, 0777), 0); /* others could plant more */
    assert_int_equal(rp_listener_open(&listener, run_dir, "r", &error), -EPERM);
    assert_non_null(strstr(error.message, "0777 found"));
    assert_int_equal(chmod(run_dir, 0700), 0);
}

/* Only root can be two users. */
static void other_users_are_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    struct rp_listener listener = open_listener("r");
    assert_int_equal(chmod(base, 0755), 0);
    assert_int_equal(chmod(run_dir, 0755), 0);
    char path[128];
    snprintf(path, sizeof path, "%s/r.sock", run_dir);
    assert_int_equal(chmod(path, 0777), 0); /* so that only the check of the peer is left */
    fflush(NULL);
    pid_t stranger = fork();
    if (stranger == 0) {
        if (setresuid(65534, 65534, 65534) != 0)
            _exit(100);
        struct rp_error why;
        _exit(rp_socket_connect(run_dir, "r", &why) == -EPERM ? 0
                                                              : 1); /* the directory is not his */
    }
    int status;
    waitpid(stranger, &status, 0);
    assert_int_equal(status, 0);
    fflush(NULL);
    stranger = fork();
    if (stranger == 0) { /* and one without our library */
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        memcpy(address.sun_path, path, strlen(path));
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        char byte;
        if (setresuid(65534, 65534, 65534) != 0 ||
            connect(fd, (void *)&address, sizeof address) != 0)
            _exit(100);
        _exit(recv(fd, &byte, 1, 0) == 0 ? 0 : 1); /* hung up on */
    }
    while (waitpid(stranger, &status, WNOHANG) == 0) {
        assert_int_equal(rp_listener_accept(&listener, &error), -EAGAIN);
        rp_sleep_ns(1000000);
    }
    assert_int_equal(status, 0);
    rp_listener_close(&listener);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void messages_and_descriptors_arrive(void **state)
{
    (void)state;
    struct ends ends = open_ends();
    int pipes[2], fds[2];
    char buffer[64];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(receive_into(ends.engine, buffer, sizeof buffer, fds, -1, &error), -EAGAIN);
    assert_int_equal(receive_into(ends.engine, buffer, sizeof buffer, fds, 10, &error),
                     -RP_E_TIMEOUT);
    unsigned before = open_descriptors();
    assert_int_equal(rp_socket_send(ends.trainer,
                                    &(struct rp_message){.header = "head",
                                                         .header_bytes = 4,
                                                         .body = "body",
                                                         .body_bytes = 5,
                                                         .fds = pipes,
                                                         .fd_count = 2},
                                    &error),
                     0);
    assert_int_equal(receive_into(ends.engine, buffer, sizeof buffer, fds, 1000, &error), 9);
    assert_string_equal(buffer, "headbody");
    assert_true(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(fds[1], "!", 1), 1);
    assert_int_equal(read(pipes[0], buffer, 1), 1);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(open_descriptors(), before);
    close(ends.trainer);
    assert_int_equal(receive_into(ends.engine, buffer, sizeof buffer, fds, 1000, &error), 0);
    assert_int_equal(
        rp_socket_send(ends.engine, &(struct rp_message){.header = "x", .header_bytes = 1}, &error),
        -RP_E_GONE);
    ends.trainer = -1;
    close(pipes[0]);
    close(pipes[1]);
    close_ends(&ends);
}

static void descriptor_zero_is_as_good_as_any(void **state)
{
    (void)state;
    char buffer[64];
    int fds[2], aside = free_zero(), passed[2] = {aside, aside};
    struct ends ends = open_ends(); /* the directory of the listener */
    assert_false(zero_is_free());
    close_ends(&ends);
    assert_true(zero_is_free());
    int held = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ends = open_ends();
    assert_int_equal(close(held), 0);
    assert_int_equal(
        rp_socket_send(
            ends.trainer,
            &(struct rp_message){.header = "head", .header_bytes = 4, .fds = passed, .fd_count = 2},
            &error),
        0);
    assert_int_equal(receive_into(ends.engine, buffer, sizeof buffer, fds, 1000, &error), 4);
    assert_int_equal(fds[0], 0);
    assert_int_equal(close(fds[0]) | close(fds[1]), 0);
    close(ends.trainer);
    close(ends.engine);
    ends.trainer = rp_socket_connect(run_dir, "r", &error); /* 0 was its directory */
    assert_true(ends.trainer > 0 && zero_is_free());
    ends.engine = rp_listener_accept(&ends.listener, &error);
    assert_int_equal(ends.engine, 0);
    close_ends(&ends);
    give_back_zero(aside);
}

static void large_messages_arrive(void **state)
{
    (void)state;
    struct ends ends = open_ends();
    static uint8_t body[10000000], buffer[sizeof body + 8];
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (uint8_t)(i * 31);
    int fds[2], given[2] = {0, 1};
    unsigned before = open_descriptors();
    for (size_t bytes = 1; bytes <= sizeof body; bytes *= 10) {
        memset(buffer, 0, sizeof buffer);
        bool with = bytes % 7 > 3; /* at 1000 to 100000 */
        assert_int_equal(rp_socket_send(ends.trainer,
                                        &(struct rp_message){.header = "12345678",
                                                             .header_bytes = 8,
                                                             .body = body,
                                                             .body_bytes = bytes,
                                                             .fds = given,
                                                             .fd_count = with ? 2 : 0},
                                        &error),
                         0);
        assert_int_equal(receive_into(ends.engine, buffer, bytes + 8, fds, 1000, &error),
                         bytes + 8);
        assert_memory_equal(buffer + 8, body, bytes);
        assert_int_equal(fds[0] >= 0 && fds[1] >= 0, with);
        if (with) {
            close(fds[0]);
            close(fds[1]);
        }
        assert_int_equal(open_descriptors(), before);
    }
    static const uint8_t longest[RP_MESSAGE_BYTES_MAX];
    for (size_t head = 0; head <= 8; head += 8) { /* so long as a message may be, and longer */
        size_t bytes = sizeof longest - 8 + head;
        uint8_t *message;
        assert_int_equal(rp_socket_send(ends.trainer,
                                        &(struct rp_message){.header = "12345678",
                                                             .header_bytes = 8,
                                                             .body = longest,
                                                             .body_bytes = bytes},
                                        &error),
                         0);
        assert_int_equal(rp_socket_receive_message(ends.engine, &message, fds, 1000, &error),
                         head ? -RP_E_PROTOCOL : (int64_t)sizeof longest);
        free(message);
        assert_int_equal(open_descriptors(), before);
    }
    close_ends(&ends);
}

/* An engine has others to serve than a peer that sends requests and does not read. */
static void a_peer_that_does_not_read_is_not_waited_for(void **state)
{
    (void)state;
    int ends[2], code = 0;
    char text[4096] = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    for (int i = 0; code == 0 && i < 100000; i++)
        code = rp_socket_send(
            ends[0], &(struct rp_message){.header = text, .header_bytes = sizeof text}, &error);
    assert_int_equal(code, -EAGAIN);
    close(ends[0]);
    close(ends[1]);
}

/* More descriptors than the protocol has: taken, closed and refused, and none leaks. */
static void surplus_descriptors_do_not_leak(void **state)
{
    (void)state;
    struct ends ends = open_ends();
    unsigned before = open_descriptors();
    for (unsigned count = 3; count <= 100; count += 7) {
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(100 * sizeof(int))] = {0};
        struct iovec part = {"x", 1};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = CMSG_SPACE(count * sizeof(int))};
        struct cmsghdr *entry = CMSG_FIRSTHDR(&message);
        entry->cmsg_level = SOL_SOCKET;
        entry->cmsg_type = SCM_RIGHTS;
        entry->cmsg_len = CMSG_LEN(count * sizeof(int));
        for (unsigned i = 0; i < count; i++)
            memcpy(CMSG_DATA(entry) + i * sizeof(int), &ends.trainer, sizeof(int));
        assert_int_equal(sendmsg(ends.trainer, &message, 0), 1);
        char buffer[8];
        int fds[2];
        assert_int_equal(receive_into(ends.engine, buffer, 8, fds, 1000, &error), -RP_E_PROTOCOL);
        assert_int_equal(fds[0], -1);
        assert_int_equal(open_descriptors(), before);
    }
    close_ends(&ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_engine_has_a_name),
        cmocka_unit_test(what_it_made_it_removes),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(long_paths_work),
        cmocka_unit_test(leftovers_of_a_kill_are_replaced),
        cmocka_unit_test(a_race_has_one_winner),
        cmocka_unit_test(other_users_are_refused),
        cmocka_unit_test(messages_and_descriptors_arrive),
        cmocka_unit_test(descriptor_zero_is_as_good_as_any),
        cmocka_unit_test(large_messages_arrive),
        cmocka_unit_test(a_peer_that_does_not_read_is_not_waited_for),
        cmocka_unit_test(surplus_descriptors_do_not_leak),
        cmocka_unit_test(planted_files_are_refused),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
