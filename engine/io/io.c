/* SPDX-License-Identifier: Apache-2.0 */
/* io.c — interprets the raw results of all methods.
 *
 * Flow:   rp_io_submit         rp_io_wait ──► final result
 *              │                   ▲
 *              ▼                   │
 *            queue ──► method ──► settle
 *              ▲                   │ the rest of a short read, a refused or failed piece
 *              └───────────────────┘
 *
 * A read holds one flight from rp_io_submit until rp_io_wait returns it. Its next piece always
 * follows the bytes that have arrived, so a flight needs no list of holes.
 *
 * Decisions of settle by raw result:
 *
 *   0 bytes         the file ends here.
 *
 *   short           submit the rest. Only O_DIRECT reads end off the alignment, and only at the end
 *                   of the file; a read from such an offset would fail with EINVAL.
 *
 *   EAGAIN, EINTR,  retry (XFS and md return EAGAIN even for blocking files), with pauses after
 *   EBUSY, ENOMEM   10 refusals, and give up after about a second.
 *
 *   EIO             a direct read fails as a whole for one bad sector: halve the piece until it
 *                   isolates the bad sector, then retry three times. Bad bytes beyond bytes_needed
 *                   (slack of the alignment) are then never read.
 *
 *   other errors    are final.
 *
 * Invariant: flights = free + queued + at the method. */
#include "io/io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"

enum {
    DEPTH_MAX = 4096,
    REAP_BATCH = 64,
    PIECE_MIN_BYTES = 4096, /* no smaller: the unit in which disks and the page cache fail */
    EIO_RETRIES = 3,
    REFUSALS_AT_ONCE = 10, /* then pause between retries */
    REFUSALS_MAX = 1000,
    PAUSE_NS = 1000000,
};

struct flight {
    struct rp_io_read read; /* as submitted */
    uint32_t arrived;       /* bytes in the buffer, without a gap from its start */
    uint32_t asked;         /* bytes of the next piece */
    uint32_t piece_max;     /* halved by every EIO */
    uint32_t refusals;      /* in a row */
    uint32_t failures;      /* EIO in a row at the smallest piece */
};

struct rp_io {
    const struct rp_io_method *method;
    void *self;
    struct flight *flights;
    uint32_t depth;
    uint32_t *free; /* stack of flight numbers */
    uint32_t free_count;
    struct rp_io_read *queue; /* not yet taken by the method; tag = number of the flight */
    uint32_t queued;
    uint32_t at_method;
    bool pause; /* a flight is refused repeatedly */
    struct rp_io_counts counts;
};

/* A later ring may be refused although an earlier one works: some kernels charge rings to the
 * user's RLIMIT_MEMLOCK (measured on 6.18: 16 KiB for 128 reads), each ring takes a descriptor, and
 * io_uring may be disabled while an engine runs. The methods for files can replace each other at
 * any time, because their objects are plain descriptors. */
int rp_io_open_method(const struct rp_io_method **method, void **self,
                      const struct rp_io_options *options, struct rp_error *error)
{
    struct rp_error refusal;
    bool may_fall_back = options->may_fall_back && *method == &rp_io_method_uring;
    if (!may_fall_back)
        return (*method)->open(self, options, error);
    if (rp_io_method_uring.open(self, options, &refusal) == 0)
        return 0;
    if (options->refusal)
        *options->refusal = refusal;
    *method = &rp_io_method_pread;
    return rp_io_method_pread.open(self, options, error);
}

int rp_io_open(struct rp_io **io_out, const struct rp_io_method *method,
               const struct rp_io_options *options, struct rp_error *error)
{
    *io_out = NULL;
    uint32_t depth = options->depth;
    if (depth < 1 || depth > DEPTH_MAX)
        return rp_fail(error, -RP_E_USAGE, "leave io_depth out if in doubt",
                       "reads in flight (io_depth): expected 1 to %d, found %u", DEPTH_MAX, depth);
    struct rp_io *io = rp_calloc(1, sizeof *io);
    if (!io)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a reader");
    io->method = method;
    io->depth = depth;
    io->flights = rp_calloc(depth, sizeof *io->flights);
    io->free = rp_calloc(depth, sizeof *io->free);
    io->queue = rp_calloc(depth, sizeof *io->queue);
    int code = io->flights && io->free && io->queue
                   ? rp_io_open_method(&io->method, &io->self, options, error)
                   : rp_fail(error, -ENOMEM, NULL, "no memory for %u reads in flight", depth);
    if (code < 0) {
        io->method = NULL;
        rp_io_close(io);
        return code;
    }
    while (io->free_count < depth) {
        io->free[io->free_count] = depth - 1 - io->free_count;
        io->free_count++;
    }
    *io_out = io;
    return 0;
}

