/* SPDX-License-Identifier: Apache-2.0 */
/* sched_setaffinity ignores CPUs that are not available, so rp_cpus_pin first requests all CPUs and
 * reads back the ones that it has got. */
#include "base/cpus.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/available.h"
#include "base/bits.h"
#include "base/cgroup.h"

/* Parse the digits at *text, and move *text past them. */
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

/* ---- how many -------------------------------------------------------------------------------- */

uint32_t rp_cpus_count(const struct rp_cpus *cpus)
{
    uint32_t count = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(cpus->words); i++)
        count += (uint32_t)__builtin_popcountll(cpus->words[i]);
    return count ? count : 1;
}

static uint32_t count_in_mask(void)
{
    struct rp_cpus cpus;
    if (get_mask(&cpus) < 0) /* the mask has more than RP_CPUS_MAX bits */
        return (uint32_t)rp_max_u64(1, (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    return rp_cpus_count(&cpus);
}

/* A quota is microseconds of processor time in each period. */
static void apply_quota(uint32_t *cpus, uint64_t quota_us, uint64_t period_us)
{
    uint64_t whole = period_us ? quota_us / period_us : UINT64_MAX;
    *cpus = (uint32_t)rp_min_u64(*cpus, rp_max_u64(1, whole));
}

static void read_quota_v1(void *cpus, const char *directory)
{
    char file[640];
    uint64_t quota_us, period_us;
    snprintf(file, sizeof file, "%s/cpu.cfs_period_us", directory);
    bool has_period = rp_read_number(file, "", &period_us);
    snprintf(file, sizeof file, "%s/cpu.cfs_quota_us", directory);
    bool has_quota = rp_read_number(file, "", &quota_us) && quota_us <= INT64_MAX; /* -1: none */
    if (has_period && has_quota)
        apply_quota(cpus, quota_us, period_us);
}

/* "150000 100000", or "max 100000". */
static void read_quota_v2(void *cpus, const char *directory)
{
    char path[640];
    uint64_t quota_us, period_us;
    snprintf(path, sizeof path, "%s/cpu.max", directory);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%" SCNu64 " %" SCNu64, &quota_us, &period_us) == 2)
        apply_quota(cpus, quota_us, period_us);
    if (file)
        fclose(file);
}

uint32_t rp_cpus_quota(const char *root)
{
    uint32_t cpus = UINT32_MAX;
    rp_cgroup_visit(root, RP_CGROUP_V1, "cpu", read_quota_v1, &cpus);
    rp_cgroup_visit(root, RP_CGROUP_V2, "cpu", read_quota_v2, &cpus);
    return cpus;
}

uint32_t rp_cpus_allowed(void)
{
    return (uint32_t)rp_min_u64(count_in_mask(), rp_cpus_quota(""));
}
