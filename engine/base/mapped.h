/* SPDX-License-Identifier: Apache-2.0 */
/* mapped.h — files that are mapped, and what happens when one is cut short under us.
 *
 * A look at a page that a file no longer has, or that its disk will not give, raises SIGBUS in the
 * thread that looks. That is no bug of ours and nothing is lost, so it becomes a failure with a
 * name: the handler finds the file by the address, notes it where all processes of an engine see
 * it, and takes the thread out of its work, back to rp_mapped_guard. A thread without one ends the
 * process: it says which file it was and exits with 2.
 *
 * Invariant: what a thread was making of the lost bytes is never used, because the thread does not
 * go back there. So only work that holds no lock and leaves its results unpublished until it is
 * done may look at a mapping. */
#ifndef RP_BASE_MAPPED_H
#define RP_BASE_MAPPED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

/** Handle SIGBUS from now on, in this process and those forked from it. For a program: a library
 * leaves the signal to its host, and then the rest of this header only keeps a list. */
void rp_mapped_watch(void);

/* A file that is mapped; the list of them is this module's. */
struct rp_mapped_file;

/** A file was mapped at `start`; NULL when out of memory. Not while a guard is at work on it. */
RP_MUST_CHECK struct rp_mapped_file *rp_mapped_add(const void *start, uint64_t bytes,
                                                   const char *path);
/** It is about to be unmapped. NULL is fine. Takes the same time however many there are. */
void rp_mapped_remove(struct rp_mapped_file *mapping);

/** -RP_E_RESOURCE unless the kernel's limit of mappings (vm.max_map_count) has room for `more`
 * files beside those that are mapped, and for the memory of an engine. The hint is for so many. */
RP_MUST_CHECK int rp_mapped_check_room(uint64_t more, struct rp_error *error);
/** How many are mapped now. */
uint64_t rp_mapped_count(void);

/** Do work(argument). False if it met a lost file and was left where it stood. */
RP_MUST_CHECK bool rp_mapped_guard(void (*work)(void *argument), void *argument);

/** 0, or -RP_E_CHANGED with the file that a thread, or a process forked from us, has met lost. */
int rp_mapped_lost(struct rp_error *error);

#endif
