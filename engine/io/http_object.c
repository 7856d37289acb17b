/* SPDX-License-Identifier: Apache-2.0 */
/* http_object.c — opens and closes the objects of io_http.c. */
#include "io/http_object.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"

/* AWS advises ranges of 8 to 16 MiB; 16 of them in flight are 1 GB/s at 50 ms. */
#define RANGE_BYTES (8u << 20)

void rp_http_close_object(const struct rp_io_object *object)
{
    struct rp_http_object *it = (struct rp_http_object *)object->handle;
    rp_entry_close(it->kept);
    if (it->object)
        rp_object_close(it->object);
    else
        rp_io_close_file(&it->file);
    free(it->identity);
    free(it);
}

static int open_remote(struct rp_http_object *it, const struct rp_io_place *place,
                       struct rp_error *error)
{
    it->bytes = place->bytes;
    it->identity = strdup(place->identity);
    if (!it->identity)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for an object");
    int code = rp_object_open(&it->object, place->path, error);
    if (code == 0 && place->cache && place->identity[0]) /* else it may change unnoticed */
        it->kept = rp_entry_open(place->cache, place->number);
    return code;
}

int rp_http_open_object(struct rp_io_object *object_out, const struct rp_io_place *place,
                        struct rp_error *error)
{
    struct rp_http_object *it = rp_calloc(1, sizeof *it);
    if (!it)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for an object");
    int code = place->identity ? open_remote(it, place, error)
                               : rp_io_open_file(&it->file, place, error);
    if (code < 0) {
        free(it->identity);
        free(it);
        return code;
    }
    const struct rp_io_object remote = {
        .fd = -1, .alignment = it->kept ? RP_CACHE_PAGE_BYTES : 1, .read_bytes = RANGE_BYTES};
    *object_out = place->identity ? remote : it->file;
    object_out->handle = (intptr_t)it;
    return 0;
}

void rp_http_keep(const struct rp_io_object *object, uint64_t offset, const void *data,
                  uint32_t bytes)
{
    rp_entry_keep(((const struct rp_http_object *)object->handle)->kept, offset, data, bytes);
}

bool rp_http_can_ask_again(const struct rp_io_object *object)
{
    return ((const struct rp_http_object *)object->handle)->object != NULL;
}

int rp_http_explain(const struct rp_io_object *object, struct rp_error *error)
{
    const struct rp_http_object *it = (const struct rp_http_object *)object->handle;
    return it->object ? rp_object_failure(it->object, error) : 0;
}
