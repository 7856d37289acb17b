/* SPDX-License-Identifier: Apache-2.0 */
/* lists.c — lists of the rows of a file, which a worker process (_convert/lists.py) writes into a
 * nameless file: all values, the length of each list, and a tail. The worker is not trusted. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "column/values.h"
#include "convert/convert.h"
#include "convert/value_type.h"
#include "interrupt.h"

#define POLL_NS 2000000u

struct tail {
    char magic[4];
    uint32_t is_refused;
    char descr[8];
    uint32_t count, zero;
    uint64_t entries, documents; /* refused: bytes of the texts, 0 */
};
_Static_assert(sizeof(struct tail) == 40, "lists.py writes it");

static int fail_ended(const struct rp_values *values, int status, struct rp_error *error)
{
    return rp_fail(error, -RP_E_GONE, "its output above has the reason",
                   "%s: the worker process ended in the middle (wait status %d)", values->path,
                   status);
}

/* A message and a hint, each with a NUL, after the values that were read before. */
static int fail_refused(const struct rp_values *values, const struct tail *tail, uint64_t bytes,
                        struct rp_error *error)
{
    char text[4098] = {0};
    if (tail->entries > sizeof text - 2 || tail->entries > bytes)
        return fail_ended(values, 0, error);
    int code = rp_file_read_at(values->fd, values->path, text, (size_t)tail->entries,
                               bytes - tail->entries, error);
    const char *hint = text + strlen(text) + 1;
    return code < 0
               ? code
               : rp_fail(error, -RP_E_FORMAT,
                         *hint ? hint : "mend it, and type the same command again", "%s", text);
}

static int wait_for(const struct rp_values *values, pid_t child, struct rp_error *error)
{
    int status = 0, code = 0;
    pid_t ended = 0;
    while (ended == 0 || (ended < 0 && errno == EINTR)) {
        ended = waitpid(child, &status, code < 0 ? 0 : WNOHANG);
        if (ended == 0 && code == 0) {
            code = rp_interrupt_check("each file is whole or as it was", error);
            if (code < 0)
                kill(child, SIGKILL);
            rp_sleep_ns(POLL_NS);
        }
    }
    return code < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0)
               ? code
               : fail_ended(values, status, error);
}

static int take_tail(struct rp_values *values, bool bf16, struct rp_error *error)
{
    struct tail tail;
    struct stat info;
    uint64_t bytes, data = 0, lengths = 0;
    if (fstat(values->fd, &info) < 0 || info.st_size < (off_t)sizeof tail)
        return fail_ended(values, 0, error);
    bytes = (uint64_t)info.st_size - sizeof tail;
    int code = rp_file_read_at(values->fd, values->path, &tail, sizeof tail, bytes, error);
    if (code < 0)
        return code;
    if (memcmp(tail.magic, "RPCL", sizeof tail.magic) != 0)
        return fail_ended(values, 0, error);
    if (tail.is_refused)
        return fail_refused(values, &tail, bytes, error);
    uint32_t width = 0;
    tail.descr[sizeof tail.descr - 1] = 0;
    if (!rp_value_type(tail.descr, bf16, &values->type, &width) || !values->type.dtype)
        return rp_fail(error, -RP_E_FORMAT, "choose a type that a column has: --type",
                       "%s: values of type %s", values->path, tail.descr);
    code = rp_value_type_repeat(&values->type, tail.count, width, values->path, error);
    values->rows = tail.entries;
    values->documents = tail.documents;
    if (code == 0 &&
        (tail.count == 0 || !rp_mul_u64(tail.entries, values->type.bytes, &data) ||
         !rp_mul_u64(tail.documents, 8, &lengths) || data > bytes || lengths != bytes - data))
        return fail_ended(values, 0, error);
    values->lengths_at = data;
    return code;
}

int rp_values_open_lists(struct rp_values *values, const char *form,
                         const struct rp_values_choice *choice, struct rp_error *error)
{
    const char *const arguments[RP_WORKER_WORDS] = {"--lists", form, values->path, choice->field,
                                                    choice->type ? choice->type : ""};
    pid_t child;
    values->fd = open(choice->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (values->fd < 0)
        return rp_file_fail(error, choice->folder, "make a file in");
    values->has_lists = true;
    int code = rp_worker_spawn(&child, arguments, -1, values->fd, error);
    if (code == 0)
        code = wait_for(values, child, error);
    return code == 0 ? take_tail(values, choice->bf16, error) : code;
}
