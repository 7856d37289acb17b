/* SPDX-License-Identifier: Apache-2.0 */
/* http_object.h — the objects of io_http.c: a remote object with its cache entry, or a local file.
 * The functions are members of the method table (io.h). */
#ifndef RP_IO_HTTP_OBJECT_H
#define RP_IO_HTTP_OBJECT_H

#include "cache/cache.h"
#include "io/io.h"
#include "object/requests.h"

struct rp_http_object {
    struct rp_object *object; /* NULL: a local file */
    struct rp_io_object file;
    uint64_t bytes;
    char *identity;
    struct rp_entry *kept; /* NULL: not cached */
};

RP_MUST_CHECK int rp_http_open_object(struct rp_io_object *object_out,
                                      const struct rp_io_place *place, struct rp_error *error);
void rp_http_close_object(const struct rp_io_object *object);
void rp_http_keep(const struct rp_io_object *object, uint64_t offset, const void *data,
                  uint32_t bytes);
bool rp_http_can_ask_again(const struct rp_io_object *object);
int rp_http_explain(const struct rp_io_object *object, struct rp_error *error);

#endif
