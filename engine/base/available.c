/* SPDX-License-Identifier: Apache-2.0 */
/* available.c — the kernel's figures, from /proc and /sys. A missing file counts as no limit. */
#include "base/available.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/cgroup.h"

#define PATH_BYTES 600

/* The files of a cgroup. Above memory.max processes are killed. Above memory.high they are slowed
 * down until they hardly run, so that is also a limit. */
struct files {
    const char *limits[2], *usage, *inactive_file, *active_file;
};
static const struct files files_of[] = {
    [RP_CGROUP_V1] = {{"memory.limit_in_bytes"},
                      "memory.usage_in_bytes",
                      "total_inactive_file ",
                      "total_active_file "},
    [RP_CGROUP_V2] = {{"memory.max", "memory.high"},
                      "memory.current",
                      "inactive_file ",
                      "active_file "},
};

bool rp_read_number(const char *path, const char *key, uint64_t *value)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    char line[256];
    bool found = false;
    while (!found && fgets(line, sizeof line, file))
        found = !strncmp(line, key, strlen(key)) &&
                sscanf(line + strlen(key), "%" SCNu64, value) == 1;
    fclose(file);
    return found;
}

static void lower(struct rp_available *available, uint64_t bytes, const char *limit)
{
    if (bytes >= available->bytes)
        return;
    available->bytes = bytes;
    snprintf(available->limit, sizeof available->limit, "%s", limit);
}

struct visit {
    struct rp_available *available;
    const struct files *files;
};

/* Apply the memory left in a cgroup. Page cache counts as free, because the kernel can reclaim it.
 */
static void apply_cgroup(void *context, const char *directory)
{
    const struct visit *visit = context;
    const struct files *files = visit->files;
    char file[PATH_BYTES];
    uint64_t limit, usage, inactive_file = 0, active_file = 0;
    snprintf(file, sizeof file, "%s/%s", directory, files->usage);
    if (!rp_read_number(file, "", &usage))
        return;
    snprintf(file, sizeof file, "%s/memory.stat", directory);
    (void)rp_read_number(file, files->inactive_file, &inactive_file);
    (void)rp_read_number(file, files->active_file, &active_file);
    usage -= rp_min_u64(usage, inactive_file + active_file);
    for (size_t i = 0; i < RP_ARRAY_COUNT(files->limits) && files->limits[i]; i++) {
        snprintf(file, sizeof file, "%s/%s", directory, files->limits[i]);
        if (rp_read_number(file, "", &limit)) /* there is no number in the word `max` */
            lower(visit->available, limit - rp_min_u64(limit, usage), file);
    }
}

struct rp_available rp_memory_available_below(const char *root)
{
    struct rp_available available = {UINT64_MAX, "no known limit"};
    char meminfo[PATH_BYTES];
    uint64_t kib;
    snprintf(meminfo, sizeof meminfo, "%s/proc/meminfo", root);
    if (rp_read_number(meminfo, "MemAvailable:", &kib))
        lower(&available, kib * 1024, "MemAvailable of /proc/meminfo");
    for (enum rp_cgroup_version version = RP_CGROUP_V1; version <= RP_CGROUP_V2; version++) {
        struct visit visit = {&available, &files_of[version]};
        rp_cgroup_visit(root, version, "memory", apply_cgroup, &visit);
    }
    return available;
}

struct rp_available rp_memory_available(void)
{
    return rp_memory_available_below("");
}
