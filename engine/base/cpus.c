/* SPDX-License-Identifier: Apache-2.0 */
/* cpus — see cpus.h. The kernel takes CPUs that are not to be had out of a mask in silence, so they
 * are looked for before. */
#include "base/cpus.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"

/* Digits at *text, which moves behind them. */
static bool take_number(const char **text, uint64_t *number)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *number = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0 && *number < RP_CPUS_MAX;
}

bool rp_cpus_parse(struct rp_cpus *cpus, const char *text)
{
    memset(cpus, 0, sizeof *cpus);
    for (;; text++) {
        uint64_t first, last;
        if (!take_number(&text, &first))
            return false;
        last = first;
        if (*text == '-' && (text++, !take_number(&text, &last)))
            return false;
        if (last < first)
            return false;
        for (uint64_t cpu = first; cpu <= last; cpu++)
            cpus->words[cpu / 64] |= UINT64_C(1) << cpu % 64;
        if (*text != ',')
            return *text == '\0';
    }
}

static int set_mask(const struct rp_cpus *cpus)
{
    return sched_setaffinity(0, sizeof *cpus, (const cpu_set_t *)(const void *)cpus) < 0 ? -errno
                                                                                         : 0;
}

static int get_mask(struct rp_cpus *cpus)
{
    memset(cpus, 0, sizeof *cpus);
    return sched_getaffinity(0, sizeof *cpus, (cpu_set_t *)(void *)cpus) < 0 ? -errno : 0;
}

int rp_cpus_pin(const struct rp_cpus *cpus, struct rp_error *error)
{
    struct rp_cpus before, allowed, all;
    memset(&all, 0xff, sizeof all);
    int code = get_mask(&before);
    if (code == 0)
        code = set_mask(&all);
    if (code == 0)
        code = get_mask(&allowed);
    for (uint32_t cpu = 0; code == 0 && cpu < RP_CPUS_MAX; cpu++) {
        uint64_t bit = UINT64_C(1) << cpu % 64;
        if (!(cpus->words[cpu / 64] & bit) || (allowed.words[cpu / 64] & bit))
            continue;
        if (set_mask(&before) < 0)
            return rp_fail(error, -errno, NULL, "cpus: the CPUs cannot be set back");
        return rp_fail(error, -RP_E_CONFIG,
                       "`grep Cpus_allowed_list /proc/self/status` shows those that there are",
                       "cpus: there is no CPU %" PRIu32 " here, or this process may not use it",
                       cpu);
    }
    if (code == 0)
        code = set_mask(cpus);
    return code < 0 ? rp_fail(error, code, "leave `cpus` out", "cpus: cannot choose CPUs: %s",
                              rp_strerror(code))
                    : 0;
}

uint32_t rp_cpus_allowed(void)
{
    struct rp_cpus cpus;
    uint32_t count = 0;
    if (get_mask(&cpus) < 0) /* more CPUs than RP_CPUS_MAX: many */
        return (uint32_t)rp_max_u64(1, (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    for (size_t i = 0; i < RP_ARRAY_COUNT(cpus.words); i++)
        count += (uint32_t)__builtin_popcountll(cpus.words[i]);
    return count ? count : 1;
}
