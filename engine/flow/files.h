/* SPDX-License-Identifier: Apache-2.0 */
/* files.h — the token files of a flow, opened when the first read of each is planned.
 *
 * Writer: dispatch. Readers see an entry through the PLANNED store of a ticket that uses it. */
#ifndef RP_FLOW_FILES_H
#define RP_FLOW_FILES_H

#include "flow/flow.h"

struct rp_file {
    int fd; /* -1 = not open yet */
    uint32_t
        alignment; /* of reads: 1, RP_BLOCK_BYTES where blocks are checked, or that of O_DIRECT */
    bool direct;   /* reads must be aligned, also at the end of the file */
    bool checked;  /* blocks are compared with the sidecar's hashes */
};

struct rp_files {
    const struct rp_corpus *corpus;
    struct rp_file *files; /* [shards of the corpus] */
    bool direct, verify_blocks;
};

RP_MUST_CHECK int rp_files_open(struct rp_files *files, const struct rp_flow_options *options,
                                struct rp_error *error);
void rp_files_close(struct rp_files *files);

/** The file of a shard, opened and checked against the corpus if it was not yet. NULL on failure.
 */
const struct rp_file *rp_files_get(struct rp_files *files, uint32_t shard, struct rp_error *error);

/** Compare what was read of a checked file with its hashes. offset is block-aligned; `bytes` ends
 * on a block or at the end of the file. -RP_E_CORRUPT names the file and the block. */
RP_MUST_CHECK int rp_files_verify(const struct rp_files *files, uint32_t shard, uint64_t offset,
                                  const uint8_t *data, uint32_t bytes, struct rp_error *error);

#endif
