/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h — what this machine has left to give. Asked at start, never on the data plane. */
#ifndef RP_BASE_MACHINE_H
#define RP_BASE_MACHINE_H

#include <stdint.h>

/** Bytes that can be taken without swapping (MemAvailable); 0 when the kernel does not say. */
uint64_t rp_machine_memory_bytes(void);

/** Bytes that the memory cgroups of this process still allow, page cache counted as free because it is given
 *  back on demand; UINT64_MAX when no cgroup sets a limit. */
uint64_t rp_machine_cgroup_bytes(void);

/** The smaller of the two: what the engine may plan with. */
uint64_t rp_machine_available_bytes(void);

#endif
