/* SPDX-License-Identifier: Apache-2.0 */
/* packers.h — the value of `packers: auto`. The plan never sees it, so no row depends on it. */
#ifndef RP_CONFIG_PACKERS_H
#define RP_CONFIG_PACKERS_H

#include <stdint.h>

#include "config/config.h"

/** The number of packers for an engine that may keep `cpus` CPUs busy and shares them with
 * `trainers`: 1 to 8. */
uint32_t rp_packers_choose(uint32_t cpus, uint64_t trainers);

/** Replace `auto`, and note the number of CPUs in packer_cpus. A number that was given stays. */
void rp_config_choose_packers(struct rp_config *config);

#endif
