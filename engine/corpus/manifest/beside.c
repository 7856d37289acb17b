/* SPDX-License-Identifier: Apache-2.0 */
/* beside — the files beside a token file that decide what is learnt of it (build_struct.h). They
 * are found by their names alone, because a shard that has not changed is not opened. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "corpus/byte_mask.h"
#include "corpus/manifest/build_struct.h"
#include "corpus/mask_megatron.h"
#include "corpus/spanfile.h"

/* Take the modification time of a file, if it is there and is the newest. The path is freed.
 * False: there was no memory for it. */
static bool take_time(uint64_t *mtime_ns, char *path)
{
    struct rp_stamp found;
    bool has_path = path != NULL;
    if (has_path && rp_stamp_at(path, &found) == 0)
        *mtime_ns = rp_max_u64(*mtime_ns, found.mtime_ns);
    free(path);
    return has_path;
}

static bool take_olmo(uint64_t *mtime_ns, const char *token_path,
                      const struct rp_mask_choice *choice)
{
    const struct rp_probe probe = {.path = token_path};
    struct rp_byte_mask mask = RP_BYTE_MASK_NONE;
    struct rp_layout layout = {0};
    struct rp_error ignored;
    int code = rp_byte_mask_of_olmo(&mask, &probe, choice, &layout, &ignored);
    char *path = mask.path;
    mask.path = NULL;
    rp_byte_mask_close(&mask);
    return path ? take_time(mtime_ns, path) : code != -ENOMEM;
}

static bool take_megatron(uint64_t *mtime_ns, const char *token_path,
                          const struct rp_mask_choice *choice)
{
    char *prefix = rp_megatron_mask_prefix(token_path,
                                           rp_mask_is_auto(choice) ? "label" : choice->name);
    bool is_good = prefix && take_time(mtime_ns, rp_spanfile_path(token_path)) &&
                   take_time(mtime_ns, rp_format("%s.bin", prefix)) &&
                   take_time(mtime_ns, rp_format("%s.idx", prefix));
    free(prefix);
    return is_good;
}

bool rp_build_look_beside(struct rp_manifest_beside *beside, const char *token_path,
                          const struct rp_mask_choice *mask, const char *index_dir)
{
    size_t stem = strlen(token_path) - (rp_text_has_suffix(token_path, ".bin") ? 4 : 0);
    *beside = (struct rp_manifest_beside){0};
    bool is_good = true;
    if (index_dir)
        is_good = take_time(&beside->sidecar_ns, rp_sidecar_path(token_path, index_dir));
    if (is_good && beside->sidecar_ns == 0)
        is_good = take_time(&beside->sidecar_ns, rp_sidecar_path(token_path, NULL));
    if (is_good && token_path[stem])
        is_good = take_time(&beside->index_ns, rp_format("%.*s.idx", (int)stem, token_path));
    if (!is_good || rp_mask_is_none(mask))
        return is_good;
    if (beside->index_ns)
        return take_megatron(&beside->mask_ns, token_path, mask);
    return take_olmo(&beside->mask_ns, token_path, mask) &&
           take_time(&beside->mask_ns, rp_format("%s.loss", token_path));
}
