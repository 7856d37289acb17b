/* SPDX-License-Identifier: Apache-2.0 */
/* mapped.h — the list of mapped files, and the handling of SIGBUS when one is truncated.
 *
 * Reading a mapped page that the file no longer has, or that the disk cannot read, raises SIGBUS in
 * the reading thread. It is turned into an error that names the file: the handler finds the file by
 * the address, stores it where all processes of the engine see it, and jumps back to the thread's
 * rp_mapped_guard, which then returns false. In a thread without a guard, the handler prints the
 * file and ends the process with exit code 2.
 *
 * Invariant: a result computed from the lost bytes is never used, because the thread never
 * continues there. So only work that holds no lock outside of its own guard, and publishes its
 * results only at its end, may read a mapping. */
#ifndef RP_BASE_MAPPED_H
#define RP_BASE_MAPPED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

/** Handle SIGBUS from now on, in this process and those forked from it. Only programs call it: the
 * client library leaves the signal to its host, and then the rest of this header only keeps a list.
 */
void rp_mapped_watch(void);

/* An entry of the list of mapped files. */
struct rp_mapped_file;

/** Add the file that was mapped at `start`, before any guarded work reads it. NULL when out of
 * memory. */
RP_MUST_CHECK struct rp_mapped_file *rp_mapped_add(const void *start, uint64_t bytes,
                                                   const char *path);
/** Remove a file from the list before it is unmapped. O(1). NULL is fine. */
void rp_mapped_remove(struct rp_mapped_file *mapping);

/** -RP_E_RESOURCE if the kernel's limit of mappings (vm.max_map_count) has no room for `more` files
 * in addition to those that are mapped and to the memory of an engine. The hint names the limit
 * that is needed. */
RP_MUST_CHECK int rp_mapped_check_room(uint64_t more, struct rp_error *error);
/** Number of files that are mapped now. */
uint64_t rp_mapped_count(void);

/** Call work(argument). False if it read a lost file and was abandoned. */
RP_MUST_CHECK bool rp_mapped_guard(void (*work)(void *argument), void *argument);

/** The same for work that may be called again after it was abandoned. A page that the disk cannot
 * read is tried again for a second, as reads are; a file that was cut short is lost at once. */
RP_MUST_CHECK bool rp_mapped_guard_again(void (*work)(void *argument), void *argument);

/** 0, or -RP_E_CHANGED with the lost file that a thread of this process, or of one forked from it,
 * has read. */
int rp_mapped_lost(struct rp_error *error);

#endif
