/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "object/fetch.h"
#include "object/remote.h"
#include "object/url.h"

#define INDEX_BYTES_MAX (256u << 20)

static int fail_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "out of memory while listing shards");
}

int rp_paths_add(struct rp_paths *paths, const char *path, struct rp_error *error)
{
    bool has_room = RP_GROW(paths->paths, paths->capacity, paths->count + 1);
    char *copy = has_room ? strdup(path) : NULL;
    if (!copy)
        return fail_memory(error);
    paths->paths[paths->count++] = copy;
    return 0;
}

void rp_paths_sort(struct rp_paths *paths)
{
    paths->count = rp_text_sort(paths->paths, paths->count);
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
                                          sizeof *folder->names.paths, rp_text_compare);
}

/* The caller frees it; NULL when out of memory. */
static char *path_in(const struct rp_folder *folder, const char *name)
{
    if (!folder->url)
        return rp_asprintf("%s/%s", folder->path, name);
    char *suffix = rp_asprintf("/%s", name); /* in front of the query of a URL */
    char *url = suffix ? rp_url_companion(folder->url, 0, suffix) : NULL;
    free(suffix);
    return url;
}

int rp_folder_add(const struct rp_folder *folder, const char *name, struct rp_paths *files,
                  struct rp_error *error)
{
    char *path = path_in(folder, name);
    int code = path ? rp_paths_add(files, path, error) : fail_memory(error);
    free(path);
    return code;
}

int rp_folder_read(const struct rp_folder *folder, const char *name, uint64_t bytes_max,
                   char **text_out, size_t *bytes_out, struct rp_error *error)
{
    char *path = path_in(folder, name);
    *text_out = NULL;
    if (!path)
        return fail_memory(error);
    int code = folder->url ? rp_fetch_text(path, bytes_max, text_out, bytes_out, error)
                           : rp_file_read_all(path, bytes_max, text_out, bytes_out, error);
    free(path);
    return code;
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
            code = rp_paths_add(&folder->names, entries[i]->d_name, error);
        free(entries[i]);
    }
    free(entries);
    rp_paths_sort(&folder->names);
    return code;
}

/* ---- folders in stores ----------------------------------------------------------------------- */

static int add_object(void *context, const char *url, struct rp_error *error)
{
    struct rp_folder *folder = context;
    char *whole = rp_url_name(url);
    const char *name = whole ? strrchr(whole, '/') + 1 : "";
    int code = whole ? 0 : fail_memory(error);
    if (code == 0 && name[0] != '.')
        code = rp_paths_add(&folder->names, name, error);
    free(whole);
    return code;
}

/* Without a listing: find the index files, which name the others. */
static int find_indexes(struct rp_folder *folder, struct rp_error *error)
{
    static const char *const indexes[] = {"dataset_dict.json", "index.json", "state.json"};
    int code = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(indexes) && code == 0; i++) {
        char *text;
        size_t bytes;
        code = rp_folder_read(folder, indexes[i], INDEX_BYTES_MAX, &text, &bytes, error);
        if (code == 0)
            code = rp_paths_add(&folder->names, indexes[i], error);
        else if (code == -ENOENT)
            code = 0;
        free(text);
    }
    if (code == 0 && folder->names.count == 0)
        code = rp_fail(error, -RP_E_CONFIG,
                       "name each object, or use the store's s3 or gs URL, which can be listed",
                       "%s/: expected an index.json or a state.json that names the files, found "
                       "neither; http servers have no lists of objects",
                       folder->path);
    return code;
}

/* `path` is the URL with its slash. */
static int list_objects(struct rp_folder *folder, const char *path, struct rp_error *error)
{
    int code = rp_url_can_list(path) ? rp_remote_list(path, add_object, folder, error)
                                     : find_indexes(folder, error);
    rp_paths_sort(&folder->names);
    return code;
}

/* ---- either ---------------------------------------------------------------------------------- */

int rp_folder_list(struct rp_folder *folder, const char *path, struct rp_error *error)
{
    bool is_url = rp_url_is(path);
    char *url = is_url ? rp_url_companion(path, 1, "") : NULL;
    char *name = url ? rp_url_name(url) : is_url ? NULL : strdup(path);
    *folder = (struct rp_folder){.path = name, .url = url};
    if (!name)
        return fail_memory(error);
    return url ? list_objects(folder, path, error) : list_folder(folder, error);
}

void rp_folder_release(struct rp_folder *folder)
{
    rp_paths_release(&folder->names);
    free(folder->url);
    free(folder->path);
}

bool rp_folder_below(const char *path, char *below, size_t bytes)
{
    DIR *directory = opendir(path); /* so it is not empty */
    bool found = false;
    for (struct dirent *entry = directory ? readdir(directory) : NULL; entry && !found;
         entry = readdir(directory)) {
        struct stat info;
        snprintf(below, bytes, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/",
                 entry->d_name);
        found = entry->d_name[0] != '.' && stat(below, &info) == 0 && S_ISDIR(info.st_mode);
    }
    if (directory)
        closedir(directory);
    return found;
}
