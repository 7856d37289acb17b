/* SPDX-License-Identifier: Apache-2.0 */
/* command.c — run a shell command with a time limit, and read its output. */
#include "object/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/spawn.h"

#define OUTPUT_BYTES_MAX (64u << 10)
#define POLL_MS 20
#define SECOND_NS UINT64_C(1000000000)

struct running {
    const struct rp_command *command;
    pid_t pid;
    int output; /* our end of a pipe; -1: the command has closed its own */
    char *text; /* [OUTPUT_BYTES_MAX] */
    size_t bytes;
};

static void read_some(struct running *it)
{
    ssize_t got = 1;
    while (got > 0 && it->bytes < OUTPUT_BYTES_MAX - 1) {
        got = read(it->output, it->text + it->bytes, OUTPUT_BYTES_MAX - 1 - it->bytes);
        it->bytes += got > 0 ? (size_t)got : 0;
    }
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    close(it->output);
    it->output = -1;
}

/* Wait for the command to end. 0: *status is its status; -1 if SIGCHLD is ignored, so that its
 * status is unknown. */
static int follow(struct running *it, int *status, struct rp_error *error)
{
    const struct rp_command *command = it->command;
    uint64_t end_ns = rp_now_ns() + command->limit_s * SECOND_NS;
    for (;;) {
        struct pollfd output = {.fd = it->output, .events = POLLIN};
        if (it->output < 0)
            rp_sleep_ns(POLL_MS * 1000000u);
        else if (poll(&output, 1, POLL_MS) > 0)
            read_some(it);
        pid_t ended = waitpid(it->pid, status, WNOHANG);
        if (ended == it->pid || (ended < 0 && errno == ECHILD)) {
            if (it->output >= 0)
                read_some(it); /* a child of it may hold the pipe; its output does not count */
            *status = ended < 0 ? -1 : *status;
            return 0;
        }
        bool is_late = rp_now_ns() >= end_ns;
        if (!is_late && !rp_stopper_asks(&command->stopper))
            continue;
        (void)rp_spawn_kill(it->pid);
        (void)waitpid(it->pid, status, 0);
        return is_late ? rp_fail(error, -RP_E_TIMEOUT, "run it by hand to see where it waits",
                                 "credentials: %s had not ended after %u s, and was killed",
                                 command->name, command->limit_s)
                       : rp_fail(error, -RP_E_STOPPED, "run the command again", "interrupted");
    }
}

static int start(struct running *it, struct rp_error *error)
{
    char shell[] = "/bin/sh", flag[] = "-c";
    char *line = strdup(it->command->line);
    char *const words[] = {shell, flag, line, NULL};
    int ends[2] = {-1, -1};
    int failed = line ? 0 : ENOMEM;
    if (!failed && pipe2(ends, O_CLOEXEC) < 0)
        failed = errno;
    if (!failed) {
        const struct rp_spawn what = {shell, words, environ, ends[1], false};
        (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
        failed = rp_spawn(&it->pid, &what);
        close(ends[1]);
        it->output = ends[0];
    }
    free(line);
    if (!failed)
        return 0;
    if (it->output >= 0)
        close(it->output);
    it->output = -1;
    return rp_fail(error, -failed, NULL, "credentials: %s cannot be started: %s", it->command->name,
                   rp_strerror(-failed));
}

int rp_command_output(const struct rp_command *command, char **text_out, struct rp_error *error)
{
    struct running it = {.command = command, .output = -1};
    int status = 0;
    it.text = rp_calloc(1, OUTPUT_BYTES_MAX);
    int code = it.text ? start(&it, error) : rp_fail(error, -ENOMEM, NULL, "out of memory");
    if (code == 0)
        code = follow(&it, &status, error);
    if (it.output >= 0)
        close(it.output);
    if (code == 0 && status > 0)
        code = rp_fail(error, -RP_E_RESOURCE, "run it by hand to see why",
                       "credentials: %s failed (%s %d)", command->name,
                       WIFSIGNALED(status) ? "signal" : "status",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (it.text && code < 0) {
        explicit_bzero(it.text, it.bytes);
        free(it.text);
        it.text = NULL;
    }
    *text_out = it.text;
    return code;
}
