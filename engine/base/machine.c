/* SPDX-License-Identifier: Apache-2.0 */
/* machine — see machine.h.
 *
 * A cgroup may limit this process at any level above it, so every level is asked. In a container
 * /proc/self/cgroup can name a path that exists only outside: then the walk up ends at the mount itself, which
 * is the container's own group. Whatever cannot be read sets no limit. */
#include "base/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

/* Names of the same things in both versions of cgroups. */
struct cgroup_names {
    const char *mark; /* of the line in /proc/self/cgroup */
    const char *mount;
    const char *limit, *used, *inactive_file, *active_file;
};
static const struct cgroup_names cgroup_versions[] = {
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"},
    {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file", "total_active_file"},
};

/* The number behind `key` at the start of a line; with key "" the number the file starts with. */
static uint64_t read_number(const char *path, const char *key, uint64_t otherwise)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return otherwise;
    char line[256];
    size_t length = strlen(key);
    uint64_t number = otherwise;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, key, length) && sscanf(line + length, " %" SCNu64, &number) == 1)
            break;
    fclose(file);
    return number;
}

uint64_t rp_machine_memory_bytes(void)
{
    uint64_t kib = read_number("/proc/meminfo", "MemAvailable:", 0);
    return kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
}

static uint64_t group_room(const struct cgroup_names *names, const char *group)
{
    char path[1400];
    snprintf(path, sizeof path, "%s%s/%s", names->mount, group, names->limit);
    uint64_t limit = read_number(path, "", UINT64_MAX); /* "max" is no number */
    snprintf(path, sizeof path, "%s%s/%s", names->mount, group, names->used);
    uint64_t used = read_number(path, "", 0);
    snprintf(path, sizeof path, "%s%s/memory.stat", names->mount, group);
    uint64_t cache = read_number(path, names->inactive_file, 0) + read_number(path, names->active_file, 0);
    if (limit >= (uint64_t)1 << 62) /* version 1 writes "no limit" as a large number */
        return UINT64_MAX;
    used -= rp_min_u64(used, cache);
    return limit - rp_min_u64(limit, used);
}

static uint64_t group_path_room(const struct cgroup_names *names, char *group)
{
    uint64_t room = UINT64_MAX;
    group[strcspn(group, "\n")] = '\0';
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = '\0';
        room = rp_min_u64(room, group_room(names, group));
    }
    return room;
}

uint64_t rp_machine_cgroup_bytes(void)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return UINT64_MAX;
    char line[1024];
    uint64_t room = UINT64_MAX;
    while (fgets(line, sizeof line, file))
        for (size_t i = 0; i < RP_ARRAY_COUNT(cgroup_versions); i++) {
            char *mark = strstr(line, cgroup_versions[i].mark);
            char *group = mark ? strchr(mark, '/') : NULL;
            if (group)
                room = rp_min_u64(room, group_path_room(&cgroup_versions[i], group));
        }
    fclose(file);
    return room;
}

uint64_t rp_machine_available_bytes(void)
{
    return rp_min_u64(rp_machine_memory_bytes(), rp_machine_cgroup_bytes());
}
