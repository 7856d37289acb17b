/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 256

/* Whether `controller` is in a list like "cpu,cpuacct". In version 2 the list is empty. */
static bool is_listed(const char *list, const char *controller)
{
    size_t length = strlen(controller);
    for (const char *at = list; (at = strstr(at, controller)) != NULL; at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

static void visit_one(const char *mount, const char *path,
                      void (*visit)(void *context, const char *directory), void *context)
{
    char directory[2 * PATH_BYTES];
    snprintf(directory, sizeof directory, "%s%s", mount, path);
    visit(context, directory);
}

/* In a container the path may be the host's and not exist here; then the root of the mount is the
 * container's cgroup. */
void rp_cgroup_visit(const char *root, enum rp_cgroup_version version, const char *controller,
                     void (*visit)(void *context, const char *directory), void *context)
{
    char line[PATH_BYTES + 64], list[64], path[PATH_BYTES], mount[PATH_BYTES];
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, version == RP_CGROUP_V1 ? "/" : "",
             version == RP_CGROUP_V1 ? controller : "");
    FILE *file = fopen(line, "re");
    while (file && fgets(line, sizeof line, file)) {
        list[0] = '\0';
        if (sscanf(line, "%*d::%255[^\n]", path) != 1 &&
            sscanf(line, "%*d:%63[^:]:%255[^\n]", list, path) != 2)
            continue;
        if (version == RP_CGROUP_V2 ? list[0] != '\0' : !is_listed(list, controller))
            continue;
        for (char *slash; (slash = strrchr(path, '/')) != NULL; *slash = '\0')
            if (slash[1])
                visit_one(mount, path, visit, context);
        visit_one(mount, "", visit, context);
    }
    if (file)
        fclose(file);
}
