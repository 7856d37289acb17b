/* SPDX-License-Identifier: Apache-2.0 */
/* mds_folder.c — a dataset that MDSWriter wrote: index.json has the shards in their order, each
 * with the names of its file (raw_data) and of the compressed file (zip_data). One of the two may
 * be missing. */
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "corpus/readers/index_json.h"
#include "corpus/readers/mds.h"

#define KEY "shards"

/* Whether a file, or its sidecar, exists. In a folder of a store, only listed names count: a file
 * below it, or of a server without lists, is taken to be missing. */
static bool is_there(const struct rp_folder *folder, const char *name)
{
    if (folder->url)
        return rp_folder_has(folder, name);
    return rp_path_exists("%s/%s", folder->path, name) ||
           rp_path_exists("%s/%s.rpi", folder->path, name);
}

static int add_shard(const struct rp_folder *folder, size_t number, const json_t *shard,
                     struct rp_paths *files, struct rp_error *error)
{
    const char *format = json_string_value(json_object_get(shard, "format"));
    const json_t *raw = json_object_get(shard, "raw_data");
    const char *name = json_string_value(json_object_get(raw, "basename"));
    if (!format || strcmp(format, "mds"))
        return rp_index_json_fail(folder, KEY, number, "the format mds", error);
    if (!rp_index_json_is_inside(name))
        return rp_index_json_fail(folder, KEY, number, "the name of a file in the folder", error);
    if (json_is_object(json_object_get(shard, "zip_data")) && !is_there(folder, name))
        return rp_index_json_convert(folder, "MDS shards that are compressed", error);
    return rp_folder_add(folder, name, files, error);
}

int rp_mds_expand(const struct rp_folder *folder, struct rp_paths *files, struct rp_error *error)
{
    json_t *index;
    int code = rp_index_json_load(folder, KEY, &index, error);
    if (code == 1) {
        const json_t *shards = json_object_get(index, KEY);
        code = 0;
        for (size_t i = 0; code == 0 && i < json_array_size(shards); i++)
            code = add_shard(folder, i, json_array_get(shards, i), files, error);
        json_decref(index);
        return code < 0 ? code : files->count > 0;
    }
    for (size_t i = 0; code == 0 && i < folder->names.count; i++)
        if (rp_text_has_suffix(folder->names.paths[i], ".mds"))
            return rp_fail(error, -RP_E_FORMAT,
                           "copy index.json into the folder, or name the files in their order",
                           "%s: MDS shards without index.json, which would say in which order they "
                           "are",
                           folder->path);
    return code;
}
