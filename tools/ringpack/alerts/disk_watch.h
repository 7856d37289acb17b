/* SPDX-License-Identifier: Apache-2.0 */
/* disk_watch.h — how much room is left in a directory. A thread queries it every few seconds,
 * because a call on a disk whose server is gone never returns; callers get the newest answer. */
#ifndef RP_TOOLS_DISK_WATCH_H
#define RP_TOOLS_DISK_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

struct rp_disk_watch;

/* The room for a process that writes. Without inodes no file can be made: no byte is free. */
struct rp_disk_room {
    uint64_t bytes;
    bool lacks_inodes;
};

/** The room in `path`. 0 or -errno. */
typedef int rp_disk_poll(const char *path, struct rp_disk_room *room);
rp_disk_poll rp_disk_room; /* by statvfs(3) */

/** Check `path` now, and again each `period_ns`. */
RP_MUST_CHECK int rp_disk_watch_open(struct rp_disk_watch **out, const char *path,
                                     uint64_t period_ns, rp_disk_poll *poll,
                                     struct rp_error *error);
/** Check now, and not at the end of the period. Returns at once. */
void rp_disk_watch_hurry(struct rp_disk_watch *watch);

/* The newest answer. */
struct rp_disk_answer {
    uint64_t at_ns; /* 0 = there was none */
    uint64_t free_bytes;
    bool lacks_inodes;
};
struct rp_disk_answer rp_disk_watch_answer(struct rp_disk_watch *watch);
/** Never waits for the disk for longer than a moment. NULL is fine. */
void rp_disk_watch_close(struct rp_disk_watch *watch);

#endif
