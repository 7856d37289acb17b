/* SPDX-License-Identifier: Apache-2.0 */
#include "io_fake.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"

enum { BROKEN_IN_A_ROW = 3 };

struct fake {
    struct io_fake_script script;
    uint64_t random;
    uint32_t depth;
    struct rp_io_read *reads; /* in flight, oldest first */
    unsigned count;
    unsigned *broken; /* by tag: how often it was EIO by chance since bytes came */
};

static pthread_mutex_t script_lock = PTHREAD_MUTEX_INITIALIZER;
static struct io_fake_script script_now; /* under script_lock */

void io_fake_set(const struct io_fake_script *script)
{
    pthread_mutex_lock(&script_lock);
    script_now = *script;
    pthread_mutex_unlock(&script_lock);
}

static bool chance(struct fake *fake, unsigned per_1000)
{
    return per_1000 && io_fake_random(&fake->random) % 1000 < per_1000;
}

static int fake_open(void **self, const struct rp_io_options *options, struct rp_error *error)
{
    struct fake *fake = rp_calloc(1, sizeof *fake);
    struct rp_io_read *reads = rp_calloc(options->depth, sizeof *reads);
    unsigned *broken = rp_calloc(options->depth, sizeof *broken);
    if (!fake || !reads || !broken) {
        free(broken);
        free(reads);
        free(fake);
        return rp_fail(error, -ENOMEM, NULL, "no memory for a fake");
    }
    pthread_mutex_lock(&script_lock);
    fake->script = script_now;
    pthread_mutex_unlock(&script_lock);
    fake->random = fake->script.seed;
    fake->depth = options->depth;
    fake->reads = reads;
    fake->broken = broken;
    *self = fake;
    return 0;
}

static void fake_close(void *self)
{
    struct fake *fake = self;
    RP_ASSERT(fake->count == 0); /* io.c must wait for reads in flight */
    free(fake->broken);
    free(fake->reads);
    free(fake);
}

static int fake_submit(void *self, const struct rp_io_read *reads, unsigned count)
{
    struct fake *fake = self;
    if (fake->script.takes_none)
        return -EAGAIN;
    if (chance(fake, fake->script.lazy)) {
        count = (unsigned)(io_fake_random(&fake->random) % count);
        if (count == 0)
            return chance(fake, 500) ? -EAGAIN : 0;
    }
    for (unsigned i = 0; i < count; i++) {
        RP_ASSERT(fake->count < fake->depth);
        fake->reads[fake->count++] = reads[i];
    }
    return (int)count;
}

/* Bytes in front of the bad range and of the pretended end, as this kind of read brings them. */
static int64_t reachable(struct fake *fake, const struct rp_io_read *read)
{
    struct io_fake_script *script = &fake->script;
    uint64_t end = read->offset + read->bytes;
    if (script->bad_error && read->offset < script->bad_end && end > script->bad_start) {
        bool stands_before = read->offset < script->bad_start;
        if (read->alignment == 1 && stands_before)
            return (int64_t)(script->bad_start - read->offset);
        int error = script->bad_error;
        if (script->bad_times && --script->bad_times == 0)
            script->bad_error = 0;
        return -error;
    }
    if (script->ends_at && end > script->ends_at)
        return (int64_t)(script->ends_at - rp_min_u64(script->ends_at, read->offset));
    return read->bytes;
}

/* At least one byte, because none would look like the end of the file, and less than all. */
static int64_t cut_length(struct fake *fake, int64_t bytes, uint32_t alignment)
{
    uint64_t length = 1 + io_fake_random(&fake->random) % (uint64_t)(bytes - 1);
    return (int64_t)rp_max_u64(rp_align_down(length, alignment), alignment);
}

static int64_t answer(struct fake *fake, const struct rp_io_read *read)
{
    static const int refusals[] = {EAGAIN, EINTR, EBUSY, ENOMEM};
    if (((read->offset | read->bytes | (uintptr_t)read->buffer) & (read->alignment - 1)) != 0)
        return -EINVAL;
    if (chance(fake, fake->script.again))
        return -refusals[io_fake_random(&fake->random) % RP_ARRAY_COUNT(refusals)];
    unsigned *broken = &fake->broken[read->tag]; /* io.c numbers its flights below its depth */
    if (chance(fake, fake->script.broken) && *broken < BROKEN_IN_A_ROW) {
        ++*broken;
        return -EIO;
    }
    *broken = 0;
    int64_t bytes = reachable(fake, read);
    if (bytes > (int64_t)read->alignment && chance(fake, fake->script.cut))
        bytes = cut_length(fake, bytes, read->alignment);
    if (bytes < 0)
        return bytes;
    ssize_t count = pread((int)read->object, read->buffer, (size_t)bytes, (off_t)read->offset);
    return count < 0 ? -errno : count;
}

static int fake_reap(void *self, uint64_t *tags, int64_t *results, unsigned max, unsigned wait_min)
{
    struct fake *fake = self;
    unsigned ready = (unsigned)rp_min_u64(fake->count, max);
    if (ready > wait_min) /* some are always slow */
        ready = wait_min + (unsigned)(io_fake_random(&fake->random) % (ready - wait_min + 1));
    for (unsigned i = 0; i < ready; i++) {
        unsigned pick = 0;
        if (fake->script.reorder)
            pick = (unsigned)(io_fake_random(&fake->random) % fake->count);
        struct rp_io_read read = fake->reads[pick];
        fake->count--;
        memmove(&fake->reads[pick], &fake->reads[pick + 1], (fake->count - pick) * sizeof read);
        tags[i] = read.tag;
        results[i] = answer(fake, &read);
    }
    return (int)ready;
}

const struct rp_io_method io_fake_method = {
    .name = "fake",
    .open_object = rp_io_open_file,
    .close_object = rp_io_close_file,
    .open = fake_open,
    .close = fake_close,
    .submit = fake_submit,
    .reap = fake_reap,
};
