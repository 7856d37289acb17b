/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.h — whole objects, for what cannot be done in a store: the small ones that say what a
 * folder holds, into memory; and shards that are indexed, into a file. Every piece is compared with
 * the size and the identity of the first, so that what arrives is one content of the object. */
#ifndef RP_OBJECT_FETCH_H
#define RP_OBJECT_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/progress.h"

/* What is known of an object without reading it. */
struct rp_looked {
    uint64_t bytes;
    uint64_t identity; /* a hash of what tells one content of it from another; 0: nothing does */
};
/** Find the sizes and identities of objects, some at a time. They may be empty. One that is not
 * there, or of which the store does not say whether it is, is an error, or with may_be_missing like
 * an empty one. */
RP_MUST_CHECK int rp_fetch_looks(const char *const *urls, size_t count, bool may_be_missing,
                                 struct rp_looked *looked, struct rp_error *error);

/** All of an object of at most bytes_max bytes, with a NUL after it that is not counted; the caller
 * frees it. -ENOENT: it is not there, or the store does not say whether it is. */
RP_MUST_CHECK int rp_fetch_text(const char *url, uint64_t bytes_max, char **text_out,
                                size_t *bytes_out, struct rp_error *error);

/** All of an object into a new file, which appears under its name when it is whole. -ENOENT as
 * above; -RP_E_CHANGED unless `identity` is what identifies it (NULL: whatever does). */
RP_MUST_CHECK int rp_fetch_file(const char *url, const char *path, const char *identity,
                                const struct rp_progress *progress, struct rp_error *error);

#endif
