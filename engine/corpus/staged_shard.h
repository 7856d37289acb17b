/* SPDX-License-Identifier: Apache-2.0 */
/* staged_shard.h — a shard of a store on a disk of this machine, with the files beside it, for as
 * long as all of its tokens are read. A killed process may leave the directory behind. */
#ifndef RP_CORPUS_STAGED_SHARD_H
#define RP_CORPUS_STAGED_SHARD_H

#include "corpus/readers.h"

struct rp_staged_shard {
    char *directory; /* of its own */
    char *path;      /* of the token file in it */
};

/** Fetch the shard of a URL and the files that readers search for beside it into a new directory
 * below `place`, which is made. -RP_E_CHANGED unless `identity` identifies the shard (NULL:
 * whatever does). */
RP_MUST_CHECK int rp_staged_shard_open(struct rp_staged_shard *staged, const char *url,
                                       const char *identity, const char *place,
                                       const struct rp_progress *progress, struct rp_error *error);
/** Remove the directory. Fine after a failed open, too. */
void rp_staged_shard_close(struct rp_staged_shard *staged);
/** Remove what processes that were killed have left below `place`, which no other process uses. */
void rp_staged_shard_sweep(const char *place);

/** Append the URLs of all that readers search for beside the object of a URL. */
RP_MUST_CHECK int rp_staged_shard_companions(const char *url, struct rp_paths *urls,
                                             struct rp_error *error);

#endif
