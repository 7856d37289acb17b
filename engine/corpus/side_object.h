/* SPDX-License-Identifier: Apache-2.0 */
/* side_object.h — side columns of shards in stores: PREFIX.NAME.col is an object next to the
 * tokens.
 *
 * The start requests the header of each, and its hashes, unless a file of this machine has them:
 * the file is named after the hash of the hashes, which is compared at each start. Hashes of many
 * objects are fetched at a time, up to 64 MiB, or one larger object. Entries are read by ranges
 * while the stream runs, as tokens are, and compared with these hashes. */
#ifndef RP_CORPUS_SIDE_OBJECT_H
#define RP_CORPUS_SIDE_OBJECT_H

#include "corpus/side_file.h"

/* A column of a shard. */
struct rp_side_object {
    const char *token_url;
    struct rp_side_file *file; /* filled in */
    bool is_missing; /* filled in: the store has no such object, or does not disclose it */
};
/** Open the column `name` of shards. The hashes go to `cache_dir` (NULL: as object/remote.h says).
 * -ENOENT: `is_missing` says which. */
RP_MUST_CHECK int rp_sideobjects_open(struct rp_side_object *objects, size_t count,
                                      const char *name, const char *cache_dir,
                                      struct rp_error *error);
/** rp_sidefile_verify of an object, which is read whole. */
RP_MUST_CHECK int rp_sideobject_verify(const struct rp_side_file *file, struct rp_error *error);

#endif
