/* SPDX-License-Identifier: Apache-2.0 */
/* points.h — a program that kills itself at a store to shared memory, or at a system call.
 *
 * The program is compiled with -fsanitize=thread and linked with these files in the place of
 * ThreadSanitizer's runtime: so every store of engine and client, atomic or plain, calls these
 * first, and they have no code for the test. System calls and copies come by way of the linker's
 * --wrap. points_stores.c has the compiler's calls, points_calls.c the linker's wrappers, points.c
 * decides which process dies where.
 *
 * A *point* is one place in the program, reached by one kind of process. With RP_POINTS=FILE in the
 * environment each engine (`serve`), each trainer (forked from `verify`) and each packing process
 * (forked from an engine) draws one of the points that its kind is known to reach and one of its
 * visits there, and dies of SIGKILL at it. Without RP_POINTS all calls are passed on. No function
 * here takes a lock or allocates: it runs in every context. */
#ifndef RP_TESTS_KILL_POINTS_H
#define RP_TESTS_KILL_POINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The moment of the kill: before the call, in its middle (half of it was done), or after it. */
enum rp_when { RP_BEFORE, RP_WITHIN, RP_AFTER };

extern const char __executable_start[]; /* the linker's: the program's place in memory */
/* Who called us. */
#define RP_HERE ((uintptr_t)__builtin_return_address(0))

/** Die at this point if it is the one that was drawn. */
void rp_point_pass(uintptr_t place, enum rp_when when);
/** The same, if others see a store to this address. */
void rp_point_pass_store(uintptr_t place, const void *address);
/** Whether to die here: the caller does half of the work, and then it. */
bool rp_point_is_drawn(uintptr_t place, enum rp_when when);
void rp_point_die(void) __attribute__((noreturn));

bool rp_point_is_shared(const void *address);
/** Memory that others see was mapped, or some memory was unmapped. */
void rp_point_mapped(const void *address, size_t bytes);
void rp_point_unmapped(const void *address);
/** This is the child of a fork. */
void rp_point_forked(void);

#endif
