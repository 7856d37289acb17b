/* SPDX-License-Identifier: Apache-2.0 */
/* give_way — see give_way.h. */
#include "flow/give_way.h"

#include "base/atomic.h"
#include "base/clock.h"

#define GIVES_WAY_NS 20000000u

static struct rp_a64 until_ns;

void rp_gives_way_from_now(void)
{
    rp_a64_store_relaxed(&until_ns, rp_now_ns() + GIVES_WAY_NS);
}

bool rp_gives_way(void)
{
    return rp_now_ns() < rp_a64_load_relaxed(&until_ns);
}
