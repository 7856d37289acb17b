/* SPDX-License-Identifier: Apache-2.0 */
/* hooks.c — the compiler's calls in code that is instrumented for ThreadSanitizer, and the calls
 * into libc that touch shared memory or the kernel (the linker's --wrap leads them here). */
#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "explore.h"
#include "memory.h"

static bool is_modelled(const volatile void *at)
{
    return explore_in_thread() && memory_is_shared((const void *)at);
}

static void access_data(const void *at, size_t bytes, bool write)
{
    if (bytes == 0 || !memory_is_shared(at))
        return;
    if (explore_in_thread())
        explore_access(at, bytes, write);
    else if (write)
        memory_touch(at, bytes);
}

void __tsan_init(void);
void __tsan_init(void)
{
}
void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc)
{
    explore_enter(pc);
}
void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
    explore_leave();
}

#define DATA_HOOK(name, bytes, write)                                                              \
    void __tsan_##name(void *at);                                                                  \
    void __tsan_##name(void *at)                                                                   \
    {                                                                                              \
        access_data(at, bytes, write);                                                             \
    }
DATA_HOOK(read1, 1, false)
DATA_HOOK(read2, 2, false)
DATA_HOOK(read4, 4, false)
DATA_HOOK(read8, 8, false)
DATA_HOOK(read16, 16, false)
DATA_HOOK(write1, 1, true)
DATA_HOOK(write2, 2, true)
DATA_HOOK(write4, 4, true)
DATA_HOOK(write8, 8, true)
DATA_HOOK(write16, 16, true)
DATA_HOOK(unaligned_read2, 2, false)
DATA_HOOK(unaligned_read4, 4, false)
DATA_HOOK(unaligned_read8, 8, false)
DATA_HOOK(unaligned_write2, 2, true)
DATA_HOOK(unaligned_write4, 4, true)
DATA_HOOK(unaligned_write8, 8, true)

void __tsan_read_range(void *at, size_t bytes);
void __tsan_read_range(void *at, size_t bytes)
{
    access_data(at, bytes, false);
}
void __tsan_write_range(void *at, size_t bytes);
void __tsan_write_range(void *at, size_t bytes)
{
    access_data(at, bytes, true);
}

/* ---- atomic operations ----------------------------------------------------------------------- */

/* Words that are not shared (and all of them in `begin`) are plain memory. */
#define ATOMIC_HOOKS(bits)                                                                         \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order);       \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order)        \
    {                                                                                              \
        if (!is_modelled(at))                                                                      \
            return *at;                                                                            \
        return (uint##bits##_t)explore_step(                                                       \
            (struct step){STEP_LOAD, order, bits / 8, (const void *)at, 0, NULL});                 \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t v, int order);    \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t v, int order)     \
    {                                                                                              \
        if (is_modelled(at))                                                                       \
            (void)explore_step(                                                                    \
                (struct step){STEP_STORE, order, bits / 8, (const void *)at, v, NULL});            \
        else                                                                                       \
            store_unmodelled((void *)(uintptr_t)at, &v, sizeof v);                                 \
    }                                                                                              \
    CHANGE_HOOK(bits, exchange, STEP_SWAP, v)                                                      \
    CHANGE_HOOK(bits, fetch_add, STEP_ADD, old + v)                                                \
    CHANGE_HOOK(bits, fetch_or, STEP_OR, old | v)
#define CHANGE_HOOK(bits, name, kind, result)                                                      \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *at, uint##bits##_t v,     \
                                                int order);                                        \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *at, uint##bits##_t v,     \
                                                int order)                                         \
    {                                                                                              \
        if (is_modelled(at))                                                                       \
            return (uint##bits##_t)explore_step(                                                   \
                (struct step){kind, order, bits / 8, (const void *)at, v, NULL});                  \
        uint##bits##_t old = *at, next = result;                                                   \
        store_unmodelled((void *)(uintptr_t)at, &next, sizeof next);                               \
        return old;                                                                                \
    }

static void store_unmodelled(void *at, const void *value, size_t bytes)
{
    memcpy(at, value, bytes);
    if (memory_is_shared(at))
        memory_touch(at, bytes);
}
ATOMIC_HOOKS(32)
ATOMIC_HOOKS(64)

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    if (explore_in_thread())
        (void)explore_step((struct step){STEP_FENCE, order, 0, NULL, 0, NULL});
}

/* ---- libc and the kernel --------------------------------------------------------------------- */

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    va_list arguments;
    va_start(arguments, number);
    const uint32_t *at = va_arg(arguments, const uint32_t *);
    int operation = va_arg(arguments, int);
    uint32_t value = va_arg(arguments, uint32_t);
    const void *timeout = va_arg(arguments, const void *);
    va_end(arguments);
    if (number != SYS_futex || !is_modelled(at))
        return 0; /* a file is advised, a process signalled: no effect here */
    if (operation == FUTEX_WAKE)
        return (long)explore_step((struct step){STEP_WAKE, 0, 4, at, 0, NULL});
    return (long)explore_step((struct step){STEP_SLEEP, timeout != NULL, 4, at, value, NULL});
}

uint32_t __wrap_rp_cpus_allowed(void);
uint32_t __wrap_rp_cpus_allowed(void)
{
    return 1; /* one processor: no spins */
}

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!explore_in_thread())
        return __real_clock_gettime(clock, out);
    *out = (struct timespec){.tv_nsec = 1}; /* no time is ever due, and equal states look equal */
    return 0;
}

/* The flow is no new one: in its first 20 ms a packer announces each ticket (startup_yield.h). */
bool __wrap_rp_startup_yield_is_due(void);
bool __wrap_rp_startup_yield_is_due(void)
{
    return false;
}

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    if (fd < MODEL_BELL_FD)
        return __real_write(fd, data, bytes);
    model_bell_ring((unsigned)(fd - MODEL_BELL_FD));
    return (ssize_t)bytes;
}

void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes)
{
    access_data(from, bytes, false);
    size_t half = memory_is_shared(to) ? bytes / 2 : 0; /* a process may be killed in the middle */
    access_data(to, half, true);
    (void)__real_memcpy(to, from, half);
    access_data((uint8_t *)to + half, bytes - half, true);
    (void)__real_memcpy((uint8_t *)to + half, (const uint8_t *)from + half, bytes - half);
    return to;
}

void *__real_memset(void *at, int value, size_t bytes);
void *__wrap_memset(void *at, int value, size_t bytes);
void *__wrap_memset(void *at, int value, size_t bytes)
{
    access_data(at, bytes, true);
    return __real_memset(at, value, bytes);
}

int __wrap_snprintf(char *to, size_t bytes, const char *format, ...);
int __wrap_snprintf(char *to, size_t bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    access_data(to, bytes, true);
    int length = vsnprintf(to, bytes, format, arguments);
    va_end(arguments);
    return length;
}
