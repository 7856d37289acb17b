/* SPDX-License-Identifier: Apache-2.0 */
/* verified.h — tokens of a mapped file that has hashes: copied, compared, and packed from the copy.
 *
 * A mapped page may change at any time: another process writes to the file, or the kernel drops the
 * page and the disk gives it back with other bits. So a packer takes no token from such a mapping.
 * It copies the blocks that hold the tokens into memory of its own, compares the copy with the
 * hashes that the ticket brought, and packs from the copy.
 *
 * Invariant: the packed bytes are the compared bytes. They cannot change between comparison and
 * packing, and no result of an earlier comparison is used for bytes that are read again. */
#ifndef RP_FLOW_VERIFIED_H
#define RP_FLOW_VERIFIED_H

#include "flow/files.h"

/* The blocks that a packer copied last. Each packer has its own. */
struct rp_verified {
    uint8_t *bytes;    /* [capacity] */
    uint64_t *hashes;  /* hashes of the held blocks, [capacity / RP_BLOCK_BYTES] */
    uint64_t capacity; /* bytes of the longest transfer with the whole blocks around it */
    uint32_t shard;
    uint64_t first; /* where `held` bytes begin in the file: at a block */
    uint64_t held;  /* bytes that were copied and compared; 0: none */
};

/** Memory of one packer for its copies. */
uint64_t rp_verified_bytes(uint64_t transfer_bytes_max);
RP_MUST_CHECK int rp_verified_open(struct rp_verified *verified, uint64_t transfer_bytes_max,
                                   struct rp_error *error);
void rp_verified_close(struct rp_verified *verified);

/** The verified tokens of a transfer in a mapped file with hashes (rp_files_is_checked). Valid
 * until the next call. NULL: they differ from the sidecar, and *error names the block. */
const uint8_t *rp_verified_take(struct rp_verified *verified, const struct rp_files *files,
                                const struct rp_transfer *transfer, struct rp_error *error);

#endif
