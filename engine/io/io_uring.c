/* SPDX-License-Identifier: Apache-2.0 */
/* io_uring.c — reads through a ring of the kernel's.
 *
 * submit only writes entries of the submission queue; one io_uring_enter in reap hands over all of
 * them and waits. Buffers inside the registered region are read with READ_FIXED (measured: 17 to
 * 40 % less processor time for each read, because the pages stay pinned), all others with READ.
 *
 * Refusals of the kernel, and the reactions:
 *
 *   setup flags     older kernels return EINVAL: try the next of `setups`. The last one has
 *                   no flag at all, because gVisor refuses even CLAMP.
 *
 *   registration    ENOMEM from RLIMIT_MEMLOCK (8 MiB by default, counted for each user; some
 *                   kernels count the rings as well): run unregistered.
 *
 *   any ring        open fails with the reason. pread replaces the first ring (choose.c) or a later
 *                   one (io.c).
 *
 * Invariants: reads in flight <= entries of the submission queue <= half the completion queue, so
 * there is always room in both. FEAT_NODROP is required, so no completion can be lost.
 *
 * Threads: SINGLE_ISSUER ties the ring to the thread that opened it. A child does not inherit the
 * mappings. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/errno_name.h"
#include "base/mem.h"
#include "io/io.h"

#define CHUNK_BYTES ((size_t)1 << 30) /* the kernel registers no larger buffer */
#define CHUNKS_MAX 1024

enum { TAKE_BATCH = 64, PAUSE_NS = 1000000 };

struct ring {
    struct io_uring uring;
    const char *setup; /* name of its flags */
    uint8_t *region;
    size_t region_bytes; /* 0 = not registered */
    int region_refusal;  /* -errno of the refused registration, or 0 */
};

static const struct {
    unsigned flags;
    const char *name;
} setups[] = {
    {IORING_SETUP_CLAMP | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN |
         IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, /* 6.1 */
     "DEFER_TASKRUN"},
    {IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN, "COOP_TASKRUN"}, /* 5.19 */
    {IORING_SETUP_CLAMP, "CLAMP"},
    {0, "no flags"},
};

static int try_setup_flags(struct ring *ring, unsigned entries)
{
    int code = -EINVAL;
    for (size_t i = 0; i < RP_ARRAY_COUNT(setups) && code == -EINVAL; i++) {
        code = io_uring_queue_init(entries, &ring->uring, setups[i].flags);
        ring->setup = setups[i].name;
    }
    if (code == 0 && !(ring->uring.features & IORING_FEAT_NODROP)) {
        io_uring_queue_exit(&ring->uring);
        code = -EOPNOTSUPP;
    }
    return code;
}

static void uring_use_region(void *self, void *region, size_t bytes)
{
    struct ring *ring = self;
    struct iovec chunks[CHUNKS_MAX];
    unsigned count = 0;
    RP_ASSERT(bytes > 0 && ring->region_bytes == 0);
    if (bytes > CHUNK_BYTES * CHUNKS_MAX) {
        ring->region_refusal = -E2BIG;
        return;
    }
    for (size_t at = 0; at < bytes; at += CHUNK_BYTES)
        chunks[count++] = (struct iovec){(uint8_t *)region + at,
                                         rp_min_u64(CHUNK_BYTES, bytes - at)};
    ring->region_refusal = io_uring_register_buffers(&ring->uring, chunks, count);
    if (ring->region_refusal == 0) {
        ring->region = region;
        ring->region_bytes = bytes;
    }
}

/* kernel.io_uring_disabled (6.6): 0 allows all, 1 only CAP_SYS_ADMIN and one group, 2 no process.
 */
static char disabled_setting(void)
{
    char setting = '0';
    int fd = open("/proc/sys/kernel/io_uring_disabled", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, &setting, 1) != 1)
            setting = '0';
        close(fd);
    }
    return setting;
}

static int explain_refusal(int code, struct rp_error *error)
{
    const char *reason = rp_strerror(code), *hint = NULL;
    char setting = disabled_setting();
    if (code == -EPERM && setting != '0') {
        reason = setting == '2' ? "kernel.io_uring_disabled is 2" : "kernel.io_uring_disabled is 1";
        hint = setting == '2'
                   ? "allow it with `sysctl -w kernel.io_uring_disabled=0`"
                   : "allow it with `sysctl -w kernel.io_uring_disabled=0`, or join the group of "
                     "kernel.io_uring_group";
    } else if (code == -EPERM || code == -EACCES) {
        reason = "a seccomp filter denies it, as containers often do";
        hint = "run the container with a seccomp profile that allows io_uring_setup, "
               "io_uring_enter and io_uring_register";
    } else if (code == -ENOSYS) {
        reason = "this kernel or sandbox has none";
        hint = "gVisor and kernels built without CONFIG_IO_URING have none: run on another one";
    } else if (code == -ENOMEM) {
        reason = "no memory for the ring";
        hint = "raise RLIMIT_MEMLOCK (`ulimit -l`) or the memory limit of the container";
    } else if (code == -EMFILE || code == -ENFILE) {
        reason = "no file descriptor is left";
        hint = "raise RLIMIT_NOFILE (`ulimit -n 65536`)";
    } else if (code == -EINVAL || code == -EOPNOTSUPP) {
        reason = "this kernel's io_uring is too old";
        hint = "run on Linux 5.15 or later";
    }
    return rp_fail(error, code, hint, "io_uring cannot be used: %s (%s)", reason,
                   rp_errno_name(-code));
}

