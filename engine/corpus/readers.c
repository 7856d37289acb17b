/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/readers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "corpus/encoded.h"

/* The folders of raw are any *.bin and *.npy, so it comes last. */
const struct rp_reader *const rp_readers[] = {
    &rp_reader_megatron, &rp_reader_npy,       &rp_reader_llmc,
    &rp_reader_arrow,    &rp_reader_datatrove, &rp_reader_mds,
    &rp_reader_litdata,  &rp_reader_olmo,      &rp_reader_raw,
};
const size_t rp_readers_count = RP_ARRAY_COUNT(rp_readers);

const struct rp_reader *rp_readers_find(enum rp_format format)
{
    for (size_t i = 0; i < rp_readers_count; i++)
        if (rp_readers[i]->format == format)
            return rp_readers[i];
    return NULL;
}

int rp_readers_claim(const struct rp_probe *probe, const struct rp_reader **reader_out,
                     bool by_bytes, char why[256], struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; code == 0 && i < rp_readers_count; i++) {
        *reader_out = rp_readers[i];
        if (rp_readers[i]->claim && !(by_bytes && rp_readers[i]->claims_by_name))
            code = rp_readers[i]->claim(probe, why, error);
    }
    return code;
}

int rp_readers_check_mask(enum rp_format format, const struct rp_mask_choice *choice,
                          const struct rp_mask_origin *origin, const char *path,
                          struct rp_error *error)
{
    const struct rp_reader *reader = rp_readers_find(format);
    bool is_named = !rp_mask_is_none(choice) && !rp_mask_is_auto(choice);
    if (!is_named || origin || !reader->holds_no_mask)
        return rp_mask_check(choice, origin, path, error);
    return rp_fail(
        error, -RP_E_MISMATCH,
        "leave the mask out, and every token is trained; or write the rows with a column "
        "of that name as Parquet, and convert them: `ringpack convert -o PREFIX DIR`",
        "%s: mask: expected %s, found %s, which has only tokens", path, choice->name,
        reader->title);
}

/* ---- folders --------------------------------------------------------------------------------- */

/* A file with a sidecar has a format, even if no reader knows it by its name. */
static int add_indexed(const struct rp_folder *folder, struct rp_paths *files,
                       struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; code == 0 && i < folder->names.count; i++) {
        char name[1024];
        size_t length = strlen(folder->names.paths[i]);
        if (length >= sizeof name || !rp_folder_is_sidecar(folder->names.paths[i]))
            continue;
        memcpy(name, folder->names.paths[i], length - 4);
        name[length - 4] = '\0';
        code = rp_folder_add(folder, name, files, error);
    }
    return code;
}

/* Files that have to be converted first. */
static int refuse_encoded(const struct rp_folder *folder, struct rp_error *error)
{
    const struct rp_encoded *encoded = rp_encoded_of(
        folder->path); /* a data set of one form is a folder */
    for (size_t i = 0; i < folder->names.count && !encoded; i++)
        encoded = rp_encoded_of(folder->names.paths[i]);
    char *path = encoded ? rp_asprintf("%s%s", folder->path, folder->url ? "/" : "") : NULL;
    int code = path ? rp_encoded_refuse(encoded, path, true, error) : 0;
    free(path);
    return code;
}

static int expand(struct rp_folder *folder, struct rp_paths *files, struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; code == 0 && i < rp_readers_count; i++)
        if (rp_readers[i]->expand)
            code = rp_readers[i]->expand(folder, files, error);
    if (code == 0 && folder->url && files->count == 0)
        code = add_indexed(folder, files, error);
    if (code == 0 && files->count == 0)
        code = refuse_encoded(folder, error);
    return code < 0 ? code : 0;
}

int rp_readers_expand(const char *path, struct rp_paths *files, struct rp_error *error)
{
    struct rp_folder folder;
    int code = rp_folder_list(&folder, path, error);
    if (code == 0)
        code = expand(&folder, files, error);
    rp_folder_release(&folder);
    return code;
}

void rp_readers_folders(char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < rp_readers_count; i++)
        if (rp_readers[i]->folders && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "",
                                     rp_readers[i]->folders);
}
