/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.h — fetch whole objects, for uses that cannot read them in a store: small objects that list
 * the contents of a folder, into memory; shards to index, into a file. The size and the identity of
 * every piece are compared with the first piece's, so that all bytes are of one content of the
 * object. */
#ifndef RP_OBJECT_FETCH_H
#define RP_OBJECT_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/progress.h"
#include "object/reply.h"

/* The size and the identity of an object. */
struct rp_remote_stat {
    uint64_t bytes;
    uint64_t identity; /* a hash of its identity (reply.h); 0: the store names none */
};
/** Find the sizes and identities of objects, several at a time. Objects may be empty. A missing
 * object, or one whose existence the store does not disclose, is an error; with may_be_missing it
 * counts as empty. */
RP_MUST_CHECK int rp_fetch_stats(const char *const *urls, size_t count, bool may_be_missing,
                                 struct rp_remote_stat *stats, struct rp_error *error);

/* A part of an object. */
struct rp_fetch_part {
    const char *url;
    uint8_t *to; /* [bytes] */
    uint64_t offset;
    uint32_t bytes;
    /* The size and the identity of the object, "" if the store names none. */
    uint64_t total;
    char identity[RP_IDENTITY_BYTES];
    struct rp_error error; /* rp_fetch_heads: -ENOENT or -EACCES if it may be missing */
};
/** Read the first bytes of objects, or all of shorter ones, several at a time, and find their sizes
 * and identities. Each has its own error; the call fails only if no request can be made. */
RP_MUST_CHECK int rp_fetch_heads(struct rp_fetch_part *parts, size_t count, struct rp_error *error);
/** Read parts of objects of known sizes and identities, several at a time. The first error ends it.
 */
RP_MUST_CHECK int rp_fetch_parts(struct rp_fetch_part *parts, size_t count, struct rp_error *error);

/** Read a whole object of at most bytes_max bytes, and add a NUL that is not counted; the caller
 * frees it. -ENOENT: it is missing, or the store does not disclose its existence. */
RP_MUST_CHECK int rp_fetch_text(const char *url, uint64_t bytes_max, char **text_out,
                                size_t *bytes_out, struct rp_error *error);

/** Write a whole object to a new file, which appears under its name once it is complete. -ENOENT as
 * above; -RP_E_CHANGED if the object's identity is not `identity` (NULL: any identity). */
RP_MUST_CHECK int rp_fetch_file(const char *url, const char *path, const char *identity,
                                const struct rp_progress *progress, struct rp_error *error);

#endif
