/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h — allocation. The program is linked with jemalloc, the client library with the malloc of
 * its host. Threads that move data do not allocate after the start. */
#ifndef RP_BASE_MEM_H
#define RP_BASE_MEM_H

#include <stddef.h>
#include <stdlib.h>

/** `count` zeroed elements of `size` bytes; NULL when out of memory or the product overflows. */
static inline void *rp_calloc(size_t count, size_t size)
{
    return calloc(count ? count : 1, size ? size : 1);
}

/** `array` with room for `needed` elements of `size` bytes: itself if *capacity elements are
 * enough, else a larger one in its place, so that adding one by one costs O(1) each. It may begin
 * as NULL with a capacity of 0. Returns NULL only when out of memory: the array is as it was. */
void *rp_grow(void *array, size_t *capacity, size_t needed, size_t size);
/* The same for an array in a variable, which is replaced. False when out of memory. */
#define RP_GROW(array, capacity, needed)                                                           \
    ({                                                                                             \
        __typeof__(array) grown_ = rp_grow((array), &(capacity), (needed), sizeof *(array));       \
        (array) = grown_ ? grown_ : (array);                                                       \
        grown_ != NULL;                                                                            \
    })

/** A zeroed element behind the `count` elements of an array that is only grown by this function: it
 * has room for the next power of two. NULL when out of memory: the array is as it was. */
void *rp_append(void **array, size_t count, size_t size);
/* The same; `count` is one more then. */
#define RP_APPEND(array, count)                                                                    \
    ({                                                                                             \
        __typeof__(array) added_ = rp_append((void **)&(array), (count), sizeof *(array));         \
        (count) += added_ != NULL;                                                                 \
        added_;                                                                                    \
    })

/** Zeroed memory aligned to `alignment` (a power of two); free with free(). */
void *rp_calloc_aligned(size_t alignment, size_t bytes);

/** Zeroed memory for large reads and writes: aligned to a page, and from 2 MiB on to a huge page,
 * with huge pages where the kernel has them. With small pages, the faults of 256 MiB take longer
 * (350 ms) than the disk (110 ms), and a direct write is split into twice as many requests. NULL
 * when out of memory. Free it with rp_give_pages(memory, bytes); NULL is fine. */
void *rp_take_pages(size_t bytes);
void rp_give_pages(void *memory, size_t bytes);
/** Zeroed memory that is shared with processes which are forked from now on. NULL when out of
 * memory. Free it with rp_give_pages(memory, bytes), in each process. */
void *rp_take_shared_pages(size_t bytes);
/** Processes that are forked from now on do not get the memory. Otherwise the first write to each
 * page after a fork would copy it, and the old one would stay as long as the child. */
void rp_withhold_pages(void *memory, size_t bytes);
/** The content of the memory is not needed any more. The kernel may take its pages when it is short
 * of memory; those that it has not taken are written again without a page fault. */
void rp_spare_pages(void *memory, size_t bytes);

/** A nameless file in memory (memfd) that can be sealed and cannot be executed; some machines allow
 * only such files (vm.memfd_noexec). Returns a descriptor, or -errno. */
int rp_memfd(const char *name);

/** Overwrite a string that is a secret, and free it. NULL is fine. */
void rp_free_secret(char *text);

/** Formatted string on the heap; NULL when out of memory. The caller frees it. */
char *rp_asprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
