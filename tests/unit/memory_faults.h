/* SPDX-License-Identifier: Apache-2.0 */
/* memory_faults.h — memory that runs out on command. A test that includes this has allocators of
 * its own in front of those of the C library (or of a sanitizer): everything in the process uses
 * them, also libraries.
 *
 * The orders are in memory that forked children share, so that a parent can let an engine run out
 * of memory in the middle of its work. */
#ifndef RP_TESTS_MEMORY_FAULTS_H
#define RP_TESTS_MEMORY_FAULTS_H

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "run_with_faults.h"

#include "base/thread.h"

__attribute__((constructor)) static void wait_for_no_room(void)
{
    rp_thread_patience_ns = 0; /* where memory is missing, no time brings it back */
}

struct memory_orders {
    pid_t process;  /* the only affected one; 0 = none */
    uint32_t at;    /* number of the allocation, from 0, that is the first to fail */
    uint32_t calls; /* so far */
    bool for_ever;
};
static struct memory_orders *memory_orders; /* NULL: no failures yet */
static __thread bool memory_is_spared;      /* its allocations now are not the engine's */

static inline bool memory_fails(void)
{
    struct memory_orders *orders = memory_orders;
    if (!orders || memory_is_spared ||
        __atomic_load_n(&orders->process, __ATOMIC_ACQUIRE) != getpid())
        return false;
    uint32_t number = __atomic_fetch_add(&orders->calls, 1, __ATOMIC_RELAXED);
    bool fails = orders->for_ever ? number >= orders->at : number == orders->at;
    if (fails)
        errno = ENOMEM;
    return fails;
}

/* From now on, in `process`. */
static inline void memory_spoil(pid_t process, uint32_t at, bool for_ever)
{
    if (!memory_orders) {
        void *page = mmap(NULL, sizeof *memory_orders, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            abort();
        memory_orders = page;
    }
    memory_orders->at = at;
    memory_orders->for_ever = for_ever;
    memory_orders->calls = 0;
    __atomic_store_n(&memory_orders->process, process, __ATOMIC_RELEASE);
}

/* All is well again. Returns how many allocations there were. */
static inline uint32_t memory_mend(void)
{
    __atomic_store_n(&memory_orders->process, 0, __ATOMIC_RELEASE);
    return memory_orders->calls;
}

/* Called through `next`, the allocator behind ours. */
#define MEMORY_FAULT(type, failure, name, parameters, arguments)                                   \
    type name parameters                                                                           \
    {                                                                                              \
        static type(*next) parameters;                                                             \
        if (!next)                                                                                 \
            *(void **)&next = dlsym(RTLD_NEXT, #name);                                             \
        return memory_fails() ? failure : next arguments;                                          \
    }

#ifndef __SANITIZE_THREAD__ /* it calls them too early; the tests are left out */
MEMORY_FAULT(void *, NULL, malloc, (size_t bytes), (bytes))
MEMORY_FAULT(void *, NULL, calloc, (size_t count, size_t bytes), (count, bytes))
MEMORY_FAULT(void *, NULL, realloc, (void *memory, size_t bytes), (memory, bytes))
MEMORY_FAULT(void *, NULL, reallocarray, (void *memory, size_t count, size_t bytes),
             (memory, count, bytes))
MEMORY_FAULT(void *, NULL, aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes))
MEMORY_FAULT(int, ENOMEM, posix_memalign, (void **memory, size_t alignment, size_t bytes),
             (memory, alignment, bytes))
MEMORY_FAULT(void *, MAP_FAILED, mmap,
             (void *address, size_t bytes, int protection, int flags, int fd, off_t offset),
             (address, bytes, protection, flags, fd, offset))
#endif

#ifdef __SANITIZE_ADDRESS__ /* examines each thread's stack as it starts, and dies if it cannot */
int pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes)
{
    static int (*next)(pthread_t, pthread_attr_t *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_getattr_np");
    memory_is_spared = true;
    int code = next(thread, attributes);
    memory_is_spared = false;
    return code;
}
#endif

#endif
