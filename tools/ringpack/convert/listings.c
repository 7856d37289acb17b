/* SPDX-License-Identifier: Apache-2.0 */
/* listings.c — directories whose files are in the order of a list of their own: by name,
 * chunk-0-10 would come before chunk-0-2. */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "convert/convert.h"

#define LISTING_BYTES_MAX (256u << 20)

/* A list `array` in the file `file` has an object for each data file, and its name under `name`;
 * in MDS one level deeper, and under another key where the file is compressed. */
static const struct {
    const char *file, *array, *name, *inner, *inner_packed, *form;
} listings[] = {
    {"index.json", "shards", "basename", "raw_data", "zip_data", "mds"},
    {"index.json", "chunks", "filename", NULL, NULL, "litdata"},
    {"state.json", "_data_files", "filename", NULL, NULL, "arrow"},
};

/* The name of a data file of an entry; of a file that is there compressed as well, that name. */
static const char *listed_name(const struct rp_named_files *listing, size_t which,
                               const json_t *entry)
{
    if (!listings[which].inner)
        return json_string_value(json_object_get(entry, listings[which].name));
    const json_t *packed = json_object_get(entry, listings[which].inner_packed);
    const json_t *plain = json_object_get(entry, listings[which].inner);
    const char *name = json_string_value(json_object_get(packed, listings[which].name));
    return name && listing->is_there(listing->context, name)
               ? name
               : json_string_value(json_object_get(plain, listings[which].name));
}

static int add_listed(const struct rp_named_files *listing, size_t which, const json_t *list,
                      struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; i < json_array_size(list) && code == 0; i++) {
        const char *name = listed_name(listing, which, json_array_get(list, i));
        if (!name || !*name || strchr(name, '/'))
            return rp_fail(error, -RP_E_FORMAT, "is the directory of the form that its list says?",
                           "%s/%s: entry %zu of `%s`: expected the name of a file",
                           listing->directory, listings[which].file, i, listings[which].array);
        code = listing->add(listing->context, name, rp_form_named(listings[which].form), error);
    }
    return code;
}

int rp_named_files_read(const struct rp_named_files *listing, const char *file, const char *text,
                        size_t bytes, struct rp_error *error)
{
    json_t *root = json_loadb(text, bytes, 0, NULL);
    int code = 0;
    if (json_array_size(json_object_get(root, "_indices_data_files")) > 0)
        code = rp_fail(
            error, -RP_E_FORMAT, "write it again with `flatten_indices()` before `save_to_disk`",
            "%s/%s: expected rows in the order of its files, found a list of their order",
            listing->directory, file);
    for (size_t i = 0; i < RP_ARRAY_COUNT(listings) && code == 0; i++) {
        json_t *list = json_object_get(root, listings[i].array);
        if (strcmp(listings[i].file, file) || !json_is_array(list))
            continue;
        code = add_listed(listing, i, list, error);
        code = code < 0 ? code : 1;
    }
    json_decref(root);
    return code;
}

/* ---- of a directory -------------------------------------------------------------------------- */

struct listed {
    struct rp_inputs *inputs;
    const char *directory;
};

static bool is_there(void *context, const char *name)
{
    const struct listed *listed = context;
    return rp_path_exists("%s/%s", listed->directory, name);
}

static int add_file(void *context, const char *name, const struct rp_form *form,
                    struct rp_error *error)
{
    const struct listed *listed = context;
    char *path = rp_asprintf("%s/%s", listed->directory, name);
    int code = path ? rp_inputs_add_file(listed->inputs, path, form, true, error)
                    : rp_fail(error, -ENOMEM, NULL, "no memory for the name of a file");
    free(path);
    return code;
}

static int add_from(struct rp_inputs *inputs, const char *directory, const char *path,
                    const char *file, struct rp_error *error)
{
    struct listed listed = {inputs, directory};
    const struct rp_named_files listing = {directory, is_there, add_file, &listed};
    char *text = NULL;
    size_t bytes = 0;
    int code = rp_file_read_all(path, LISTING_BYTES_MAX, &text, &bytes, error);
    if (code == 0)
        code = rp_named_files_read(&listing, file, text, bytes, error);
    free(text);
    return code;
}

int rp_inputs_add_listing(struct rp_inputs *inputs, const char *directory, struct rp_error *error)
{
    static const char *const files[] = {"index.json", "state.json"};
    int code = 0;
    if (rp_path_exists("%s/dataset_dict.json", directory))
        code = rp_fail(error, -RP_E_USAGE, "name the directory of one split, for instance train",
                       "%s: expected one data set, found several splits", directory);
    for (size_t i = 0; i < RP_ARRAY_COUNT(files) && code == 0; i++) {
        char *path = rp_asprintf("%s/%s", directory, files[i]);
        if (!path)
            return rp_fail(error, -ENOMEM, NULL, "no memory for the name of a file");
        if (access(path, F_OK) == 0)
            code = add_from(inputs, directory, path, files[i], error);
        free(path);
    }
    return code;
}
