/* SPDX-License-Identifier: Apache-2.0 */
/* python — see python.h. */
#include "python.h"

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
