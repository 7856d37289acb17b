/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.h — which CPUs a process runs on. */
#ifndef RP_BASE_CPUS_H
#define RP_BASE_CPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

#define RP_CPUS_MAX 4096u

struct rp_cpus {
    uint64_t words[RP_CPUS_MAX / 64]; /* CPU n is bit n mod 64 of word n / 64 */
};

/** `0-7,16-23`, as in /sys/devices/system/node/node0/cpulist. False if it is none. */
bool rp_cpus_parse(struct rp_cpus *cpus, const char *text);

/** From now on this thread, and those and the processes that it starts, run there only; memory that
 * they touch first comes from the NUMA nodes of these CPUs. -RP_E_CONFIG names one that is not
 * there, or that this process may not use; then nothing has changed. */
RP_MUST_CHECK int rp_cpus_pin(const struct rp_cpus *cpus, struct rp_error *error);

/** How many CPUs the calling thread may run on: those of its affinity mask, which launchers,
 * containers and cgroups narrow. At least 1. */
uint32_t rp_cpus_allowed(void);

#endif
