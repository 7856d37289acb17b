/* SPDX-License-Identifier: Apache-2.0 */
/* fetched — a manifest that is itself an object in a store (manifest.h).
 *
 * It is read once into a file of this machine, whose name is made of its URL and its ETag. So the
 * file never changes its meaning, and a manifest that was written again is another file. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "corpus/manifest/manifest.h"
#include "object/remote.h"
#include "object/url.h"

static int check_objects(const struct rp_manifest *manifest, struct rp_error *error)
{
    for (uint32_t i = 0; i < manifest->segment_count; i++) {
        const struct rp_manifest_shape *shape = &manifest->segments[i].shape;
        if (shape->objects < shape->shards)
            return rp_fail(error, -RP_E_MISMATCH,
                           "make it of the URLs of the shards (`ringpack index -c CONFIG -o FILE`, "
                           "with URLs in the configuration), and copy FILE there; or copy the "
                           "manifest and its shards to a disk",
                           "%s: a manifest in a store: expected objects alone, found files of the "
                           "machine on which it was made",
                           manifest->path);
    }
    return 0;
}

static int open_copy(struct rp_manifest **manifest_out, const char *name, const char *file,
                     bool is_new, struct rp_error *error)
{
    static const struct rp_progress silent;
    struct rp_manifest *manifest;
    int code = rp_manifest_open_file(&manifest, name, file, false, error);
    if (code == 0 && is_new)
        code = rp_manifest_check_all(manifest, &silent, error);
    if (code == 0)
        code = check_objects(manifest, error);
    if (code < 0) {
        rp_manifest_close(manifest);
        manifest = NULL;
    }
    *manifest_out = manifest;
    return code;
}

/* 1: the copy of this machine was damaged, and is gone. */
static int fetch_and_open(struct rp_manifest **manifest_out, const char *url, const char *name,
                          const char *cache_dir, struct rp_error *error)
{
    char *file;
    bool is_new;
    int code = rp_remote_fetch(url, cache_dir, &file, &is_new, error);
    if (code < 0)
        return rp_fail_context(error, code, "the manifest");
    code = open_copy(manifest_out, name, file, is_new, error);
    if (code == -RP_E_CORRUPT) /* the next start fetches it again */
        (void)unlink(file);
    free(file);
    return code == -RP_E_CORRUPT && !is_new ? 1 : code;
}

int rp_manifest_open_place(struct rp_manifest **manifest_out, const char *place,
                           const char *cache_dir, struct rp_error *error)
{
    *manifest_out = NULL;
    if (!rp_url_is(place))
        return rp_manifest_open(manifest_out, place, false, error);
    char *name = rp_url_name(place);
    if (!name)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
    int code = fetch_and_open(manifest_out, place, name, cache_dir, error);
    if (code > 0)
        code = fetch_and_open(manifest_out, place, name, cache_dir, error);
    free(name);
    return code;
}
