/* SPDX-License-Identifier: Apache-2.0 */
/* startup_yield.h — the threads of a flow that has just begun yield the processor: the plan thread
 * after each micro-batch, a packer thread after each ticket, once it has announced what it
 * published.
 *
 * Without yields the two threads fill the rings without a break, while a trainer that wants its
 * first batch, and the engine's thread that answers it, wait for a processor: a tick of the kernel,
 * if there are as many threads as processors. Later the threads of the flow sleep often enough. The
 * time of yielding is limited, because while other processes are busy a yield costs the rest of a
 * slice. Each start of a flow begins it, also a restart or a catch-up flow. No batch depends on it.
 *
 * The time is one for the process: while a catch-up flow begins, the main flow yields as well. */
#ifndef RP_FLOW_STARTUP_YIELD_H
#define RP_FLOW_STARTUP_YIELD_H

#include <stdbool.h>

/** A flow begins now: its threads yield for 20 ms. Any thread. */
void rp_startup_yield_begin(void);
/** Is it time to yield? Any thread. */
bool rp_startup_yield_is_due(void);

#endif