void rp_io_close(struct rp_io *io)
{
    if (!io)
        return;
    while (io->at_method) { /* the kernel owns their memory until then */
        uint64_t tags[REAP_BATCH];
        int64_t results[REAP_BATCH];
        int count = io->method->reap(io->self, tags, results, REAP_BATCH, 1);
        RP_ASSERT(count >= 0 && (uint32_t)count <= io->at_method);
        io->at_method -= (uint32_t)count;
    }
    if (io->method)
        io->method->close(io->self);
    free(io->queue);
    free(io->free);
    free(io->flights);
    free(io);
}

void rp_io_use_region(struct rp_io *io, void *region, size_t bytes)
{
    if (io->method->use_region)
        io->method->use_region(io->self, region, bytes);
}

uint32_t rp_io_room(const struct rp_io *io)
{
    return io->free_count;
}

uint32_t rp_io_in_flight(const struct rp_io *io)
{
    return io->depth - io->free_count;
}

uint32_t rp_io_at_server(const struct rp_io *io)
{
    return io->method->at_server ? io->method->at_server(io->self) : 0;
}

void rp_io_get_counts(const struct rp_io *io, struct rp_io_counts *counts)
{
    *counts = io->counts;
    if (io->method->retries)
        counts->retries += io->method->retries(io->self);
}

void rp_io_describe(const struct rp_io *io, char *text, size_t text_bytes)
{
    if (io->method->describe)
        io->method->describe(io->self, text, text_bytes);
    else
        snprintf(text, text_bytes, "%s", io->method->name);
}

/* Queue the next piece of a flight. */
static void enqueue(struct rp_io *io, uint32_t number)
{
    struct flight *flight = &io->flights[number];
    const struct rp_io_read *read = &flight->read;
    flight->asked = (uint32_t)rp_min_u64(read->bytes - flight->arrived, flight->piece_max);
    RP_ASSERT(io->queued < io->depth);
    io->queue[io->queued++] = (struct rp_io_read){
        .object = read->object,
        .bytes = flight->asked,
        .bytes_needed = flight->asked,
        .alignment = read->alignment,
        .is_second = read->is_second,
        .offset = read->offset + flight->arrived,
        .buffer = (uint8_t *)read->buffer + flight->arrived,
        .tag = number,
    };
}

static void dequeue(struct rp_io *io, uint32_t count)
{
    io->queued -= count;
    memmove(io->queue, io->queue + count, io->queued * sizeof *io->queue);
}

/* Hand the queue to the method. Reads that it does not take stay queued. Returns 0 or -errno. */
static int push(struct rp_io *io)
{
    while (io->queued) {
        int taken = io->method->submit(io->self, io->queue, io->queued);
        if (taken <= 0)
            return taken < 0 ? taken : -EAGAIN;
        RP_ASSERT((uint32_t)taken <= io->queued);
        io->at_method += (uint32_t)taken;
        dequeue(io, (uint32_t)taken);
    }
    return 0;
}

void rp_io_submit(struct rp_io *io, const struct rp_io_read *reads, unsigned count)
{
    RP_ASSERT(count <= io->free_count);
    for (unsigned i = 0; i < count; i++) {
        const struct rp_io_read *read = &reads[i];
        RP_ASSERT(read->bytes_needed <= read->bytes);
        RP_ASSERT(rp_is_pow2(read->alignment) && read->alignment <= PIECE_MIN_BYTES);
        uint64_t places = read->offset | read->bytes | (uintptr_t)read->buffer;
        RP_ASSERT((places & (read->alignment - 1)) == 0);
        uint32_t number = io->free[--io->free_count];
        io->flights[number] = (struct flight){.read = *read, .piece_max = UINT32_MAX};
        enqueue(io, number);
    }
    (void)push(io); /* rp_io_wait retries a refused submit */
}

