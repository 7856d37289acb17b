/* SPDX-License-Identifier: Apache-2.0 */
/* scrub.c — see scrub.h.
 *
 * The thread uses an idle disk only (I/O class idle, if the scheduler of the disk knows it), runs
 * at nice 19, and reads at most RATE_BYTES a second, past the page cache, through a small buffer of
 * its own.
 *
 * Threads: `counts` is guarded by the mutex of `side`; all else is the thread's. From a directory
 * it uses the descriptor and the path, which do not change while it is open, and the list of
 * damaged checkpoints. A file that was pruned is skipped. */
#include "checkpoint/scrub.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/side_thread.h"
#include "checkpoint/image.h"
#include "checkpoint/listing.h"
#include "checkpoint/reader.h"

#define RATE_BYTES (64u << 20) /* a second */
#define BUFFER_BYTES (1u << 20)
#define NICE 19
#define IOPRIO_WHO_PROCESS 1 /* for ioprio_set(2), which has no header for programs */
#define IOPRIO_IDLE (3 << 13)
#define NS 1000000000ull

struct rp_scrubber {
    struct rp_side_thread side; /* the first member: main and release cast back from it */
    struct rp_storage storage;
    struct rp_locked_dir *dirs[2];
    uint64_t period_ns;
    uint8_t *buffer;
    struct rp_image *image;
    struct rp_scrub_counts pass; /* the pass that is under way */
    struct rp_scrub_counts counts;
};

static ssize_t slow_read(struct rp_storage *storage, int fd, void *data, size_t bytes,
                         uint64_t offset)
{
    char *scrubber = (char *)storage - offsetof(struct rp_scrubber, storage);
    if (rp_side_thread_sleep((struct rp_side_thread *)(void *)scrubber, bytes * NS / RATE_BYTES))
        return -ECANCELED;
    return rp_storage_system.read(&rp_storage_system, fd, data, bytes, offset);
}

static int verify(struct rp_scrubber *scrubber, const struct rp_locked_dir *dir,
                  const struct rp_name *name, struct rp_error *error)
{
    struct rp_image *image = scrubber->image;
    struct rp_writer writer = {.storage = &scrubber->storage,
                               .dir = dir->dir,
                               .path = dir->path,
                               .buffer = scrubber->buffer,
                               .buffer_bytes = BUFFER_BYTES};
    memset(image, 0, sizeof *image);
    int code = rp_reader_head(&image->head, dir->dir, dir->path, name, error);
    if (code < 0)
        return code;
    rp_image_make_spans(image, NULL);
    return rp_writer_read_back(&writer, name->text, &image->file, error);
}

static void scrub_file(struct rp_scrubber *scrubber, struct rp_locked_dir *dir,
                       const struct rp_name *name)
{
    struct rp_error error;
    int code = verify(scrubber, dir, name, &error);
    if (code == -ENOENT || code == -ECANCELED)
        return;
    if (code == 0) {
        scrubber->pass.files++;
        return;
    }
    scrubber->pass.failures++;
    memcpy(scrubber->pass.reason, error.message, sizeof scrubber->pass.reason);
    if (!rp_reader_is_damage(code))
        rp_log(RP_LOG_WARNING,
               "%s/%s: a kept checkpoint cannot be read: %s; it counts as before, and the next "
               "pass reads it again",
               dir->path, name->text, error.message);
    else if (rp_locked_dir_add_damaged(dir, name->sequence))
        rp_log_event(RP_EVENT_checkpoint_damaged,
                     "%s/%s: a kept checkpoint is damaged: %s; it counts no more as one that is "
                     "kept, and stays until others that verify take its place",
                     dir->path, name->text, error.message);
}

static void scrub_directory(struct rp_scrubber *scrubber, struct rp_locked_dir *dir)
{
    struct rp_listing listing;
    if (!dir || rp_listing_open(&listing, dir->dir, dir->path, NULL) < 0)
        return;
    for (size_t i = 0; i < listing.count && !rp_side_thread_sleep(&scrubber->side, 0); i++)
        if (listing.names[i].kind == RP_NAME_CURRENT)
            scrub_file(scrubber, dir, &listing.names[i]);
    rp_listing_free(&listing);
}

static void scrub(struct rp_side_thread *side)
{
    struct rp_scrubber *scrubber = (struct rp_scrubber *)side;
    (void)nice(NICE); /* this thread only */
    (void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
    while (!rp_side_thread_sleep(side, scrubber->period_ns)) {
        scrubber->pass = (struct rp_scrub_counts){.passes = scrubber->pass.passes + 1};
        for (size_t i = 0; i < RP_ARRAY_COUNT(scrubber->dirs); i++)
            scrub_directory(scrubber, scrubber->dirs[i]);
        scrubber->pass.ended_ns = rp_now_ns();
        pthread_mutex_lock(&side->mutex);
        if (!side->stop) /* else the pass was not whole */
            scrubber->counts = scrubber->pass;
        pthread_mutex_unlock(&side->mutex);
    }
}

static void free_scrubber(struct rp_side_thread *side)
{
    struct rp_scrubber *scrubber = (struct rp_scrubber *)side;
    rp_give_pages(scrubber->buffer, BUFFER_BYTES);
    free(scrubber->image);
    free(scrubber);
}

int rp_scrubber_open(struct rp_scrubber **out, struct rp_locked_dir *const dirs[2],
                     uint32_t period_seconds, struct rp_error *error)
{
    struct rp_scrubber *scrubber = rp_calloc(1, sizeof *scrubber);
    if (!scrubber)
        return rp_fail(error, -ENOMEM, NULL, "no memory to read checkpoints again");
    scrubber->side = (struct rp_side_thread){.main = scrub, .release = free_scrubber};
    scrubber->storage = rp_storage_system;
    scrubber->storage.read = slow_read;
    memcpy(scrubber->dirs, dirs, sizeof scrubber->dirs);
    scrubber->period_ns = period_seconds * NS;
    scrubber->buffer = rp_take_pages(BUFFER_BYTES);
    scrubber->image = rp_calloc(1, sizeof *scrubber->image);
    int code = scrubber->buffer && scrubber->image ? rp_side_thread_start(&scrubber->side)
                                                   : -ENOMEM;
    if (code == 0) {
        *out = scrubber;
        return 0;
    }
    free_scrubber(&scrubber->side);
    return rp_fail(error, code, NULL, "cannot start the thread that reads checkpoints again: %s",
                   rp_strerror(code));
}

void rp_scrubber_counts(struct rp_scrubber *scrubber, struct rp_scrub_counts *counts)
{
    pthread_mutex_lock(&scrubber->side.mutex);
    *counts = scrubber->counts;
    pthread_mutex_unlock(&scrubber->side.mutex);
}

void rp_scrubber_close(struct rp_scrubber *scrubber)
{
    if (scrubber)
        (void)rp_side_thread_end(&scrubber->side, RP_SIDE_THREAD_FOREVER_NS);
}
