/* SPDX-License-Identifier: Apache-2.0 */
/* build.h — making a manifest, appending to one, or making it anew (`ringpack index -c`).
 *
 * Flow: open (what is new?), learn each shard, place, fill each shard, hash each part, finish.
 * Learn, fill and hash may be called from any number of threads, for different numbers; a step
 * begins when the step before it is done. The file has the same bytes whatever the order.
 *
 * What a shard is, is learnt from the older manifest, from its sidecar, or from its tokens; these
 * are read once and leave a sidecar of their own in the folder PATH.work, which is removed at the
 * end. So a run that is killed goes on with the shards that it has not finished. An older manifest
 * counts only for shards that have the modification times that it has: of the token file, of its
 * .idx, of its mask and of its sidecar. A sidecar counts only if it is newer than the token file
 * and its mask, is whole, and is found to belong to the token file as at a start.
 *
 * Of objects in stores, identities (ETags) are compared in the place of times. The sidecar of an
 * object that the older manifest does not have counts as at a start. If tokens, .idx or mask have
 * changed since, it does not count, because no time tells of which content it is; if it alone has
 * changed, it counts if it says what the older manifest says. An object without an identity, or
 * beside which one has none, counts as changed. An object whose tokens must be read is in PATH.work
 * while they are read.
 *
 * Invariants: the manifest at PATH is complete at every moment: it is replaced by rename, or what
 * is appended counts from the moment in which a slot is written. One build at a time has PATH.work.
 */
#ifndef RP_CORPUS_MANIFEST_BUILD_H
#define RP_CORPUS_MANIFEST_BUILD_H

#include "corpus/manifest/manifest.h"

struct rp_manifest_build;

struct rp_manifest_build_options {
    const char *path;
    const struct rp_source_spec *sources; /* with their names, and every shard */
    const struct rp_manifest_patterns {
        const char *const *patterns; /* as in the configuration */
        uint32_t count;
    } * patterns; /* of each source */
    uint32_t source_count;
    const char *index_dir;
    const char *cache_dir; /* for indexes and sidecars of objects; NULL: as object/remote.h says */
};

enum rp_manifest_outcome {
    RP_MANIFEST_NEW,
    RP_MANIFEST_APPENDED,
    RP_MANIFEST_REWRITTEN,
    RP_MANIFEST_UNCHANGED
};

struct rp_manifest_built {
    enum rp_manifest_outcome outcome;
    char why[320]; /* it was rewritten, or the older one does not count; may be empty */
    uint32_t shards, shards_read, shards_added; /* all; of which all tokens were read; new ones */
    uint64_t documents, tokens, bytes;          /* of all shards */
    struct rp_hash128 root;
    struct rp_fingerprint fingerprint;
};

RP_MUST_CHECK int rp_manifest_build_open(struct rp_manifest_build **build_out,
                                         const struct rp_manifest_build_options *options,
                                         struct rp_error *error);
void rp_manifest_build_close(struct rp_manifest_build *build);

/** How many shards are to be learnt and filled, and how many bytes shard i has. */
uint64_t rp_manifest_build_shards(const struct rp_manifest_build *build);
uint64_t rp_manifest_build_bytes(const struct rp_manifest_build *build, uint64_t i);
RP_MUST_CHECK int rp_manifest_build_learn(struct rp_manifest_build *build, uint64_t i,
                                          const struct rp_progress *progress,
                                          struct rp_error *error);
RP_MUST_CHECK int rp_manifest_build_place(struct rp_manifest_build *build, struct rp_error *error);
RP_MUST_CHECK int rp_manifest_build_fill(struct rp_manifest_build *build, uint64_t i,
                                         struct rp_error *error);
/** How many parts of its pages there are. */
uint64_t rp_manifest_build_parts(const struct rp_manifest_build *build);
void rp_manifest_build_hash(struct rp_manifest_build *build, uint64_t part);
RP_MUST_CHECK int rp_manifest_build_finish(struct rp_manifest_build *build,
                                           struct rp_manifest_built *built, struct rp_error *error);

#endif
