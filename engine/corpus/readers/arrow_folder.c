/* SPDX-License-Identifier: Apache-2.0 */
/* arrow_folder.c — folders of Hugging Face datasets:
 *
 *     save_to_disk   state.json lists the files, in order
 *     a DatasetDict  dataset_dict.json, and such a folder for each split
 *     load_dataset   its cache: dataset_info.json has the splits; the files of a split are
 *                    NAME-SPLIT.arrow or NAME-SPLIT-00000-of-00002.arrow */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "corpus/readers/arrow.h"
#include "corpus/readers/index_json.h"

#define SAVE_AGAIN "save the dataset again (save_to_disk)"

static int fail_splits(const struct rp_folder *folder, struct rp_error *error)
{
    char hint[sizeof error->hint];
    size_t used = (size_t)snprintf(hint, sizeof hint, "name the folder of one:");
    json_t *dict, *split;
    size_t i;
    int code = rp_folder_json(folder, "dataset_dict.json", SAVE_AGAIN, &dict, error);
    if (code < 0)
        return code;
    json_array_foreach(json_object_get(dict, "splits"), i,
                       split) if (json_is_string(split) && used < sizeof hint)
        used += (size_t)snprintf(hint + used, sizeof hint - used, " %s/%s%s", folder->path,
                                 json_string_value(split), folder->url ? "/" : "");
    json_decref(dict);
    return rp_fail(error, -RP_E_FORMAT, hint,
                   "%s: expected one split of a dataset, found a DatasetDict", folder->path);
}

static int fail_state(const struct rp_folder *folder, const char *what, struct rp_error *error)
{
    return rp_fail(error, -RP_E_FORMAT, SAVE_AGAIN, "%s/state.json: %s", folder->path, what);
}

static int add_files(const struct rp_folder *folder, const json_t *state, struct rp_paths *files,
                     struct rp_error *error)
{
    const json_t *list = json_object_get(state, "_data_files");
    const json_t *indices = json_object_get(state, "_indices_data_files");
    if (json_array_size(indices) > 0)
        return rp_fail(error, -RP_E_FORMAT,
                       "flatten_indices() and save_to_disk() write the rows in their order",
                       "%s: its rows are chosen by indices (shuffle, select or filter), which are "
                       "not applied",
                       folder->path);
    if (json_array_size(list) == 0)
        return fail_state(folder, "expected a list _data_files, found none", error);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(list, i), "filename"));
        if (!name || !name[0] || strchr(name, '/'))
            return fail_state(folder, "expected the name of a file next to it in _data_files",
                              error);
        int code = rp_folder_add(folder, name, files, error);
        if (code < 0)
            return code;
    }
    return 1;
}

/* ---- the cache of load_dataset --------------------------------------------------------------- */

/* Add the files of a split. 1: all are there. 0: the cache has none. */
static int add_split(const struct rp_folder *folder, const char *stem, struct rp_paths *files,
                     struct rp_error *error)
{
    size_t length = strlen(stem), found = 0, expected = 0;
    int code = 0;
    for (size_t i = 0; i < folder->names.count && code == 0; i++) {
        const char *name = folder->names.paths[i];
        unsigned number, count = 1;
        int used = 0;
        if (strncmp(name, stem, length) != 0)
            continue;
        if (sscanf(name + length, "-%5u-of-%5u.arrow%n", &number, &count, &used) < 2 || !used)
            used = strcmp(name + length, ".arrow") ? 0 : 6;
        if (!used || name[length + (size_t)used])
            continue;
        expected = count;
        found++;
        code = rp_folder_add(folder, name, files, error);
    }
    if (code == 0 && found != expected)
        code = rp_fail(error, -RP_E_CORRUPT, "load the dataset again, or copy all of its files",
                       "%s: %s: expected %zu Arrow files, found %zu", folder->path, stem, expected,
                       found);
    return code < 0 ? code : found > 0;
}

static int fail_cached_splits(const struct rp_folder *folder, const char *name, json_t *splits,
                              struct rp_error *error)
{
    char hint[sizeof error->hint];
    size_t used = (size_t)snprintf(hint, sizeof hint, "name the files of one:");
    for (void *at = json_object_iter(splits); at && used < sizeof hint;
         at = json_object_iter_next(splits, at))
        used += (size_t)snprintf(hint + used, sizeof hint - used, " '%s/%s-%s*.arrow'",
                                 folder->path, name, json_object_iter_key(at));
    return rp_fail(error, -RP_E_FORMAT, hint,
                   "%s: expected one split of a dataset, found the cache of %zu", folder->path,
                   json_object_size(splits));
}

/* 0: the folder is no such cache. */
static int expand_cache(const struct rp_folder *folder, struct rp_paths *files,
                        struct rp_error *error)
{
    json_t *info;
    int code = rp_folder_json(folder, "dataset_info.json", SAVE_AGAIN, &info, error);
    json_t *splits = json_object_get(info, "splits");
    const char *name = json_string_value(json_object_get(info, "dataset_name"));
    if (code == 0 && name && json_object_size(splits) > 1) {
        code = fail_cached_splits(folder, name, splits, error);
    } else if (code == 0 && name && json_object_size(splits) == 1) {
        char *stem = rp_asprintf("%s-%s", name, json_object_iter_key(json_object_iter(splits)));
        code = stem ? add_split(folder, stem, files, error)
                    : rp_fail(error, -ENOMEM, NULL, "out of memory while listing shards");
        free(stem);
    }
    json_decref(info);
    return code;
}

int rp_arrow_expand(const struct rp_folder *folder, struct rp_paths *files, struct rp_error *error)
{
    if (rp_folder_has(folder, "dataset_dict.json"))
        return fail_splits(folder, error);
    if (rp_folder_has(folder, "state.json")) {
        json_t *state;
        int code = rp_folder_json(folder, "state.json", SAVE_AGAIN, &state, error);
        if (code == 0)
            code = add_files(folder, state, files, error);
        json_decref(state);
        return code;
    }
    if (rp_folder_has(folder, "dataset_info.json")) {
        int code = expand_cache(folder, files, error);
        if (code != 0)
            return code;
    }
    bool has_arrow = false;
    for (size_t i = 0; i < folder->names.count; i++) {
        const char *name = folder->names.paths[i];
        if (rp_text_has_suffix(name, ".bin") || rp_text_has_suffix(name, ".npy"))
            return 0; /* another reader's */
        has_arrow |= rp_text_has_suffix(name, ".arrow");
    }
    return has_arrow
               ? rp_fail(error, -RP_E_FORMAT,
                         "name the files or a pattern, for instance DIR/NAME-train-*.arrow",
                         "%s: Arrow files without state.json, which would say which of them are "
                         "one dataset and in which order",
                         folder->path)
               : 0;
}
