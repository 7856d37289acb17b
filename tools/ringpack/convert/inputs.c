/* SPDX-License-Identifier: Apache-2.0 */
/* inputs.c — which files are read, and in which order: bytewise by path, whatever the file
 * system or the locale says. Links inside a directory are not followed: they would repeat text, or
 * never end. */
#include <errno.h>
#include <fnmatch.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "convert/convert.h"
#include "interrupt.h"

static int add_file(struct rp_inputs *inputs, const char *path, uint64_t bytes, bool named,
                    struct rp_error *error)
{
    if (inputs->count == inputs->capacity) {
        size_t capacity = inputs->capacity ? 2 * inputs->capacity : 256;
        struct rp_input *files = reallocarray(inputs->files, capacity, sizeof *files);
        if (!files)
            return rp_fail(error, -ENOMEM, NULL, "no memory for a list of %zu files", capacity);
        inputs->files = files;
        inputs->capacity = capacity;
    }
    struct rp_input *file = &inputs->files[inputs->count];
    *file = (struct rp_input){strdup(path), bytes, named};
    if (!file->path)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the name of a file");
    inputs->count++;
    inputs->bytes += bytes;
    return 0;
}

static bool selected(const char *below, const char *const *globs, size_t glob_count)
{
    const char *slash = strrchr(below, '/');
    for (size_t i = 0; i < glob_count; i++) {
        const char *subject = strchr(globs[i], '/') || !slash ? below : slash + 1;
        if (fnmatch(globs[i], subject, 0) == 0)
            return true;
    }
    return glob_count == 0;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const struct rp_input *)a)->path, ((const struct rp_input *)b)->path);
}

static int add_tree(struct rp_inputs *inputs, const char *root, const char *const *globs,
                    size_t glob_count, struct rp_error *error)
{
    char *name = strdup(root);
    if (!name)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", root);
    for (size_t length = strlen(name); length > 1 && name[length - 1] == '/';)
        name[--length] = 0; /* one way to write the paths below it */
    char *const roots[] = {name, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    size_t first = inputs->count;
    int code = tree ? 0
                    : rp_fail(error, -errno, NULL, "%s: cannot list: %s", root, strerror(errno));
    for (FTSENT *entry; code == 0 && (errno = 0, entry = fts_read(tree)) != NULL;) {
        if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS)
            inputs->unreadable++;
        if (entry->fts_info != FTS_F || !S_ISREG(entry->fts_statp->st_mode))
            continue;
        const char *below = entry->fts_path + strlen(name);
        below += strspn(below, "/");
        if (selected(below, globs, glob_count))
            code = add_file(inputs, entry->fts_path, (uint64_t)entry->fts_statp->st_size, false,
                            error);
        if (rp_interrupted())
            break;
    }
    if (code == 0 && errno != 0)
        code = rp_fail(error, -errno, NULL, "%s: cannot list: %s", root, strerror(errno));
    if (tree)
        fts_close(tree);
    free(name);
    if (inputs->count > first)
        qsort(inputs->files + first, inputs->count - first, sizeof *inputs->files, compare_paths);
    return code;
}

int rp_inputs_add(struct rp_inputs *inputs, const char *path, const char *const *globs,
                  size_t glob_count, struct rp_error *error)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return rp_fail(error, -errno, NULL, "%s: cannot open: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return add_tree(inputs, path, globs, glob_count, error);
    /* What is no file is refused when it is opened. */
    return add_file(inputs, path, (uint64_t)info.st_size, true, error);
}

void rp_inputs_release(struct rp_inputs *inputs)
{
    for (size_t i = 0; i < inputs->count; i++)
        free(inputs->files[i].path);
    free(inputs->files);
    *inputs = (struct rp_inputs){0};
}
