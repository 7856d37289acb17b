/* SPDX-License-Identifier: Apache-2.0 */
/* workers.h — the threads of an engine that plan, read and pack: does one of them work?
 *
 * The other threads of an engine (the one that watches the page cache, its own, which keeps house)
 * work now and then while its rings are full, and do not count. Nor are packer processes. */
#ifndef RP_BENCH_WORKERS_H
#define RP_BENCH_WORKERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WORKERS_MAX 64u /* one of them stays free */

struct workers {
    int stats[WORKERS_MAX]; /* /proc/PID/task/TID/stat of each */
    uint32_t count;
};

/** False if there are none, or too many. They must be the same until the engine ends. */
bool workers_find(struct workers *workers, pid_t engine);
/** 1: a thread runs, waits for a CPU, or for the disk in a page fault. 0: all sleep. Negative: the
 * engine is gone. */
int workers_work(const struct workers *workers);

#endif
