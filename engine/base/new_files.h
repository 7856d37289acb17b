/* SPDX-License-Identifier: Apache-2.0 */
/* new_files.h — new files that are published together, so that many need few syncs.
 *
 *     content of all ──► sync ──► rename of each ──► sync of each directory
 *
 * Invariant: a file is renamed only after its content was synced, as in rp_new_file_publish. So
 * after a power cut at any moment, each path has its old content or its new content, whole. A kill
 * before the renames leaves only files without a name, which the kernel removes.
 *
 * Each file has its fsync, which reports whether its content is on the disk. Before that, one
 * syncfs writes many files of one local file system, which leaves each fsync little work. */
#ifndef RP_BASE_NEW_FILES_H
#define RP_BASE_NEW_FILES_H

#include "base/file.h"

/* Descriptors that are open at a time. */
#define RP_NEW_FILES_MAX 256u

struct rp_new_files {
    uint32_t count;
    struct rp_new_file files[RP_NEW_FILES_MAX];
    /* Filled in by rp_new_files_publish: 0, or a negative code and why. */
    int codes[RP_NEW_FILES_MAX];
    struct rp_error errors[RP_NEW_FILES_MAX];
};

/** Publish files[0 .. count - 1], in this order; each is closed in any case. A file that fails is
 * in the state that rp_new_file_publish describes, and the others are published all the same. */
void rp_new_files_publish(struct rp_new_files *files);

#endif
