/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"

#define HUGE_PAGE_BYTES (2u << 20)

/* The headers of the C library may be older than this flag. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

void *rp_grow(void *array, size_t *capacity, size_t needed, size_t size)
{
    if (array && needed <= *capacity)
        return array;
    size_t wanted = (size_t)rp_max_u64(needed, 2 * *capacity + 16);
    void *grown = reallocarray(array, wanted, size);
    if (grown)
        *capacity = wanted;
    return grown;
}

void *rp_append(void **array, size_t count, size_t size)
{
    if (count == 0 || rp_is_pow2(count)) {
        void *grown = reallocarray(*array, count ? 2 * count : 1, size);
        if (!grown)
            return NULL;
        *array = grown;
    }
    return memset((char *)*array + size * count, 0, size);
}

void *rp_calloc_aligned(size_t alignment, size_t bytes)
{
    size_t rounded = rp_align_up(bytes ? bytes : 1, alignment);
    void *memory = rounded < bytes ? NULL : aligned_alloc(alignment, rounded);
    return memory ? memset(memory, 0, rounded) : NULL;
}

/* Round up to whole pages, which may have 64 KiB on aarch64. */
static size_t round_up(size_t bytes)
{
    return rp_align_up(bytes ? bytes : 1, (size_t)sysconf(_SC_PAGESIZE));
}

void *rp_take_pages(size_t bytes)
{
    size_t slack = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 0;
    size_t rounded = round_up(bytes);
    if (rounded + slack < bytes)
        return NULL;
    uint8_t *memory = mmap(NULL, rounded + slack, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (slack) { /* a huge page begins at a multiple of its size */
        size_t before = -(uintptr_t)memory & (HUGE_PAGE_BYTES - 1);
        if (before)
            munmap(memory, before);
        memory += before;
        munmap(memory + rounded, slack - before);
        (void)madvise(memory, rounded, MADV_HUGEPAGE);
    }
    return memory;
}

void *rp_take_shared_pages(size_t bytes)
{
    void *memory = mmap(NULL, round_up(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void rp_give_pages(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, round_up(bytes));
}

void rp_withhold_pages(void *memory, size_t bytes)
{
    if (memory)
        (void)madvise(memory, round_up(bytes), MADV_DONTFORK);
}

void rp_spare_pages(void *memory, size_t bytes)
{
    if (memory)
        (void)madvise(memory, round_up(bytes), MADV_FREE);
}

int rp_memfd(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd < 0 ? -errno : fd;
}

void rp_free_secret(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

char *rp_asprintf(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return length < 0 ? NULL : text;
}
