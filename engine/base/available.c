/* SPDX-License-Identifier: Apache-2.0 */
/* available — the kernel's own figures, from /proc and /sys. A file that is missing is no limit. */
#include "base/available.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

#define RP_CGROUP_PATH_BYTES 256

/* The two generations of cgroups, told apart by the second field of /proc/self/cgroup. */
struct hierarchy {
    const char *controllers; /* of the line to look for */
    const char *mount, *limit, *usage, *inactive_file, *active_file;
};
static const struct hierarchy hierarchies[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ", "active_file "},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file ", "total_active_file "},
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

/* What is left in the cgroup at `path` below the mount. Page cache counts as left: it gives way. */
static void apply_cgroup(struct rp_available *available, const struct hierarchy *h,
                         const char *path)
{
    char file[RP_CGROUP_PATH_BYTES + 64];
    uint64_t limit, usage, inactive_file = 0, active_file = 0;
    snprintf(file, sizeof file, "%s%s/%s", h->mount, path, h->usage);
    if (!rp_read_number(file, "", &usage))
        return;
    snprintf(file, sizeof file, "%s%s/memory.stat", h->mount, path);
    (void)rp_read_number(file, h->inactive_file, &inactive_file);
    (void)rp_read_number(file, h->active_file, &active_file);
    usage -= rp_min_u64(usage, inactive_file + active_file);
    snprintf(file, sizeof file, "%s%s/%s", h->mount, path, h->limit);
    if (rp_read_number(file, "", &limit))
        lower(available, limit - rp_min_u64(limit, usage), file);
}

/* From our own cgroup up to the root of the mount: every ancestor's limit holds too. In a container
 * the path may be the host's and not exist here; the mount's root is then the container's own
 * cgroup. */
static void apply_hierarchy(struct rp_available *available, const struct hierarchy *h)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[RP_CGROUP_PATH_BYTES + 64], controllers[64], path[RP_CGROUP_PATH_BYTES];
    while (file && fgets(line, sizeof line, file)) {
        controllers[0] = '\0';
        if (sscanf(line, "%*d::%255[^\n]", path) != 1 &&
            sscanf(line, "%*d:%63[^:]:%255[^\n]", controllers, path) != 2)
            continue;
        if (strcmp(controllers, h->controllers) != 0)
            continue;
        for (char *slash; (slash = strrchr(path, '/')) != NULL; *slash = '\0')
            if (slash[1])
                apply_cgroup(available, h, path);
        apply_cgroup(available, h, "");
    }
    if (file)
        fclose(file);
}

struct rp_available rp_memory_available(void)
{
    struct rp_available available = {UINT64_MAX, "no known limit"};
    uint64_t kib;
    if (rp_read_number("/proc/meminfo", "MemAvailable:", &kib))
        lower(&available, kib * 1024, "MemAvailable of /proc/meminfo");
    for (size_t i = 0; i < RP_ARRAY_COUNT(hierarchies); i++)
        apply_hierarchy(&available, &hierarchies[i]);
    return available;
}
