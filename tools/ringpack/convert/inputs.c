/* SPDX-License-Identifier: Apache-2.0 */
/* inputs.c — the files to read, in their order: bytewise by path, whatever the file system or the
 * locale says. Links inside a directory are not followed: they would repeat text, or never end.
 * Links in the cache of the Hugging Face Hub are followed: it has them in place of files. */
#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "convert/convert.h"
#include "interrupt.h"
#include "object/url.h"

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const struct rp_input *)a)->path, ((const struct rp_input *)b)->path);
}

/* In the cache of the Hugging Face Hub every file is a link to its content in a folder `blobs`. */
static bool is_link_to_blob(const FTSENT *entry)
{
    char target[PATH_MAX];
    struct stat info;
    ssize_t bytes = entry->fts_info == FTS_SL ? readlink(entry->fts_accpath, target, sizeof target)
                                              : -1;
    return bytes > 0 && memmem(target, (size_t)bytes, "/blobs/", 7) &&
           stat(entry->fts_accpath, &info) == 0 && S_ISREG(info.st_mode);
}

/* Is it below the named directory, and does its name begin with a dot? .git, .DS_Store and
 * .ipynb_checkpoints are no documents. */
static bool is_hidden(const FTSENT *entry)
{
    return entry->fts_level > FTS_ROOTLEVEL && entry->fts_name[0] == '.';
}

/* One entry of a directory tree: a regular file, or a directory that is one data set. */
static int add_entry(struct rp_inputs *inputs, FTS *tree, FTSENT *entry, size_t root_length,
                     struct rp_error *error)
{
    if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS)
        inputs->unreadable++;
    if (is_hidden(entry)) {
        inputs->hidden += entry->fts_info != FTS_DP; /* a directory comes twice */
        if (entry->fts_info == FTS_D)
            fts_set(tree, entry, FTS_SKIP);
        return 0;
    }
    bool data_set = entry->fts_info == FTS_D && rp_text_has_suffix(entry->fts_name, ".lance");
    bool regular = entry->fts_info == FTS_F && S_ISREG(entry->fts_statp->st_mode);
    if (data_set)
        fts_set(tree, entry, FTS_SKIP);
    const char *below = entry->fts_path + root_length;
    below += strspn(below, "/");
    struct stat target;
    bool is_link = entry->fts_info == FTS_SL && !is_link_to_blob(entry);
    if ((!data_set && !regular && entry->fts_info != FTS_SL) || !rp_inputs_select(inputs, below))
        return 0;
    inputs->links += is_link && stat(entry->fts_accpath, &target) == 0 && S_ISREG(target.st_mode);
    if (is_link)
        return 0;
    const struct rp_form *form = rp_form_of(entry->fts_path);
    if (form->reading == RP_READ_REFUSED) /* skipped and counted, as any other binary file */
        form = rp_form_named("text");
    return rp_inputs_add_file(inputs, entry->fts_path, form, false, error);
}

static int add_tree(struct rp_inputs *inputs, const char *root, struct rp_error *error)
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
        code = add_entry(inputs, tree, entry, strlen(name), error);
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
    if (code == 0)
        rp_inputs_leave_out_text(inputs, first);
    return code;
}

/* A Megatron data set may be named by its prefix, its token file or its index. */
static char *megatron_index(const char *path)
{
    size_t stem = strlen(path);
    if (rp_text_has_suffix(path, ".bin") || rp_text_has_suffix(path, ".idx"))
        stem -= 4;
    char *index = rp_asprintf("%.*s.idx", (int)stem, path);
    if (index && access(index, F_OK) == 0)
        return index;
    free(index);
    return NULL;
}

int rp_inputs_add(struct rp_inputs *inputs, const char *path, struct rp_error *error)
{
    struct stat info;
    if (rp_url_is(path))
        return rp_inputs_add_url(inputs, path, error);
    bool as_text = inputs->as && inputs->as->reading <= RP_READ_JSONL;
    char *index = as_text ? NULL : megatron_index(path);
    if (index) {
        int code = rp_inputs_add_file(inputs, index, rp_form_named("megatron"), true, error);
        free(index);
        return code;
    }
    if (stat(path, &info) < 0)
        return rp_fail(error, -errno, NULL, "%s: cannot open: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode) && !rp_text_has_suffix(path, ".lance")) {
        int code = as_text ? 0 : rp_inputs_add_listing(inputs, path, error);
        if (code == 0)
            code = add_tree(inputs, path, error);
        return code < 0 ? code : 0;
    }
    /* A path that is no file is refused when it is opened. */
    return rp_inputs_add_file(inputs, path, rp_form_of(path), true, error);
}
