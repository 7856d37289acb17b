/* SPDX-License-Identifier: Apache-2.0 */
#include "python.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"

char *rp_python_places(const char *list, bool below)
{
    char *kept = rp_calloc(strlen(list) + 1, 1), *end = kept;
    for (const char *at = list; kept && *at;) {
        size_t length = strcspn(at, ":");
        bool is_current = length == strspn(at, "./");
        if (*at == '/' || (below && !is_current)) {
            if (end > kept)
                *end++ = ':';
            memcpy(end, at, length);
            end += length;
        }
        at += length + (at[length] == ':');
    }
    return kept;
}

char *rp_python_find(const char *name)
{
    const char *path = getenv("PATH");
    if (strchr(name, '/'))
        return strdup(name);
    char *places = rp_python_places(path ? path : "/usr/local/bin:/usr/bin:/bin", false);
    char *found = NULL;
    char *rest = places;
    for (char *place; places && !found && (place = strsep(&rest, ":")) != NULL;) {
        found = rp_asprintf("%s/%s", place, name);
        if (found && access(found, X_OK) < 0) {
            free(found);
            found = NULL;
        }
    }
    free(places);
    return found;
}

char *rp_python_script(const char *link, const char *place_in_package)
{
    static const char package[] = "/ringpack/bin";
    char place[4096];
    ssize_t length = readlink("/proc/self/exe", place, sizeof place - 1);
    place[length > 0 ? length : 0] = 0;
    char *slash = strrchr(place, '/');
    if (!slash)
        return NULL;
    *slash = 0;
    char *path = rp_asprintf("%s/%s", place, link);
    if (path && access(path, R_OK) < 0 && rp_text_has_suffix(place, package)) {
        free(path);
        path = rp_asprintf("%.*s/%s", (int)(strrchr(place, '/') - place), place, place_in_package);
    }
    if (path && access(path, R_OK) == 0)
        return path;
    free(path);
    return NULL;
}

void rp_python_keep_imports_away(void)
{
    const char *path = getenv("PYTHONPATH");
    char *places = path ? rp_python_places(path, true) : NULL;
    setenv("PYTHONSAFEPATH", "1", 1);
    if (places)
        setenv("PYTHONPATH", places, 1);
    free(places);
}
