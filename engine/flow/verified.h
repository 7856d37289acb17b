/* SPDX-License-Identifier: Apache-2.0 */
/* verified.h — bytes of a mapped file that has hashes: copied, and the copy compared.
 *
 * A mapped page may change at any time: another process writes to the file, or the kernel drops the
 * page and the disk gives it back with other bits. So a packer takes no token from such a mapping.
 * It copies the blocks that hold the tokens into memory of its own, compares the copy with the
 * hashes that the ticket brought, and packs from the copy. Entries of side columns are packed as
 * they are stored: a block inside one fragment is copied to its places in the slot and compared
 * there, since no trainer can write to a slot, and the slot is published after that.
 *
 * Invariant: the packed bytes are the compared bytes. They cannot change between comparison and
 * packing, and no result of an earlier comparison is used for bytes that are read again. */
#ifndef RP_FLOW_VERIFIED_H
#define RP_FLOW_VERIFIED_H

#include "flow/files.h"
#include "flow/write_side.h"

/* The last block of a side column that was compared in a copy. */
struct rp_verified_block {
    uint8_t bytes[RP_BLOCK_BYTES];
    uint64_t hash, first;  /* first: its place in the file */
    uint32_t mapped_shard; /* as in struct rp_transfer; 0: none */
};

/* The blocks that a packer copied last. Each packer has its own. */
struct rp_verified {
    uint8_t *bytes;    /* [capacity] */
    uint64_t *hashes;  /* hashes of the held blocks, [capacity / RP_BLOCK_BYTES] */
    uint64_t capacity; /* bytes of the longest transfer with the whole blocks around it */
    uint32_t shard;
    uint64_t first; /* where `held` bytes begin in the file: at a block */
    uint64_t held;  /* bytes that were copied and compared; 0: none */

    struct rp_verified_block *sides; /* [side columns] */
    uint64_t *side_hashes;           /* hashes of the blocks that the copied entries are in */
};

/** The most bytes of one transfer: of its tokens, and of its entries of one side column. */
struct rp_verified_sizes {
    uint64_t tokens_max, entries_max;
    uint32_t sides; /* side columns */
};
/** Memory of one packer for its copies. */
uint64_t rp_verified_bytes(const struct rp_verified_sizes *sizes);
RP_MUST_CHECK int rp_verified_open(struct rp_verified *verified,
                                   const struct rp_verified_sizes *sizes, struct rp_error *error);
void rp_verified_close(struct rp_verified *verified);

/** The verified tokens of a transfer in a mapped file with hashes (rp_files_is_checked). Valid
 * until the next call. NULL: they differ from the sidecar, and *error names the block. */
const uint8_t *rp_verified_take(struct rp_verified *verified, const struct rp_files *files,
                                const struct rp_transfer *transfer, struct rp_error *error);

/** Copy the entries `side` of column c, in a mapped file with hashes, to their places. A code below
 * 0: they differ from these, and *error names the block. */
RP_MUST_CHECK int rp_verified_copy_side(struct rp_verified *verified, uint32_t c,
                                        const struct rp_files *files,
                                        const struct rp_transfer *side,
                                        const struct rp_side_span *span, struct rp_error *error);

#endif
