/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.c — folders of NAME.bin + NAME.idx. The .idx gives their format (format.c) and is
 * mapped as it is (corpus/megatron.h), so no walk is needed. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "corpus/reader.h"

/* A token file that is left out because it lacks the index that others of its folder have: perhaps
 * it was lost, and without this message its tokens would be missing in silence. */
static void warn_of_no_index(const struct rp_folder *folder, const char *name)
{
    if (!rp_text_has_suffix(name, ".bin") && !rp_text_has_suffix(name, ".npy"))
        return;
    char *index = rp_asprintf("%.*s.idx", (int)strlen(name) - 4, name);
    if (index && !rp_folder_has(folder, index))
        rp_log(RP_LOG_WARNING, "%s/%s: left out: it has no .idx next to it, as others there have",
               folder->path, name);
    free(index);
}

static int add_shard(const struct rp_folder *folder, const char *index, struct rp_paths *files,
                     struct rp_error *error)
{
    char *name = rp_asprintf("%.*s.bin", (int)strlen(index) - 4, index);
    int code = name ? rp_folder_add(folder, name, files, error)
                    : rp_fail(error, -ENOMEM, NULL, "out of memory while listing shards");
    free(name);
    return code;
}

static int expand(const struct rp_folder *folder, struct rp_paths *files, struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; code == 0 && i < folder->names.count; i++)
        if (rp_text_has_suffix(folder->names.paths[i], ".idx"))
            code = add_shard(folder, folder->names.paths[i], files, error);
    if (code < 0 || files->count == 0)
        return code;
    for (size_t i = 0; i < folder->names.count; i++)
        warn_of_no_index(folder, folder->names.paths[i]);
    return 1;
}

static const struct rp_companion companions[] = {
    {".bin", ".idx"}, {".bin", ".spans"}, {".bin", ".tokens.json"}, {NULL, NULL}};

const struct rp_reader rp_reader_megatron = {
    .format = RP_FORMAT_MEGATRON,
    .title = "a Megatron dataset",
    .folders = "NAME.bin with NAME.idx",
    .companions = companions,
    .expand = expand,
};
