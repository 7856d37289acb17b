/* SPDX-License-Identifier: Apache-2.0 */
/* folder — see folder.h. */
#include "corpus/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "corpus/readers.h"

int rp_paths_add(struct rp_paths *paths, const char *directory, const char *name,
                 struct rp_error *error)
{
    if (paths->count == paths->capacity) {
        size_t capacity = 2 * paths->capacity + 16;
        char **grown = realloc(paths->paths, capacity * sizeof *grown);
        if (!grown)
            return rp_fail(error, -ENOMEM, NULL, "out of memory while listing shards");
        paths->paths = grown;
        paths->capacity = capacity;
    }
    char *path = directory ? rp_format("%s/%s", directory, name) : strdup(name);
    if (!path)
        return rp_fail(error, -ENOMEM, NULL, "out of memory while listing shards");
    paths->paths[paths->count++] = path;
    return 0;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void rp_paths_sort(struct rp_paths *paths)
{
    size_t kept = 0;
    if (paths->count > 1)
        qsort(paths->paths, paths->count, sizeof *paths->paths, compare_texts);
    for (size_t i = 0; i < paths->count; i++) {
        if (kept > 0 && !strcmp(paths->paths[kept - 1], paths->paths[i]))
            free(paths->paths[i]);
        else
            paths->paths[kept++] = paths->paths[i];
    }
    paths->count = kept;
}

void rp_paths_release(struct rp_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        free(paths->paths[i]);
    free(paths->paths);
    *paths = (struct rp_paths){0};
}

bool rp_folder_has(const struct rp_folder *folder, const char *name)
{
    return folder->names.count && bsearch(&name, folder->names.paths, folder->names.count,
                                          sizeof *folder->names.paths, compare_texts);
}

static int list_folder(struct rp_folder *folder, struct rp_error *error)
{
    struct dirent **entries;
    int count = scandir(folder->path, &entries, NULL, NULL);
    if (count < 0)
        return rp_fail(error, -errno, "check the permissions of the directory",
                       "%s: cannot be listed: %s", folder->path, strerror(errno));
    int code = 0;
    for (int i = 0; i < count; i++) {
        if (code == 0 && entries[i]->d_name[0] != '.')
            code = rp_paths_add(&folder->names, NULL, entries[i]->d_name, error);
        free(entries[i]);
    }
    free(entries);
    rp_paths_sort(&folder->names);
    return code;
}

int rp_folder_expand(const char *path, struct rp_paths *files, struct rp_error *error)
{
    struct rp_folder folder = {.path = path};
    int code = list_folder(&folder, error);
    for (size_t i = 0; code == 0 && i < rp_readers_count; i++)
        if (rp_readers[i]->expand)
            code = rp_readers[i]->expand(&folder, files, error);
    rp_paths_release(&folder.names);
    return code < 0 ? code : 0;
}

void rp_folder_forms(char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < rp_readers_count; i++)
        if (rp_readers[i]->folders && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "",
                                     rp_readers[i]->folders);
}
