/* SPDX-License-Identifier: Apache-2.0 */
/* disk_watch.h — how much room is left in a directory. A thread asks every few seconds, because
 * a call on a disk whose server is gone never returns; callers get the newest answer. */
#ifndef RP_SERVER_DISK_WATCH_H
#define RP_SERVER_DISK_WATCH_H

#include <stdint.h>

#include "base/fail.h"

struct rp_disk_watch;

/** The bytes that a process may still write in `path`. 0 or -errno. */
typedef int rp_free_bytes(const char *path, uint64_t *bytes);
rp_free_bytes rp_disk_free_bytes; /* by statvfs(3) */

/** Check `path` now, and again each `period_ns`. */
RP_MUST_CHECK int rp_disk_watch_open(struct rp_disk_watch **out, const char *path,
                                     uint64_t period_ns, rp_free_bytes *look,
                                     struct rp_error *error);
const char *rp_disk_watch_path(const struct rp_disk_watch *watch);

/* The newest answer. */
struct rp_disk_answer {
    uint64_t at_ns; /* 0 = there was none */
    uint64_t free_bytes;
};
struct rp_disk_answer rp_disk_watch_answer(struct rp_disk_watch *watch);
/** Never waits for the disk for longer than a moment. NULL is fine. */
void rp_disk_watch_close(struct rp_disk_watch *watch);

#endif
