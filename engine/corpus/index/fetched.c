/* SPDX-License-Identifier: Apache-2.0 */
/* fetched.c — a corpus index that is itself an object in a store (index.h).
 *
 * It is fetched once into a local file, whose name is made of its URL and its ETag. So a local file
 * never changes its content, and an index that is written again gets another file. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "corpus/index/index.h"
#include "object/remote.h"
#include "object/url.h"

static int check_objects(const struct rp_index *index, struct rp_error *error)
{
    for (uint32_t i = 0; i < index->segment_count; i++) {
        const struct rp_index_shape *shape = &index->segments[i].shape;
        if (shape->objects < shape->shards)
            return rp_fail(error, -RP_E_MISMATCH,
                           "make it of the URLs of the shards (`ringpack index -c CONFIG -o FILE`, "
                           "with URLs in the configuration), and copy FILE there; or copy the "
                           "index and its shards to a disk",
                           "%s: an index in a store: expected only objects, found files of the "
                           "machine on which it was made",
                           index->path);
    }
    return 0;
}

static int open_copy(struct rp_index **index_out, const char *name, const char *file, bool is_new,
                     struct rp_error *error)
{
    struct rp_index *index;
    const struct rp_index_open_options options = {.path = name, .file = file};
    int code = rp_index_open(&index, &options, error);
    if (code == 0 && is_new)
        code = rp_index_check_all(index, NULL, error);
    if (code == 0)
        code = check_objects(index, error);
    if (code < 0) {
        rp_index_close(index);
        index = NULL;
    }
    *index_out = index;
    return code;
}

/* 1: the local copy of an earlier start was damaged, and is removed. */
static int fetch_and_open(struct rp_index **index_out, const char *url, const char *name,
                          const char *cache_dir, struct rp_error *error)
{
    char *file;
    bool is_new;
    int code = rp_remote_fetch(url, cache_dir, &file, &is_new, error);
    if (code < 0)
        return rp_fail_context(error, code, "the index");
    code = open_copy(index_out, name, file, is_new, error);
    if (code == -RP_E_CORRUPT) /* the next start fetches it again */
        (void)unlink(file);
    free(file);
    return code == -RP_E_CORRUPT && !is_new ? 1 : code;
}

int rp_index_open_place(struct rp_index **index_out, const char *place, const char *cache_dir,
                        struct rp_error *error)
{
    *index_out = NULL;
    if (!rp_url_is(place))
        return rp_index_open(index_out, &(struct rp_index_open_options){.path = place}, error);
    char *name = rp_url_name(place);
    if (!name)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
    int code = fetch_and_open(index_out, place, name, cache_dir, error);
    if (code > 0)
        code = fetch_and_open(index_out, place, name, cache_dir, error);
    free(name);
    return code;
}
