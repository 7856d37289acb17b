/* SPDX-License-Identifier: Apache-2.0 */
/* files.h — the token files of a flow.
 *
 * Read: opened when a read of each is planned (descriptors.h). Writer: dispatch; readers see an
 * entry through the PLANNED store of a ticket that uses it.
 *
 * Mapped: where the page cache holds the corpus, a system call for every document costs more than
 * its copy, so all files are mapped before the stages start (and before packer processes are
 * forked) and packers take tokens from the mapping, of a file that has hashes through a copy of
 * their own (verified.h). Nothing else differs: same plan, same tickets, same bytes. A packer that
 * meets a mapped file cut short ends there (base/mapped.h): the stream stops with the file's name,
 * and trainers keep what they hold. */
#ifndef RP_FLOW_FILES_H
#define RP_FLOW_FILES_H

#include "base/mapped.h"
#include "flow/descriptors.h"
#include "flow/flow.h"

struct rp_file {
    int fd; /* -1 = not open yet */
    /* Of reads: 1, RP_BLOCK_BYTES where blocks are checked, or that of O_DIRECT. */
    uint32_t alignment;
    bool direct;        /* reads must be aligned, also at the end of the file */
    bool checked;       /* blocks are compared with the sidecar's hashes, at each use */
    const uint8_t *map; /* the whole file, or NULL */
    struct rp_mapping *mapping;
};

struct rp_files {
    const struct rp_corpus *corpus;
    struct rp_file *files; /* [shards of the corpus] */
    struct rp_descriptors descriptors;
    bool direct, verify_blocks;
    uint64_t watched_ns; /* when rp_files_watch last looked */
};

/** Where a piece's tokens are: in the prefetch ring's data, or in a mapped file. */
static inline const uint8_t *rp_files_tokens(const struct rp_files *files, const uint8_t *data,
                                             const struct rp_piece *piece)
{
    const uint8_t *start = piece->mapped_shard ? files->files[piece->mapped_shard - 1].map : data;
    return start + piece->data_offset;
}

RP_MUST_CHECK int rp_files_open(struct rp_files *files, const struct rp_flow_options *options,
                                struct rp_error *error);
void rp_files_close(struct rp_files *files);

enum rp_files_open { RP_FILES_WAIT, RP_FILES_OPEN };
/** OPEN: *file is that of the shard, opened and checked against the corpus if it was not; it stays
 * open until another call, or, after rp_files_use, until tickets below `retired` are not behind
 * that ticket. WAIT: there is no descriptor before the tickets below *ticket are retired. Or a
 * negative code. */
RP_MUST_CHECK int rp_files_get(struct rp_files *files, uint32_t shard, uint64_t retired,
                               const struct rp_file **file, uint64_t *ticket,
                               struct rp_error *error);
/** The ticket reads the file of the shard, which is open. */
void rp_files_use(struct rp_files *files, uint32_t shard, uint64_t ticket);

/** Twice a second, look whether an open file is still what it was (size, modification time). One
 * without hashes is -RP_E_CHANGED then; where every block is compared, that alone decides. By
 * dispatch. */
RP_MUST_CHECK int rp_files_watch(struct rp_files *files, struct rp_error *error);

/** Compare what was read of a checked file with its hashes. offset is block-aligned; `bytes` ends
 * on a block or at the end of the file. -RP_E_CORRUPT names the file and the block. */
RP_MUST_CHECK int rp_files_verify(const struct rp_files *files, uint32_t shard, uint64_t offset,
                                  const uint8_t *data, uint32_t bytes, struct rp_error *error);

/** Map every file. On failure (one is missing, say) none is, and the caller reads them instead. */
RP_MUST_CHECK int rp_files_map(struct rp_files *files, struct rp_error *error);

/** Are they? All are, or none. */
static inline bool rp_files_are_mapped(const struct rp_files *files)
{
    return files->files[0].map != NULL;
}

/** Has any mapped file hashes? */
bool rp_files_have_hashes(const struct rp_files *files);
/** Does a piece lie in a mapped file that has hashes? Then its tokens are taken by verified.h. */
static inline bool rp_files_is_checked(const struct rp_files *files, const struct rp_piece *piece)
{
    return piece->mapped_shard && files->files[piece->mapped_shard - 1].checked;
}

/** Whether the page cache holds (nearly) all of the corpus: 64 places of every file are looked at,
 * or of 1024 of them. */
bool rp_files_are_cached(const struct rp_corpus *corpus);

#endif
