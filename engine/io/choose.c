/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c — choice of a method by trial. The kernel's version and its sysctls do not suffice,
 * because seccomp filters and sandboxes refuse calls in their own ways. So a ring is made, and one
 * byte is read through it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/io.h"

const struct rp_io_method *rp_io_objects(void)
{
#ifdef RP_HAVE_CURL
    return &rp_io_method_http;
#else
    return NULL;
#endif
}

/* With 128 reads in flight instead of 64, io_uring wakes a reader that waits for a quarter of its
 * reads, and takes submissions, a third less often. That saves a quarter of the CPU time of an
 * engine that reads single documents past the page cache (bench/findings/reading.md). */
uint32_t rp_io_choose_depth(const struct rp_io_method *method, uint32_t asked_for)
{
    return asked_for ? asked_for : method == &rp_io_method_uring ? 128 : 64;
}

static int read_one_byte(struct rp_io *io, int fd, struct rp_error *error)
{
    static const char hint[] = "set `io: pread`, and report this kernel";
    char expected = 'r', found = 0;
    if (write(fd, &expected, 1) != 1)
        return rp_fail(error, -errno, NULL, "io_uring cannot be tried: %s", strerror(errno));
    struct rp_io_read read = {
        .object = fd, .bytes = 1, .bytes_needed = 1, .alignment = 1, .offset = 0, .buffer = &found};
    struct rp_io_done done;
    rp_io_submit(io, &read, 1);
    rp_io_wait(io, &done, 1, 1);
    if (done.result < 0)
        return rp_fail(error, done.result, hint,
                       "io_uring cannot be used: its first read failed: %s",
                       rp_strerror(done.result));
    if (found != expected)
        return rp_fail(error, -EIO, hint,
                       "io_uring cannot be used: its first read brought %#x, expected %#x",
                       (unsigned)found, (unsigned)expected);
    return 0;
}

static int try_uring(char *description, size_t description_bytes, struct rp_error *error)
{
    struct rp_io_options options = {.depth = 1};
    struct rp_io *io;
    int code = rp_io_open(&io, &rp_io_method_uring, &options, error);
    if (code < 0)
        return code;
    int fd = rp_memfd("ringpack-try-io");
    if (fd < 0)
        code = rp_fail(error, fd, NULL, "io_uring cannot be tried: memfd_create: %s",
                       strerror(-fd));
    else
        code = read_one_byte(io, fd, error);
    rp_io_describe(io, description, description_bytes);
    rp_io_close(io);
    if (fd >= 0)
        close(fd);
    return code;
}

int rp_io_choose(const char *name, const struct rp_io_method **method_out, char *why,
                 size_t why_bytes, struct rp_error *error)
{
    char description[96];
    struct rp_error refusal;
    if (name && !strcmp(name, rp_io_method_pread.name)) {
        snprintf(why, why_bytes, "pread: as configured");
        *method_out = &rp_io_method_pread;
        return 0;
    }
    if (name && strcmp(name, rp_io_method_uring.name) != 0)
        return rp_fail(error, -RP_E_USAGE, "leave it out to have it chosen",
                       "io method `%s`: expected io_uring or pread", name);
    int code = try_uring(description, sizeof description, &refusal);
    if (code == 0) {
        snprintf(why, why_bytes, "%s: %s", description,
                 name ? "as configured" : "tried, and it works");
        *method_out = &rp_io_method_uring;
        return 0;
    }
    if (name)
        return rp_fail(error, -RP_E_RESOURCE, refusal.hint, "%s", refusal.message);
    snprintf(why, why_bytes, "pread: %s%s%s", refusal.message, refusal.hint[0] ? "; " : "",
             refusal.hint);
    *method_out = &rp_io_method_pread;
    return 0;
}
