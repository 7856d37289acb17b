/* SPDX-License-Identifier: Apache-2.0 */
/* available.h — how much memory can still be taken before the kernel starts to kill. */
#ifndef RP_BASE_AVAILABLE_H
#define RP_BASE_AVAILABLE_H

#include <stdbool.h>
#include <stdint.h>

struct rp_available {
    uint64_t bytes;  /* UINT64_MAX: not known */
    char limit[320]; /* what sets it: "MemAvailable of /proc/meminfo", or a cgroup's file */
};
/** The least of the machine's available memory and of what is left in each enclosing cgroup (v1 and
 * v2). An estimate: others take memory too. */
struct rp_available rp_memory_available(void);

/** The number behind `key` ("" = the first) in a small text file of the kernel's. False: no such
 * file, no such key, or no number there. */
bool rp_read_number(const char *path, const char *key, uint64_t *value);

#endif
