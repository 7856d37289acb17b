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

/** Zeroed memory for much that is written or read at once: it begins at a page, and from 2 MiB on
 * it lies on huge pages where the kernel has them. The faults of 256 MiB of small pages take longer
 * (350 ms) than the disk (110 ms), and a direct write of them is cut into twice as many requests.
 * NULL when out of memory; give it back with rp_give_pages(memory, bytes), NULL is fine. */
void *rp_take_pages(size_t bytes);
void rp_give_pages(void *memory, size_t bytes);

/** A file without a name, in memory (memfd), that can be sealed and never executed: some machines
 * allow no other (vm.memfd_noexec). Returns its descriptor, or -errno. */
int rp_memfd(const char *name);

/** Formatted string on the heap; NULL when out of memory. The caller frees it. */
char *rp_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
