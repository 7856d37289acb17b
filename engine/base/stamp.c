/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stamp.h"

#include <errno.h>
#include <sys/stat.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"

#define SECOND_NS UINT64_C(1000000000)
#define SETTLE_PAUSE_NS 1000000u
#define SETTLE_PATIENCE_NS (5 * SECOND_NS)

static uint64_t ns_of(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}

static struct rp_stamp stamp_from(const struct stat *info)
{
    return (struct rp_stamp){.bytes = (uint64_t)info->st_size,
                             .mtime_ns = ns_of(&info->st_mtim),
                             .ctime_ns = ns_of(&info->st_ctim),
                             .links = info->st_nlink};
}

int rp_stamp_of(int fd, struct rp_stamp *stamp)
{
    struct stat info;
    if (fstat(fd, &info) < 0)
        return -errno;
    *stamp = stamp_from(&info);
    return 0;
}

int rp_stamp_at(const char *path, struct rp_stamp *stamp)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return -errno;
    *stamp = stamp_from(&info);
    return 0;
}

/* A change time of a whole second may be of a file system that stores only seconds (FAT: only even
 * ones). A time further in the future is from a host with another clock, and waiting does not help.
 */
static bool is_settled(const struct rp_stamp *stamp)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    uint64_t step_ns = stamp->ctime_ns % SECOND_NS == 0 ? 2 * SECOND_NS : 1;
    uint64_t settled_ns = stamp->ctime_ns + step_ns, now_ns = ns_of(&now);
    return now_ns >= settled_ns || settled_ns - now_ns > 2 * SECOND_NS;
}

int rp_stamp_settle(int fd, struct rp_stamp *stamp)
{
    for (unsigned i = 0; i < SETTLE_PATIENCE_NS / SETTLE_PAUSE_NS; i++) {
        int code = rp_stamp_of(fd, stamp);
        if (code < 0 || stamp->ctime_ns == 0 || is_settled(stamp))
            return code;
        rp_sleep_ns(SETTLE_PAUSE_NS);
    }
    return 0; /* the file is written to all the time, so its times will differ soon */
}

const char *rp_stamp_difference(const struct rp_stamp *expected, const struct rp_stamp *found,
                                uint64_t *expected_value, uint64_t *found_value)
{
    const struct {
        const char *name;
        uint64_t expected, found;
    } fields[] = {
        {"bytes", expected->bytes, found->bytes},
        {"modification time in ns", expected->mtime_ns, found->mtime_ns},
        {"change time in ns", expected->ctime_ns, found->ctime_ns},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(fields); i++) {
        *expected_value = fields[i].expected;
        *found_value = fields[i].found;
        if (*expected_value != *found_value)
            return fields[i].name;
    }
    return NULL;
}