static uint32_t half_of(uint32_t bytes)
{
    return (uint32_t)rp_max_u64(rp_align_down(bytes / 2, PIECE_MIN_BYTES), PIECE_MIN_BYTES);
}

/* Plan a retry. Returns false if the error is final. */
static bool retry(struct rp_io *io, struct flight *flight, int64_t result)
{
    switch (-result) {
    case EAGAIN:
    case EINTR:
    case EBUSY:
    case ENOMEM:
        if (++flight->refusals > REFUSALS_MAX)
            return false;
        io->pause |= flight->refusals > REFUSALS_AT_ONCE;
        break;
    case EIO:
        if (flight->asked > PIECE_MIN_BYTES)
            flight->piece_max = half_of(flight->asked);
        else if (++flight->failures > EIO_RETRIES)
            return false;
        break;
    default:
        return false;
    }
    io->counts.retries++;
    return true;
}

/* Interpret a raw result. Returns true if the read is finished, with its result in *final. */
static bool settle(struct rp_io *io, struct flight *flight, int64_t result, int *final)
{
    if (result < 0) {
        *final = (int)result;
        return !retry(io, flight, result);
    }
    RP_ASSERT(result <= flight->asked);
    flight->arrived += (uint32_t)result;
    flight->refusals = flight->failures = 0;
    if (flight->arrived >= flight->read.bytes_needed) {
        *final = 0;
        return true;
    }
    *final = -ENODATA;
    if (result == 0 || (result & (flight->read.alignment - 1)) != 0)
        return true;
    io->counts.short_reads += result < flight->asked;
    return false;
}

/* Process one raw result. Returns 1 and fills *done if its read is finished, else 0. */
static unsigned take(struct rp_io *io, uint64_t tag, int64_t result, struct rp_io_done *done)
{
    RP_ASSERT(tag < io->depth);
    struct flight *flight = &io->flights[tag];
    int final;
    if (!settle(io, flight, result, &final)) {
        enqueue(io, (uint32_t)tag);
        return 0;
    }
    *done = (struct rp_io_done){flight->read.tag, final, flight->arrived};
    io->counts.reads++;
    io->counts.bytes += flight->arrived;
    io->counts.errors += final < 0;
    io->free[io->free_count++] = (uint32_t)tag;
    return 1;
}

/* The method refuses reads and has none in flight: its code is the result of each queued read. */
static unsigned take_refused(struct rp_io *io, int result, struct rp_io_done *done, unsigned max)
{
    unsigned finished = 0;
    for (uint32_t left = (uint32_t)rp_min_u64(io->queued, max); left; left--) {
        uint64_t tag = io->queue[0].tag;
        dequeue(io, 1);
        finished += take(io, tag, result, &done[finished]);
    }
    return finished;
}

static unsigned take_reaped(struct rp_io *io, struct rp_io_done *done, unsigned max,
                            unsigned wait_min)
{
    uint64_t tags[REAP_BATCH];
    int64_t results[REAP_BATCH];
    max = (unsigned)rp_min_u64(max, REAP_BATCH);
    wait_min = (unsigned)rp_min_u64(rp_min_u64(wait_min, max), io->at_method);
    int count = io->method->reap(io->self, tags, results, max, wait_min);
    RP_ASSERT(count >= (int)wait_min && (uint32_t)count <= io->at_method);
    io->at_method -= (uint32_t)count;
    unsigned finished = 0;
    for (int i = 0; i < count; i++)
        finished += take(io, tags[i], results[i], &done[finished]);
    return finished;
}

unsigned rp_io_wait(struct rp_io *io, struct rp_io_done *done, unsigned max, unsigned wait_min)
{
    wait_min = (unsigned)rp_min_u64(rp_min_u64(wait_min, max), rp_io_in_flight(io));
    unsigned finished = 0;
    do {
        int code = push(io);
        if (code < 0 && io->at_method == 0)
            finished += take_refused(io, code, done + finished, max - finished);
        else if (io->at_method && max)
            finished += take_reaped(io, done + finished, max - finished, wait_min - finished);
        if (io->pause)
            rp_sleep_ns(PAUSE_NS);
        io->pause = false;
    } while (finished < wait_min);
    return finished;
}
