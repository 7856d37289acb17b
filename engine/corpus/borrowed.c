/* SPDX-License-Identifier: Apache-2.0 */
/* borrowed — see borrowed.h. */
#include "corpus/borrowed.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "object/fetch.h"
#include "object/url.h"

static int fail_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "out of memory for a name");
}

/* The last name of a URL, which is that of the file; the caller frees it. */
static char *last_name(const char *url)
{
    char *whole = rp_url_name(url);
    const char *slash = whole ? strrchr(whole, '/') : NULL;
    char *name = slash && slash[1] ? strdup(slash + 1) : NULL;
    free(whole);
    return name;
}

/* Fetch one file. 0 also if there is none and none is needed. */
static int fetch(const struct rp_borrowed *borrowed, const char *url, const char *name,
                 bool is_needed, const struct rp_progress *progress, struct rp_error *error)
{
    char *path = rp_format("%s/%s", borrowed->directory, name);
    int code = path ? rp_fetch_file(url, path, progress ? progress->report : NULL,
                                    progress ? progress->context : NULL, error)
                    : fail_memory(error);
    free(path);
    return code == -ENOENT && !is_needed ? 0 : code;
}

static int fetch_beside(const struct rp_borrowed *borrowed, const char *url, const char *name,
                        const struct rp_beside *beside, struct rp_error *error)
{
    bool of_folder = !strcmp(beside->cut, "/");
    size_t cut = of_folder ? strlen(name) + 1 : strlen(beside->cut);
    if (!of_folder && !rp_url_has_suffix(url, beside->cut))
        return 0;
    char *other = rp_url_beside(url, cut, beside->add);
    char *other_name = other ? last_name(other) : NULL;
    int code = other_name ? fetch(borrowed, other, other_name, false, NULL, error)
                          : fail_memory(error);
    free(other);
    free(other_name);
    return code;
}

static int fetch_by_beginning(const struct rp_borrowed *borrowed, const char *url, const char *name,
                              const struct rp_beside *beside, struct rp_error *error)
{
    size_t cut = strlen(beside->cut);
    if (strncmp(name, beside->cut, cut) != 0)
        return 0;
    char *other_name = rp_format("%s%s", beside->add, name + cut);
    char *add = other_name ? rp_format("/%s", other_name) : NULL;
    char *other = add ? rp_url_beside(url, strlen(name) + 1, add) : NULL;
    int code = other ? fetch(borrowed, other, other_name, false, NULL, error) : fail_memory(error);
    free(other);
    free(add);
    free(other_name);
    return code;
}

static int fetch_all(struct rp_borrowed *borrowed, const char *url,
                     const struct rp_progress *progress, struct rp_error *error)
{
    char *name = last_name(url);
    if (!name)
        return rp_fail(error, -RP_E_USAGE, "name an object", "%.200s: expected an object", url);
    borrowed->path = rp_format("%s/%s", borrowed->directory, name);
    int code = borrowed->path ? fetch(borrowed, url, name, true, progress, error)
                              : fail_memory(error);
    for (size_t i = 0; i < rp_readers_count; i++) {
        const struct rp_beside *beside = rp_readers[i]->beside;
        for (; code == 0 && beside && beside->add; beside++)
            code = fetch_beside(borrowed, url, name, beside, error);
        beside = rp_readers[i]->beside_by_beginning;
        for (; code == 0 && beside && beside->add; beside++)
            code = fetch_by_beginning(borrowed, url, name, beside, error);
    }
    free(name);
    return code;
}

int rp_borrowed_open(struct rp_borrowed *borrowed, const char *url, const char *place,
                     const struct rp_progress *progress, struct rp_error *error)
{
    *borrowed = (struct rp_borrowed){0};
    int code = rp_dir_make(place, error);
    if (code < 0)
        return code;
    borrowed->directory = rp_format("%s/fetched-XXXXXX", place);
    if (!borrowed->directory)
        return fail_memory(error);
    if (!mkdtemp(borrowed->directory)) {
        code = rp_fail(error, -errno, "check its permissions, and the room on its disk",
                       "%s: cannot make a directory in it: %s", place, strerror(errno));
        free(borrowed->directory);
        borrowed->directory = NULL;
        return code;
    }
    code = fetch_all(borrowed, url, progress, error);
    if (code < 0)
        rp_borrowed_close(borrowed);
    return code;
}

void rp_borrowed_close(struct rp_borrowed *borrowed)
{
    DIR *directory = borrowed->directory ? opendir(borrowed->directory) : NULL;
    for (struct dirent *entry = directory ? readdir(directory) : NULL; entry;
         entry = readdir(directory))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory)
        closedir(directory);
    if (borrowed->directory)
        rmdir(borrowed->directory);
    free(borrowed->directory);
    free(borrowed->path);
    *borrowed = (struct rp_borrowed){0};
}
