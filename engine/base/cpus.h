/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.h — the CPUs on which a process runs. */
#ifndef RP_BASE_CPUS_H
#define RP_BASE_CPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

#define RP_CPUS_MAX 4096u

struct rp_cpus {
    uint64_t words[RP_CPUS_MAX / 64]; /* CPU n is bit n mod 64 of word n / 64 */
};

/** Parse a list like `0-7,16-23`, as in /sys/devices/system/node/node0/cpulist. False if it is
 * malformed. */
bool rp_cpus_parse(struct rp_cpus *cpus, const char *text);

/** How many CPUs there are in the list; at least 1. */
uint32_t rp_cpus_count(const struct rp_cpus *cpus);

/** Let this thread, and the threads and processes that it starts from now on, run only on these
 * CPUs, so that memory which they touch first is on the NUMA nodes of these CPUs. -RP_E_CONFIG
 * names a CPU that does not exist or that this process may not use; then the affinity is unchanged.
 */
RP_MUST_CHECK int rp_cpus_pin(const struct rp_cpus *cpus, struct rp_error *error);

/** Number of CPUs that the calling thread may keep busy: the CPUs of its affinity mask, which
 * launchers and containers narrow, or fewer if the quota of one of its cgroups is worth fewer. At
 * least 1. */
uint32_t rp_cpus_allowed(void);

/** How many whole CPUs the least quota of this process's cgroups is worth (cpu.max of version 2,
 * cpu.cfs_quota_us of version 1): at least 1; UINT32_MAX without a quota. `root` is put before the
 * paths of all files: "" for this machine. */
uint32_t rp_cpus_quota(const char *root);

#endif
