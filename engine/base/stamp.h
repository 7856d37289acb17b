/* SPDX-License-Identifier: Apache-2.0 */
/* stamp.h — find out by its attributes whether a file has changed. */
#ifndef RP_BASE_STAMP_H
#define RP_BASE_STAMP_H

#include <stdint.h>

#include "base/fail.h"

/* Attributes that differ after the content of a file has changed. Every write changes the change
 * time, which no system call can set; the modification time can be set back. Inode numbers are left
 * out, because some file systems (FUSE) report another one at each open. */
struct rp_stamp {
    uint64_t bytes, mtime_ns, ctime_ns;
    uint64_t links; /* adding or removing a name also changes the change time */
};
/** The stamp of an open file. Returns 0 or -errno. */
RP_MUST_CHECK int rp_stamp_of(int fd, struct rp_stamp *stamp);
/** A stamp that every later write changes. File systems take timestamps from a clock that advances
 * in steps of some ms, and some store only whole seconds, so two changes within one step have equal
 * times. If the file was changed in the current step, this function waits for the next one: at most
 * 10 ms in most cases, and 2 s if only whole seconds are stored. */
RP_MUST_CHECK int rp_stamp_settle(int fd, struct rp_stamp *stamp);
/** The stamp of the file that has this path now. Returns 0 or -errno. */
RP_MUST_CHECK int rp_stamp_at(const char *path, struct rp_stamp *stamp);
/** NULL if the stamps are equal, `links` aside. Otherwise the name of the first field that differs,
 * with both values. */
const char *rp_stamp_difference(const struct rp_stamp *expected, const struct rp_stamp *found,
                                uint64_t *expected_value, uint64_t *found_value);

#endif
