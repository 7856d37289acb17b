/* SPDX-License-Identifier: Apache-2.0 */
/* input_list.c — the list of files to convert. */
#include <errno.h>
#include <fnmatch.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/text.h"
#include "convert/convert.h"
#include "object/url.h"

bool rp_inputs_select(const struct rp_inputs *inputs, const char *below)
{
    for (size_t i = 0; i < inputs->glob_count; i++) {
        const char *glob = inputs->globs[i];
        if (fnmatch(glob, strchr(glob, '/') ? below : rp_path_name(below), 0) == 0)
            return true;
    }
    return inputs->glob_count == 0;
}

static void release(struct rp_input *input)
{
    free(input->path);
    free(input->url);
}

/* The list owns the memory of the file, also after a failure. */
static int append(struct rp_inputs *inputs, struct rp_input added, struct rp_error *error)
{
    size_t count = inputs->count + 1;
    if (!RP_GROW(inputs->files, inputs->capacity, count)) {
        release(&added);
        return rp_fail(error, -ENOMEM, NULL, "no memory for a list of %zu files", count);
    }
    inputs->files[inputs->count++] = added;
    inputs->bytes += added.bytes;
    return added.path ? 0 : rp_fail(error, -ENOMEM, NULL, "no memory for the name of a file");
}

static int check_form(const struct rp_inputs *inputs, const char *name, const struct rp_form *form,
                      struct rp_error *error)
{
    return form->reading == RP_READ_REFUSED && !inputs->as
               ? rp_fail(error, -RP_E_FORMAT, form->refusal, "%s: expected data, found a `%s` file",
                         name, form->name)
               : 0;
}

static uint64_t time_of(const struct stat *info)
{
    return (uint64_t)info->st_mtim.tv_sec * 1000000000u + (uint64_t)info->st_mtim.tv_nsec;
}

static void add_stamp(struct rp_hasher *hasher, const char *path, const struct stat *info)
{
    const uint64_t numbers[] = {(uint64_t)info->st_size, time_of(info)};
    rp_hasher_add(hasher, path, strlen(path) + 1);
    rp_hasher_add(hasher, numbers, sizeof numbers);
}

static int compare_names(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* The names, sizes and times of all files of a folder that is one input. */
static uint64_t folder_stamp(const char *folder)
{
    struct rp_hasher hasher;
    char *name = strdup(folder), *const roots[] = {name, NULL};
    FTS *tree = name ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, compare_names) : NULL;
    rp_hasher_begin(&hasher);
    for (FTSENT *entry; tree && (entry = fts_read(tree)) != NULL;)
        if (entry->fts_info == FTS_F)
            add_stamp(&hasher, entry->fts_path, entry->fts_statp);
    if (tree)
        fts_close(tree);
    free(name);
    return rp_hasher_finish(&hasher).low;
}

/* The times of an index and of its token file. */
static uint64_t megatron_stamp(const char *path, const struct stat *index)
{
    struct rp_hasher hasher;
    struct stat tokens;
    char *name = rp_asprintf("%.*s.bin", (int)(strlen(path) - strlen(".idx")), path);
    rp_hasher_begin(&hasher);
    add_stamp(&hasher, "", index);
    if (name && stat(name, &tokens) == 0)
        add_stamp(&hasher, "", &tokens);
    free(name);
    return rp_hasher_finish(&hasher).low;
}

/* A number that changes with the content. */
static uint64_t stamp_of(const char *path, const struct stat *info, bool is_folder,
                         const struct rp_form *form)
{
    if (is_folder && S_ISDIR(info->st_mode))
        return folder_stamp(path);
    if (is_folder) {
        char *folder = rp_path_directory(path);
        uint64_t stamp = folder ? folder_stamp(folder) : 0;
        free(folder);
        return stamp;
    }
    if (form->reading == RP_READ_MEGATRON && rp_text_has_suffix(path, ".idx"))
        return megatron_stamp(path, info);
    return time_of(info);
}

int rp_inputs_add_file(struct rp_inputs *inputs, const char *path, const struct rp_form *form,
                       bool named, struct rp_error *error)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return rp_fail(error, -errno, NULL, "%s: cannot open: %s", path, strerror(errno));
    int code = check_form(inputs, path, form, error);
    const struct rp_form *taken = inputs->as ? inputs->as : form;
    bool is_folder = S_ISDIR(info.st_mode) || !strcmp(taken->name, "levanter");
    const struct rp_input file = {
        .path = code == 0 ? strdup(path) : NULL,
        .bytes = (uint64_t)info.st_size,
        .mtime_ns = stamp_of(path, &info, is_folder, taken),
        .is_folder = is_folder,
        .form = taken,
        .named = named,
    };
    return code == 0 ? append(inputs, file, error) : code;
}

int rp_inputs_add_object(struct rp_inputs *inputs, const char *url,
                         const struct rp_remote_stat *stat, const struct rp_form *form, bool named,
                         struct rp_error *error)
{
    char *name = rp_url_name(url), *copy = strdup(url);
    int code = name && copy ? check_form(inputs, name, form, error)
                            : rp_fail(error, -ENOMEM, NULL, "no memory for the name of an object");
    if (code < 0) {
        free(name);
        free(copy);
        return code;
    }
    const struct rp_input object = {.path = name,
                                    .url = copy,
                                    .bytes = stat->bytes,
                                    .mtime_ns = stat->identity,
                                    .form = inputs->as ? inputs->as : form,
                                    .named = named};
    return append(inputs, object, error);
}

void rp_inputs_leave_out_text(struct rp_inputs *inputs, size_t first)
{
    bool records = false;
    for (size_t i = first; i < inputs->count; i++)
        records |= inputs->files[i].form->reading == RP_READ_WORKER ||
                   inputs->files[i].form->reading == RP_READ_MEGATRON;
    size_t kept = first;
    for (size_t i = first; i < inputs->count; i++) {
        enum rp_reading reading = inputs->files[i].form->reading;
        if (!records || (reading != RP_READ_TEXT && reading != RP_READ_JSON)) {
            inputs->files[kept++] = inputs->files[i];
            continue;
        }
        inputs->beside++;
        inputs->bytes -= inputs->files[i].bytes;
        release(&inputs->files[i]);
    }
    inputs->count = kept;
}

void rp_inputs_release(struct rp_inputs *inputs)
{
    for (size_t i = 0; i < inputs->count; i++)
        release(&inputs->files[i]);
    free(inputs->files);
    *inputs = (struct rp_inputs){0};
}
