/* SPDX-License-Identifier: Apache-2.0 */
/* descriptors.h — which token files of a flow are open, if there are more files than descriptors.
 *
 * A file is opened when a read of it is planned. If all files fit, each stays open. Otherwise the
 * one that was used least recently is closed for the next, once the last ticket that reads it is
 * retired: no read of it is in flight then (ticket.h, I2). Until then dispatch waits, as it does
 * for room in the data ring.
 *
 * Invariants: the list holds the open files, in the order of their last tickets, which is also the
 * order in which they may be closed. Thread: dispatch's own. */
#ifndef RP_FLOW_DESCRIPTORS_H
#define RP_FLOW_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

/* The engine starts only if at least this many files may be open at once. */
#define RP_DESCRIPTORS_MIN 16u

struct rp_descriptors {
    uint32_t file_count;
    uint32_t open_count, open_max;
    /* [file_count], or NULL where all files fit */
    struct rp_descriptor {
        uint64_t last_ticket;  /* 1 + the last ticket that reads it; 0 = none does */
        uint32_t newer, older; /* 1 + the neighbours in the list; 0 = none */
    } * list;
    uint32_t newest, oldest;
};

/** Allow as many open files as the descriptor limit leaves after the `others` that the engine
 * needs. -RP_E_RESOURCE if fewer than RP_DESCRIPTORS_MIN are left. */
RP_MUST_CHECK int rp_descriptors_open(struct rp_descriptors *descriptors, uint32_t file_count,
                                      uint32_t others, struct rp_error *error);
/** Does the descriptor limit allow `all` descriptors? */
bool rp_descriptors_allow(uint64_t all);
/** Lower the number of open files to `open_max`. To be called before any file is open. */
RP_MUST_CHECK int rp_descriptors_limit(struct rp_descriptors *descriptors, uint32_t open_max,
                                       struct rp_error *error);
void rp_descriptors_close(struct rp_descriptors *descriptors);

/** Is there no descriptor for another file? Then *file is the one to be closed for it, when the
 * tickets below *ticket are retired. */
bool rp_descriptors_are_used_up(const struct rp_descriptors *descriptors, uint32_t *file,
                                uint64_t *ticket);

/** Note that a file was opened; that it was closed. */
void rp_descriptors_add(struct rp_descriptors *descriptors, uint32_t file);
void rp_descriptors_remove(struct rp_descriptors *descriptors, uint32_t file);

/** Note that a ticket reads this file, which is open. Numbers of tickets ascend. */
void rp_descriptors_use(struct rp_descriptors *descriptors, uint32_t file, uint64_t ticket);

/** Ticket numbers begin at 0 again. No read is in flight. */
void rp_descriptors_restart(struct rp_descriptors *descriptors);

#endif
