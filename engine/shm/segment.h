/* SPDX-License-Identifier: Apache-2.0 */
/* segment.h — shared memory that has no name, cannot be truncated and never raises SIGBUS.
 *
 * Every segment is a memfd: no file is left after kill -9, and the size of /dev/shm is no limit. It
 * is reserved and touched in full at creation, so too little memory is an error here and never a
 * signal later.
 *
 * A private one serves only the threads of this process, and has no memfd. It can be used at once,
 * and be prefaulted while it is used. */
#ifndef RP_SHM_SEGMENT_H
#define RP_SHM_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

struct rp_segment {
    int fd; /* -1 when closed or private */
    uint8_t *data;
    size_t bytes;
    bool huge; /* its pages were collapsed into huge pages */
};

/** Create, reserve, touch, map read-write, and (huge) collapse into huge pages where the kernel
 * does that: must come before any registration with io_uring. bytes is rounded up to pages (2 MiB
 * when huge). Errors: -RP_E_RESOURCE naming the bytes wanted, the bytes available and how to get
 * them. */
RP_MUST_CHECK int rp_segment_create(struct rp_segment *segment, const char *name, size_t bytes,
                                    bool huge, struct rp_error *error);
/** Private memory, which the kernel backs by huge pages at their first touch, if it has them.
 * (Shared memory gets huge pages only by collapsing small ones; the kernel waits for all processors
 * then.) bytes is rounded up to 2 MiB. Errors: as above. */
RP_MUST_CHECK int rp_segment_create_private(struct rp_segment *segment, const char *name,
                                            size_t bytes, struct rp_error *error);
/** Touch all of a private segment, from its start on, while other threads may use it. Errors: as
 * above. */
RP_MUST_CHECK int rp_segment_prefault(const struct rp_segment *segment, const char *name,
                                      struct rp_error *error);
/** No more writers but those that have it mapped now; no more resizing. */
RP_MUST_CHECK int rp_segment_seal_readers(struct rp_segment *segment, struct rp_error *error);
/** No more resizing; writable by those who get the fd. */
RP_MUST_CHECK int rp_segment_seal_size(struct rp_segment *segment, struct rp_error *error);
/** Map a segment received from the other side, after checking its seals and its size. Takes the fd.
 */
RP_MUST_CHECK int rp_segment_attach(struct rp_segment *segment, int fd, bool writable,
                                    size_t bytes_min, struct rp_error *error);
/** Unmap and close. Idempotent; a segment that was never opened must have fd -1. */
void rp_segment_close(struct rp_segment *segment);

#endif
