/* SPDX-License-Identifier: Apache-2.0 */
/* raw.c — headerless tokens: nanoGPT's .bin, OLMo's .npy. They have no magic, so a file is raw only
 * if it was declared raw. */
#include <string.h>

#include "base/text.h"
#include "corpus/numpy.h"
#include "corpus/readers/eos_walk.h"

static int claim(const struct rp_probe *probe, char why[256], struct rp_error *error)
{
    (void)why;
    if (!probe->is_declared)
        return 0;
    if (!memcmp(probe->head, RP_NUMPY_MAGIC, 6))
        return rp_readers_refuse(probe, "a numpy .npy file, though it was declared raw",
                                 "declare it as npy; raw is for .npy files without a header (OLMo)",
                                 error);
    if (!memcmp(probe->head, "MMIDIDX\0\0", 9))
        return rp_readers_refuse(probe, "a Megatron index, though it was declared raw",
                                 "give the .bin next to it, and no format", error);
    return 1;
}

/* Add the *.bin and *.npy of a folder. A sidecar stands for its token file, which may be missing.
 */
static int expand(const struct rp_folder *folder, struct rp_paths *files, struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; code == 0 && i < folder->names.count; i++) {
        char name[256];
        size_t length = strlen(folder->names.paths[i]);
        if (length >= sizeof name)
            continue;
        memcpy(name, folder->names.paths[i], length + 1);
        if (rp_folder_is_sidecar(name))
            name[length - 4] = '\0';
        if (rp_text_has_suffix(name, ".bin") || rp_text_has_suffix(name, ".npy"))
            code = rp_folder_add(folder, name, files, error);
    }
    rp_paths_sort(files);
    return code < 0 ? code : files->count > 0;
}

static int walk(const struct rp_probe *probe, const struct rp_reader_options *options,
                struct rp_sink *sink, struct rp_error *error)
{
    if (options->type == RP_TOKEN_NONE)
        return rp_fail(error, -RP_E_FORMAT, "declare its dtype, for instance `--dtype u16`",
                       "%s: raw tokens do not say how wide they are, and no dtype was declared",
                       probe->path);
    const struct rp_layout layout = {.type = options->type, .eos = options->eos};
    return rp_eos_walk(probe, &layout, false, options, sink, error);
}

const struct rp_reader rp_reader_raw = {
    .format = RP_FORMAT_RAW,
    .title = "a file of tokens without a header",
    .folders = "*.bin or *.npy",
    .reads_tokens = true,
    .claim = claim,
    .expand = expand,
    .walk = walk,
};
