/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h — a callback that a long step calls now and then with its bytes. */
#ifndef RP_BASE_PROGRESS_H
#define RP_BASE_PROGRESS_H

#include <stdint.h>

/* Both pointers to it and to its function may be NULL. */
struct rp_progress {
    void (*report)(void *context, uint64_t done, uint64_t total);
    void *context;
};

static inline void rp_progress_report(const struct rp_progress *progress, uint64_t done,
                                      uint64_t total)
{
    if (progress && progress->report)
        progress->report(progress->context, done, total);
}

#endif
