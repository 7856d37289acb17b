/* SPDX-License-Identifier: Apache-2.0 */
/* read_worker.c — a column from a form that has a library in Python (Parquet, Arrow, Lance): a
 * worker process reads it. It writes frames: u32 kind, u32 count, then `count` numbers of 8 bytes;
 * the kind is the type of a column, or one of those below. The worker is not trusted. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "annotate/annotate.h"
#include "convert/convert.h"
#include "interrupt.h"

#define KIND_END 255u     /* no more; count 0 */
#define KIND_REFUSED 254u /* count: bytes of a message and a hint, each with a NUL */
#define COUNT_MAX 65536u

struct worker {
    pid_t child;
    int pipe;
    const char *path;
};

static int fail_ended(struct worker *worker, struct rp_error *error)
{
    int status = 0, code = rp_interrupt_check(RP_ANNOTATE_IS_SAFE, error);
    if (code < 0)
        return code;
    kill(worker->child, SIGKILL);
    while (waitpid(worker->child, &status, 0) < 0 && errno == EINTR)
        ;
    worker->child = 0;
    return rp_fail(error, -RP_E_GONE, "its output above has the reason",
                   "%s: the worker process ended in the middle (wait status %d)", worker->path,
                   status);
}

static int receive(struct worker *worker, void *to, size_t bytes, struct rp_error *error)
{
    for (size_t done = 0; done < bytes;) {
        struct pollfd wanted = {.fd = worker->pipe, .events = POLLIN};
        int ready = poll(&wanted, 1, 100);
        if (rp_interrupted())
            return fail_ended(worker, error);
        if (ready <= 0)
            continue;
        ssize_t got = read(worker->pipe, (char *)to + done, bytes - done);
        if (got == 0 || (got < 0 && errno != EINTR))
            return fail_ended(worker, error);
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

static int receive_refusal(struct worker *worker, uint32_t bytes, struct rp_error *error)
{
    char text[4098] = {0};
    if (bytes > sizeof text - 2)
        return fail_ended(worker, error);
    int code = receive(worker, text, bytes, error);
    const char *hint = text + strlen(text) + 1;
    return code < 0 ? code
                    : rp_fail(error, -RP_E_FORMAT, hint[0] ? hint : RP_ANNOTATE_MEND, "%s", text);
}

static int receive_all(struct rp_gathered *values, struct worker *worker, struct rp_error *error)
{
    static uint64_t words[COUNT_MAX];
    uint64_t row = 0;
    for (;;) {
        uint32_t head[2];
        int code = receive(worker, head, sizeof head, error);
        if (code < 0 || (head[0] == KIND_END && head[1] == 0))
            return code;
        if (head[0] == KIND_REFUSED)
            return receive_refusal(worker, head[1], error);
        if (head[0] == 0 || head[0] >= RP_INDEX_COLUMN_TYPE_COUNT || head[1] > COUNT_MAX)
            return fail_ended(worker, error);
        code = receive(worker, words, 8 * (size_t)head[1], error);
        for (uint32_t i = 0; code == 0 && i < head[1]; i++)
            code = rp_gathered_add(values, (enum rp_index_column_type)head[0], words[i],
                                   worker->path, row++, error);
        if (code < 0)
            return code;
    }
}

int rp_annotate_read_worker(struct rp_gathered *values, const char *path, const char *form,
                            struct rp_error *error)
{
    const char *const arguments[RP_WORKER_WORDS] = {"--values", form, path, values->field};
    struct worker worker = {.path = path};
    int ends[2], status;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return rp_fail(error, -errno, NULL, "cannot make a pipe: %s", strerror(errno));
    worker.pipe = ends[0];
    int code = rp_worker_spawn(&worker.child, arguments, -1, ends[1], error);
    close(ends[1]);
    if (code == 0)
        code = receive_all(values, &worker, error);
    close(worker.pipe);
    if (worker.child > 0) {
        if (code < 0)
            kill(worker.child, SIGKILL);
        while (waitpid(worker.child, &status, 0) < 0 && errno == EINTR)
            ;
    }
    return code;
}
