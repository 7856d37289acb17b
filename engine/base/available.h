/* SPDX-License-Identifier: Apache-2.0 */
/* available.h — how much memory a process can still allocate before the kernel kills one. */
#ifndef RP_BASE_AVAILABLE_H
#define RP_BASE_AVAILABLE_H

#include <stdbool.h>
#include <stdint.h>

struct rp_available {
    uint64_t bytes;  /* UINT64_MAX: not known */
    char limit[320]; /* its source: "MemAvailable of /proc/meminfo", or a cgroup's file */
};
/** The smallest of the machine's available memory and the memory left in each enclosing cgroup:
 * below memory.limit_in_bytes (v1), memory.max and memory.high (v2). It is an estimate, because
 * other processes also allocate memory. */
struct rp_available rp_memory_available(void);
/** The same, from the files of /proc and /sys below the folder `root`; "": this machine's. */
struct rp_available rp_memory_available_below(const char *root);

/** Read the number that follows `key` at the beginning of a line of a small text file, such as
 * those in /proc; "" = the first number. False without such a file, key or number. */
bool rp_read_number(const char *path, const char *key, uint64_t *value);

#endif
