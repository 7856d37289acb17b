/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/staged_shard.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "object/fetch.h"
#include "object/url.h"

#define PREFIX "fetched-" /* begins the names of directories */

static int fail_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "out of memory for a name");
}

/* The last name of a URL, which is the name of the file; the caller frees it. */
static char *last_name(const char *url)
{
    char *whole = rp_url_name(url);
    const char *slash = whole ? strrchr(whole, '/') : NULL;
    char *name = slash && slash[1] ? strdup(slash + 1) : NULL;
    free(whole);
    return name;
}

/* The path of the copy of an object; the caller frees it. */
static char *copy_path(const struct rp_staged_shard *staged, const char *url)
{
    char *name = last_name(url);
    char *path = name ? rp_asprintf("%s/%s", staged->directory, name) : NULL;
    free(name);
    return path;
}

/* The URL of a companion of an object, with `name` as its last name. NULL: the object has none of
 * the kind, or *code is the error. */
static char *companion_url(const char *url, const char *name, const struct rp_companion *companion,
                           bool by_beginning, int *code)
{
    bool of_folder = !by_beginning && !strcmp(companion->cut, "/");
    size_t cut = strlen(companion->cut), name_bytes = strlen(name);
    if (by_beginning ? strncmp(name, companion->cut, cut) != 0
                     : !of_folder && !rp_url_has_suffix(url, companion->cut))
        return NULL;
    char *add = by_beginning ? rp_asprintf("/%s%s", companion->add, name + cut)
                             : strdup(companion->add);
    char *other = add ? rp_url_companion(url, by_beginning || of_folder ? name_bytes + 1 : cut, add)
                      : NULL;
    free(add);
    *code = other ? 0 : -ENOMEM;
    return other;
}

static int add_companions(struct rp_paths *urls, const char *url, const char *name,
                          const struct rp_companion *companion, bool by_beginning,
                          struct rp_error *error)
{
    int code = 0;
    for (; code == 0 && companion && companion->add; companion++) {
        char *other = companion_url(url, name, companion, by_beginning, &code);
        if (code < 0)
            return fail_memory(error);
        if (other)
            code = rp_paths_add(urls, other, error);
        free(other);
    }
    return code;
}

int rp_staged_shard_companions(const char *url, struct rp_paths *urls, struct rp_error *error)
{
    char *name = last_name(url);
    int code = 0;
    if (!name)
        return rp_fail(error, -RP_E_USAGE, "name an object", "%.200s: expected an object", url);
    for (size_t i = 0; i < rp_readers_count && code == 0; i++) {
        code = add_companions(urls, url, name, rp_readers[i]->companions, false, error);
        if (code == 0)
            code = add_companions(urls, url, name, rp_readers[i]->companions_by_beginning, true,
                                  error);
    }
    free(name);
    return code;
}

static int fetch_all(struct rp_staged_shard *staged, const char *url, const char *identity,
                     const struct rp_progress *progress, struct rp_error *error)
{
    struct rp_paths others = {0};
    int code = rp_staged_shard_companions(url, &others, error);
    if (code == 0)
        staged->path = copy_path(staged, url);
    if (code == 0)
        code = staged->path ? rp_fetch_file(url, staged->path, identity, progress, error)
                            : fail_memory(error);
    for (size_t i = 0; i < others.count && code == 0; i++) {
        char *path = copy_path(staged, others.paths[i]);
        code = path ? rp_fetch_file(others.paths[i], path, NULL, NULL, error) : fail_memory(error);
        code = code == -ENOENT ? 0 : code; /* a companion may be missing */
        free(path);
    }
    rp_paths_release(&others);
    return code;
}

int rp_staged_shard_open(struct rp_staged_shard *staged, const char *url, const char *identity,
                         const char *place, const struct rp_progress *progress,
                         struct rp_error *error)
{
    *staged = (struct rp_staged_shard){0};
    int code = rp_dir_make(place, error);
    if (code < 0)
        return code;
    staged->directory = rp_asprintf("%s/" PREFIX "XXXXXX", place);
    if (!staged->directory)
        return fail_memory(error);
    if (!mkdtemp(staged->directory)) {
        code = rp_fail(error, -errno, "check its permissions, and the room on its disk",
                       "%s: cannot make a directory in it: %s", place, strerror(errno));
        free(staged->directory);
        staged->directory = NULL;
        return code;
    }
    code = fetch_all(staged, url, identity, progress, error);
    if (code < 0)
        rp_staged_shard_close(staged);
    return code;
}

/* Remove a directory of files. */
static void remove_directory(const char *path)
{
    DIR *directory = opendir(path);
    for (struct dirent *entry = directory ? readdir(directory) : NULL; entry;
         entry = readdir(directory))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory)
        closedir(directory);
    rmdir(path);
}

void rp_staged_shard_close(struct rp_staged_shard *staged)
{
    if (staged->directory)
        remove_directory(staged->directory);
    free(staged->directory);
    free(staged->path);
    *staged = (struct rp_staged_shard){0};
}

void rp_staged_shard_sweep(const char *place)
{
    DIR *directory = opendir(place);
    for (struct dirent *entry = directory ? readdir(directory) : NULL; entry;
         entry = readdir(directory)) {
        bool is_staged = !strncmp(entry->d_name, PREFIX, strlen(PREFIX));
        char *path = is_staged ? rp_asprintf("%s/%s", place, entry->d_name) : NULL;
        if (path)
            remove_directory(path);
        free(path);
    }
    if (directory)
        closedir(directory);
}
