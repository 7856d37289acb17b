/* SPDX-License-Identifier: Apache-2.0 */
#include "slice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool slice_begin(struct slice *slice)
{
    char line[32];
    if (!fgets(line, sizeof line, stdin))
        return false;
    uint64_t begin = rp_now_ns();
    *slice = (struct slice){
        .begin_ns = begin,
        .until_ns = begin + 1000000 * strtoull(line, NULL, 10),
        .cpu_ns = cpu_ns(),
    };
    return true;
}

bool slice_lasts(const struct slice *slice)
{
    return rp_now_ns() < slice->until_ns;
}

void slice_end(struct slice *slice)
{
    slice->end_ns = rp_now_ns();
    slice->cpu_ns = cpu_ns() - slice->cpu_ns;
}

void slice_report(const struct slice *slice)
{
    printf("{\"seconds\": %.9f, \"cpu_seconds\": %.9f, \"engine_cpu_seconds\": %.9f, "
           "\"tokens\": %" PRIu64 ", \"rows\": %" PRIu64 "}\n",
           1e-9 * (double)(slice->end_ns - slice->begin_ns), 1e-9 * (double)slice->cpu_ns,
           1e-9 * (double)slice->engine_cpu_ns, slice->tokens, slice->rows);
    fflush(stdout);
}
