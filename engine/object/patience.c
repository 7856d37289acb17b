/* SPDX-License-Identifier: Apache-2.0 */
/* patience.c — pauses and time limits of retries (requests.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "object/requests.h"

#define START_GIVE_UP_S 20u

struct rp_patience rp_patience_standard(bool is_start)
{
    struct rp_patience p = {50, 20000, 300, 20, {NULL, NULL}};
    const char *given = getenv("RINGPACK_OBJECT_PATIENCE");
    struct rp_patience said = p;
    if (given && sscanf(given, "%" SCNu32 ",%" SCNu32 ",%" SCNu32 ",%" SCNu32, &said.pause_ms,
                        &said.pause_max_ms, &said.give_up_s, &said.stall_s) == 4)
        p = said;
    if (is_start)
        p.give_up_s = (uint32_t)rp_min_u64(p.give_up_s, START_GIVE_UP_S);
    return p;
}
