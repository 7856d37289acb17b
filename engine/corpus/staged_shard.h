/* SPDX-License-Identifier: Apache-2.0 */
/* staged_shard.h — a temporary local copy of a shard in a store and of its companion files, while
 * all of its tokens are read. A killed process may leave the directory behind. */
#ifndef RP_CORPUS_STAGED_SHARD_H
#define RP_CORPUS_STAGED_SHARD_H

#include "corpus/readers.h"

struct rp_staged_shard {
    char *directory; /* the shard's own directory */
    char *path;      /* the token file in it */
};

/** Fetch the shard of a URL and the companion files of all readers into a new directory below
 * `place`, which is made. -RP_E_CHANGED unless the shard has this `identity` (NULL: any). */
RP_MUST_CHECK int rp_staged_shard_open(struct rp_staged_shard *staged, const char *url,
                                       const char *identity, const char *place,
                                       const struct rp_progress *progress, struct rp_error *error);
/** Remove the directory. May be called after a failed open. */
void rp_staged_shard_close(struct rp_staged_shard *staged);
/** Remove the directories of killed processes below `place`, which no other process uses. */
void rp_staged_shard_sweep(const char *place);

/** Append the URLs of all possible companion files of an object. */
RP_MUST_CHECK int rp_staged_shard_companions(const char *url, struct rp_paths *urls,
                                             struct rp_error *error);

#endif
