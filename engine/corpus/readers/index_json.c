/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/readers/index_json.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define FILE_NAME "index.json"

int rp_folder_json(const struct rp_folder *folder, const char *name, const char *hint,
                   json_t **json_out, struct rp_error *error)
{
    json_error_t problem;
    char *text = NULL;
    size_t bytes = 0;
    int code = rp_folder_read(folder, name, RP_INDEX_JSON_BYTES_MAX, &text, &bytes, error);
    *json_out = code == 0 ? json_loadb(text, bytes, 0, &problem) : NULL;
    if (code == 0 && !*json_out)
        code = rp_fail(error, -RP_E_FORMAT, hint, "%s/%s: expected JSON, found: %s", folder->path,
                       name, problem.text);
    free(text);
    return code;
}

int rp_index_json_load(const struct rp_folder *folder, const char *key, json_t **index_out,
                       struct rp_error *error)
{
    if (!rp_folder_has(folder, FILE_NAME))
        return 0;
    int code = rp_folder_json(folder, FILE_NAME, "copy or write the dataset again", index_out,
                              error);
    if (code < 0 || json_is_array(json_object_get(*index_out, key)))
        return code < 0 ? code : 1;
    json_decref(*index_out);
    return 0;
}

bool rp_index_json_is_inside(const char *name)
{
    if (!name || !name[0] || name[0] == '/')
        return false;
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (!strncmp(part, "..", 2) && (part[2] == '/' || part[2] == '\0'))
            return false;
    }
    return true;
}

int rp_index_json_fail(const struct rp_folder *folder, const char *key, size_t number,
                       const char *expected, struct rp_error *error)
{
    return rp_fail(error, -RP_E_FORMAT, "copy or write the dataset again",
                   "%s/" FILE_NAME ": entry %zu of `%s`: expected %s", folder->path, number, key,
                   expected);
}

int rp_index_json_convert(const struct rp_folder *folder, const char *found, struct rp_error *error)
{
    char *url = folder->url ? rp_asprintf("%s/", folder->path) : NULL; /* as convert wants it */
    const struct rp_probe probe = {.path = url ? url : folder->path};
    int code = rp_readers_convert(&probe, found, error);
    free(url);
    return code;
}
