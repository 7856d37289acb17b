/* SPDX-License-Identifier: Apache-2.0 */
/* quota.h — the bytes in all files of a directory, counted under a lock that every engine takes
 * before it writes to them.
 *
 * The lock is a flock, which ends with its process. The file `space` stores the count, and a mark
 * while an engine holds the lock. An engine that takes the lock and finds the mark knows that the
 * last holder died, and counts the pages (eviction.h). */
#ifndef RP_CACHE_QUOTA_H
#define RP_CACHE_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

struct rp_quota {
    int directory, fd;
    uint64_t kept_bytes; /* valid while locked */
    bool is_locked;
};

/** Open the directory of an absolute or relative path, and its file `space`. -EOPNOTSUPP if the
 * file system cannot punch holes. */
RP_MUST_CHECK int rp_quota_open(struct rp_quota *quota, const char *directory,
                                struct rp_error *error);
void rp_quota_close(struct rp_quota *quota);

enum rp_quota_lock { RP_QUOTA_COUNTED, RP_QUOTA_UNKNOWN };
/** Take the lock; UNKNOWN: kept_bytes has to be counted. -EWOULDBLOCK: others held it for all of
 * wait_ms. Or another negative errno. */
RP_MUST_CHECK int rp_quota_lock(struct rp_quota *quota, uint32_t wait_ms);
/** Store kept_bytes, and release the lock. */
void rp_quota_unlock(struct rp_quota *quota);
/** Release the lock and leave the mark, so that the next holder counts. */
void rp_quota_leave(struct rp_quota *quota);
/** The stored count, read without the lock, for messages. */
uint64_t rp_quota_peek(const struct rp_quota *quota);

#endif
