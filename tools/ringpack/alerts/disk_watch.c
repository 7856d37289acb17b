/* SPDX-License-Identifier: Apache-2.0 */
#include "alerts/disk_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/side_thread.h"

#define PATIENCE_NS UINT64_C(200000000)

struct rp_disk_watch {
    struct rp_side_thread side; /* the first member: watch_main() casts back from it */
    char *path;
    uint64_t period_ns;
    rp_disk_poll *poll;
    struct rp_disk_answer answer; /* guarded by the mutex of `side` */
};

int rp_disk_room(const char *path, struct rp_disk_room *room)
{
    struct statvfs found;
    if (statvfs(path, &found) != 0)
        return -errno;
    room->lacks_inodes = found.f_files > 0 && found.f_favail == 0;
    room->bytes = room->lacks_inodes ? 0 : (uint64_t)found.f_bavail * found.f_frsize;
    return 0;
}

/* A check that fails is no answer: the directory may be away for a moment. */
static void watch_main(struct rp_side_thread *side)
{
    struct rp_disk_watch *watch = (struct rp_disk_watch *)side;
    prctl(PR_SET_NAME, "disk-watch");
    do {
        struct rp_disk_room room = {0};
        if (watch->poll(watch->path, &room) < 0)
            continue;
        pthread_mutex_lock(&side->mutex);
        watch->answer = (struct rp_disk_answer){rp_now_ns(), room.bytes, room.lacks_inodes};
        pthread_mutex_unlock(&side->mutex);
    } while (!rp_side_thread_sleep(side, watch->period_ns));
}

static void free_watch(struct rp_side_thread *side)
{
    struct rp_disk_watch *watch = (struct rp_disk_watch *)side;
    free(watch->path);
    free(watch);
}

int rp_disk_watch_open(struct rp_disk_watch **out, const char *path, uint64_t period_ns,
                       rp_disk_poll *poll, struct rp_error *error)
{
    struct rp_disk_watch *watch = rp_calloc(1, sizeof *watch);
    char *copy = strdup(path);
    if (!watch || !copy) {
        free(copy);
        free(watch);
        return rp_fail(error, -ENOMEM, NULL, "out of memory at start");
    }
    watch->path = copy;
    watch->period_ns = period_ns;
    watch->poll = poll;
    watch->side.main = watch_main;
    watch->side.release = free_watch;
    int code = rp_side_thread_start(&watch->side);
    if (code == 0) {
        *out = watch;
        return 0;
    }
    free_watch(&watch->side);
    return rp_fail(error, code, NULL, "cannot start the thread that checks free space: %s",
                   rp_strerror(code));
}

void rp_disk_watch_hurry(struct rp_disk_watch *watch)
{
    pthread_mutex_lock(&watch->side.mutex);
    pthread_cond_broadcast(&watch->side.changed);
    pthread_mutex_unlock(&watch->side.mutex);
}

struct rp_disk_answer rp_disk_watch_answer(struct rp_disk_watch *watch)
{
    pthread_mutex_lock(&watch->side.mutex);
    struct rp_disk_answer answer = watch->answer;
    pthread_mutex_unlock(&watch->side.mutex);
    return answer;
}

void rp_disk_watch_close(struct rp_disk_watch *watch)
{
    if (watch)
        rp_side_thread_end(&watch->side, PATIENCE_NS);
}
