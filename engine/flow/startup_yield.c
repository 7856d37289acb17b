/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/startup_yield.h"

#include "base/atomic.h"
#include "base/clock.h"

#define YIELD_NS 20000000u

static struct rp_a64 until_ns;

void rp_startup_yield_begin(void)
{
    rp_a64_store_relaxed(&until_ns, rp_now_ns() + YIELD_NS);
}

bool rp_startup_yield_is_due(void)
{
    return rp_now_ns() < rp_a64_load_relaxed(&until_ns);
}
