/* SPDX-License-Identifier: Apache-2.0 */
/* path.c — paths as an index holds them (index.h). The directory of a path, up to a wildcard, is
 * resolved, and the rest is kept, so a file has the same stored path from every working directory.
 * A URL is stored as its display URL. */
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "corpus/index/index.h"
#include "object/url.h"

/* Resolve a directory, whose last parts may not exist. */
static char *resolve(const char *directory)
{
    char *resolved = realpath(directory[0] ? directory : "/", NULL);
    if (resolved || !strcmp(directory, ".") || !directory[0])
        return resolved ? resolved : strdup(directory);
    char *parent = rp_path_directory(directory);
    const char *slash = strrchr(directory, '/');
    char *above = parent ? resolve(parent) : NULL;
    if (above)
        resolved = rp_asprintf("%s/%s", strcmp(above, "/") ? above : "",
                               slash ? slash + 1 : directory);
    free(parent);
    free(above);
    return resolved;
}

int rp_index_paths_open(struct rp_index_paths *paths, const char *index_path,
                        struct rp_error *error)
{
    char *directory = rp_path_directory(index_path);
    *paths = (struct rp_index_paths){.folder = directory ? resolve(directory) : NULL};
    free(directory);
    return paths->folder ? 0
                         : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", index_path);
}

void rp_index_paths_close(struct rp_index_paths *paths)
{
    free(paths->folder);
    free(paths->last);
    free(paths->last_resolved);
    *paths = (struct rp_index_paths){0};
}

/* The resolved directory; it belongs to *paths. NULL when out of memory. */
static const char *resolve_again(struct rp_index_paths *paths, const char *directory, size_t bytes)
{
    if (paths->last && strlen(paths->last) == bytes && !memcmp(paths->last, directory, bytes))
        return paths->last_resolved;
    free(paths->last);
    free(paths->last_resolved);
    paths->last = strndup(directory, bytes);
    paths->last_resolved = paths->last ? resolve(paths->last) : NULL;
    return paths->last_resolved;
}

char *rp_index_paths_store(struct rp_index_paths *paths, const char *path)
{
    if (rp_url_is(path))
        return rp_url_name(path); /* without its query, which may be a secret that changes */
    size_t bytes = strlen(path), literal = strcspn(path, "*?[{");
    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    size_t slash = literal < bytes ? literal : bytes; /* after the last slash of the directory */
    while (slash > 0 && path[slash - 1] != '/')
        slash--;
    size_t directory_bytes = slash > 1 ? slash - 1 : slash;
    const char *directory = slash ? resolve_again(paths, path, directory_bytes)
                                  : resolve_again(paths, ".", 1);
    if (!directory)
        return NULL;
    char *whole = rp_asprintf("%s/%.*s", strcmp(directory, "/") ? directory : "",
                              (int)(bytes - slash), path + slash);
    size_t folder = strcmp(paths->folder, "/") ? strlen(paths->folder) : 0;
    if (!whole || strncmp(whole, paths->folder, folder) != 0 || whole[folder] != '/')
        return whole;
    char *below = strdup(whole + folder + 1);
    free(whole);
    return below;
}
