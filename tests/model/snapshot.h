/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.h — the states of the present run at its choices, so that the next run begins at the
 * choice that it takes in another way, and not at the first step.
 *
 * A snapshot is of a run's beginning: all of them are of the present run, the newest one last. So
 * memory that only grows within a run is as it was, up to its length. */
#ifndef RP_TESTS_MODEL_SNAPSHOT_H
#define RP_TESTS_MODEL_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>

/** Begin a snapshot; `choice` is the number of the choice that comes. False: there is no room. */
bool snapshot_begin(unsigned choice);
/** Add memory to it. */
void snapshot_add(void *at, size_t bytes);
/** Find the newest snapshot from before choice `last` or from it, and remove later ones. False: no
 * snapshot. */
bool snapshot_find(unsigned last, unsigned *choice);
/** Copy the memory of that snapshot back. */
void snapshot_restore(void);
/** Remove all of them. */
void snapshot_clear(void);

#endif