static int uring_open(void **self, const struct rp_io_options *options, struct rp_error *error)
{
    struct ring *ring = rp_calloc(1, sizeof *ring);
    if (!ring)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a ring");
    int code = try_setup_flags(ring, options->depth);
    if (code < 0) {
        free(ring);
        return explain_refusal(code, error);
    }
    /* Both are optional: without them the ring is only slower. */
    (void)io_uring_ring_dontfork(&ring->uring);
    (void)io_uring_register_ring_fd(&ring->uring);
    *self = ring;
    return 0;
}

static void uring_close(void *self)
{
    struct ring *ring = self;
    io_uring_queue_exit(&ring->uring);
    free(ring);
}

static void prepare(const struct ring *ring, struct io_uring_sqe *sqe,
                    const struct rp_io_read *read)
{
    uint64_t start = (uintptr_t)read->buffer - (uintptr_t)ring->region; /* in front of it: huge */
    if (read->bytes && rp_range_inside(start, read->bytes, ring->region_bytes) &&
        start / CHUNK_BYTES == (start + read->bytes - 1) / CHUNK_BYTES)
        io_uring_prep_read_fixed(sqe, (int)read->object, read->buffer, read->bytes, read->offset,
                                 (int)(start / CHUNK_BYTES));
    else
        io_uring_prep_read(sqe, (int)read->object, read->buffer, read->bytes, read->offset);
    io_uring_sqe_set_data64(sqe, read->tag);
}

static int uring_submit(void *self, const struct rp_io_read *reads, unsigned count)
{
    struct ring *ring = self;
    unsigned taken = 0;
    for (; taken < count; taken++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
        if (!sqe)
            break;
        prepare(ring, sqe, &reads[taken]);
    }
    return (int)taken;
}

static unsigned take_completed(struct ring *ring, uint64_t *tags, int64_t *results, unsigned max)
{
    struct io_uring_cqe *entries[TAKE_BATCH];
    unsigned wanted = (unsigned)rp_min_u64(max, TAKE_BATCH);
    unsigned taken = io_uring_peek_batch_cqe(&ring->uring, entries, wanted);
    for (unsigned i = 0; i < taken; i++) {
        tags[i] = entries[i]->user_data;
        results[i] = entries[i]->res;
    }
    io_uring_cq_advance(&ring->uring, taken);
    return taken;
}

static int uring_reap(void *self, uint64_t *tags, int64_t *results, unsigned max, unsigned wait_min)
{
    struct ring *ring = self;
    unsigned taken = take_completed(ring, tags, results, max);
    while (io_uring_sq_ready(&ring->uring) || taken < wait_min || taken == 0) {
        unsigned missing = wait_min > taken ? wait_min - taken : 0;
        int code = missing ? io_uring_submit_and_wait(&ring->uring, missing)
                           : io_uring_submit_and_get_events(&ring->uring);
        RP_ASSERT(code >= 0 || code == -EINTR || code == -EAGAIN || code == -EBUSY);
        taken += take_completed(ring, tags + taken, results + taken, max - taken);
        if (taken >= wait_min)
            break;
        if (code == -EAGAIN) /* no memory for requests: only waiting helps */
            rp_sleep_ns(PAUSE_NS);
    }
    return (int)taken;
}

static void uring_describe(const void *self, char *text, size_t text_bytes)
{
    const struct ring *ring = self;
    if (ring->region_bytes)
        snprintf(text, text_bytes, "io_uring (%s), buffers registered", ring->setup);
    else if (ring->region_refusal)
        snprintf(text, text_bytes, "io_uring (%s), buffers not registered (%s)", ring->setup,
                 rp_errno_name(-ring->region_refusal));
    else
        snprintf(text, text_bytes, "io_uring (%s)", ring->setup);
}

const struct rp_io_method rp_io_method_uring = {
    .name = "io_uring",
    .open_object = rp_io_open_file,
    .close_object = rp_io_close_file,
    .open = uring_open,
    .close = uring_close,
    .use_region = uring_use_region,
    .submit = uring_submit,
    .reap = uring_reap,
    .describe = uring_describe,
};
