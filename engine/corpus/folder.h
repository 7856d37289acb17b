/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h — folders that stand for token files, and lists of paths. */
#ifndef RP_CORPUS_FOLDER_H
#define RP_CORPUS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"

/* A list of paths that grows. All zero is an empty one. */
struct rp_paths {
    char **paths;
    size_t count, capacity;
};
/** Append DIRECTORY/NAME, or NAME alone where directory is NULL. */
RP_MUST_CHECK int rp_paths_add(struct rp_paths *paths, const char *directory, const char *name,
                               struct rp_error *error);
/** Sort bytewise, whatever the locale, and drop repetitions. */
void rp_paths_sort(struct rp_paths *paths);
void rp_paths_release(struct rp_paths *paths);

/* What a folder holds, sorted bytewise, without names that begin with a dot. */
struct rp_folder {
    const char *path;
    struct rp_paths names;
};
bool rp_folder_has(const struct rp_folder *folder, const char *name);

/** The token files that a folder stands for, in their order: those of the first reader (readers.h)
 * whose format the folder has. 0 and nothing added: of none. */
RP_MUST_CHECK int rp_folder_expand(const char *path, struct rp_paths *files,
                                   struct rp_error *error);
/** What a folder may hold, for people: "NAME.bin with NAME.idx, …". */
void rp_folder_forms(char *text, size_t bytes);

#endif
