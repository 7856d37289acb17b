/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h — the heap. The program is linked with jemalloc, the client library with the host's malloc.
 *
 * The data plane allocates nothing after start: everything here belongs to the control plane. */
#ifndef RP_BASE_MEM_H
#define RP_BASE_MEM_H

#include <stddef.h>
#include <stdlib.h>

/** `count` zeroed elements of `size` bytes; NULL when out of memory or the product overflows. */
static inline void *rp_calloc(size_t count, size_t size)
{
    return calloc(count ? count : 1, size ? size : 1);
}

/** Zeroed memory aligned to `alignment` (a power of two); free with free(). */
void *rp_calloc_aligned(size_t alignment, size_t bytes);

/** Formatted string on the heap; NULL when out of memory. The caller frees it. */
char *rp_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
