/* SPDX-License-Identifier: Apache-2.0 */
/* sized.h — structs that cross the library's border, between versions of it.
 *
 * Invariant: no byte beyond the caller's struct_size is read or written (client.h has the rules). A
 * struct begins with its struct_size, and `known` is the size that this library has for it. */
#ifndef RP_CLIENT_SIZED_H
#define RP_CLIENT_SIZED_H

#include <stddef.h>
#include <stdint.h>

#include "ringpack/error.h"

#define RP_STRUCT_SIZE_MAX 4096u /* a larger struct_size was never set */

/* Bytes of struct `type` up to and with `field`. */
#define RP_SIZE_WITH(type, field) (offsetof(struct type, field) + sizeof(((struct type *)0)->field))

/** Check that a struct_size was set, and covers the required fields; `name` is the struct's. */
RP_MUST_CHECK int rp_sized_check(uint64_t struct_size, size_t required, const char *name,
                                 struct rp_error *error);

/** Copy a struct of the caller whose struct_size was checked. Fields beyond the caller's
 * struct_size become 0. Bytes beyond `known` must be 0, else the caller uses a field that is
 * unknown here. */
RP_MUST_CHECK int rp_sized_read(void *to, size_t known, const void *from, const char *name,
                                struct rp_error *error);

/** Fill in a struct of the caller whose struct_size was checked. struct_size does not change, and
 * bytes beyond `known` become 0. */
void rp_sized_write(void *to, const void *from, size_t known);

#endif
