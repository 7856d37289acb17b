/* SPDX-License-Identifier: Apache-2.0 */
/* build.h — makes a corpus index, appends to one, or rewrites it.
 *
 * Flow: open (finds new shards), scan each shard, lay out, write each shard, hash each part,
 * finish. Scan, write and hash may be called from any number of threads, for different numbers; a
 * step begins when the step before it is done. The file has the same bytes whatever the order.
 *
 * The facts of a shard come from the older index, from its sidecar, or from its tokens; these are
 * read once and leave a sidecar in the work folder, PATH.work, which is removed at the end. So
 * after a kill, the next build continues with the unfinished shards. The older index counts only
 * for shards whose modification times match it: of the token file, its .idx, its mask and its
 * sidecar. A sidecar counts only if it is newer than the token file and its mask, is whole, and
 * matches the token file as at a start.
 *
 * For objects in stores, identities (ETags) are compared instead of times. The sidecar of an object
 * that is new to the index counts as at a start. If tokens, .idx or mask have changed since the
 * older index, the sidecar does not count, because no time relates it to a content; if only the
 * sidecar has changed, it counts if it agrees with the older index. An object counts as changed if
 * it or a companion has no identity. An object whose tokens must be read is in PATH.work while they
 * are read.
 *
 * Invariants: the index at PATH is complete at every moment: it is replaced by rename, or appended
 * data counts once its slot is written. One build at a time has PATH.work. */
#ifndef RP_CORPUS_INDEX_BUILD_H
#define RP_CORPUS_INDEX_BUILD_H

#include "corpus/index/index.h"

struct rp_indexing;

struct rp_indexing_options {
    const char *path;
    const struct rp_source_spec *sources; /* with their names, and every shard */
    const struct rp_index_patterns {
        const char *const *patterns; /* as in the configuration */
        uint32_t count;
    } * patterns; /* each source's */
    uint32_t source_count;
    const char *index_dir;
    const char *cache_dir; /* for indexes and sidecars of objects; NULL: as object/remote.h says */
};

enum rp_index_outcome {
    RP_INDEXED_NEW,
    RP_INDEXED_APPENDED,
    RP_INDEXED_REWRITTEN,
    RP_INDEXED_UNCHANGED
};

struct rp_indexed {
    enum rp_index_outcome outcome;
    char why[320]; /* why it was rewritten, or the older one does not count; may be empty */
    uint32_t shards, shards_read, shards_added; /* all; whose tokens were read; new */
    uint32_t columns_lost;                      /* columns of older segments, by a rewrite */
    uint64_t documents, tokens, bytes;          /* sums over all shards */
    struct rp_hash128 root;
    struct rp_fingerprint fingerprint;
};

RP_MUST_CHECK int rp_indexing_open(struct rp_indexing **build_out,
                                   const struct rp_indexing_options *options,
                                   struct rp_error *error);
void rp_indexing_close(struct rp_indexing *build);

/** The number of shards to scan and write, and the bytes of shard i. */
uint64_t rp_indexing_shards(const struct rp_indexing *build);
uint64_t rp_indexing_bytes(const struct rp_indexing *build, uint64_t i);
RP_MUST_CHECK int rp_indexing_scan(struct rp_indexing *build, uint64_t i,
                                   const struct rp_progress *progress, struct rp_error *error);
RP_MUST_CHECK int rp_indexing_lay_out(struct rp_indexing *build, struct rp_error *error);
RP_MUST_CHECK int rp_indexing_write(struct rp_indexing *build, uint64_t i, struct rp_error *error);
/** The number of parts to hash. */
uint64_t rp_indexing_parts(const struct rp_indexing *build);
void rp_indexing_hash(struct rp_indexing *build, uint64_t part);
RP_MUST_CHECK int rp_indexing_finish(struct rp_indexing *build, struct rp_indexed *built,
                                     struct rp_error *error);

/* ---- PATH.work (work.c) ---------------------------------------------------------------- */

/** Make the folder PATH.work if it does not exist, and lock it: as long as *fd_out is open, no
 * other process writes the index at PATH. Give both to rp_index_work_close, also after an error. */
RP_MUST_CHECK int rp_index_work_open(const char *path, char **work_out, int *fd_out,
                                     struct rp_error *error);
/** Remove the folder if it is empty, and unlock it. */
void rp_index_work_close(char *work, int fd);

#endif
