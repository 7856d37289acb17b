/* SPDX-License-Identifier: Apache-2.0 */
/* own_dir.h — directories that no other user may write to. In /tmp anybody can make a directory of
 * any name first, and then put files in it that we would take for our own. */
#ifndef RP_BASE_OWN_DIR_H
#define RP_BASE_OWN_DIR_H

#include "base/fail.h"

/** Open a directory: owned by us, writable by no other user, no symlink. Its description `what`
 * begins the message, and `choose` says in the hint how to choose another one. Returns a
 * descriptor, -ENOENT if it does not exist, or a code. */
RP_MUST_CHECK int rp_own_dir_open(const char *path, const char *what, const char *choose,
                                  struct rp_error *error);

/** Directory of files that can be made again: `given`, or $XDG_CACHE_HOME/ringpack,
 * ~/.cache/ringpack or, without a home that can be written, /tmp/ringpack-UID-cache. The caller
 * frees it; NULL when out of memory. */
char *rp_dir_of_caches(const char *given);

/** rp_dir_make for such a directory, or one in it. The one in /tmp has to be our own. */
RP_MUST_CHECK int rp_dir_make_caches(const char *path, struct rp_error *error);

#endif
