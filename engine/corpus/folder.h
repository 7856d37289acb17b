/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h — folders that stand for token files, and lists of paths. */
#ifndef RP_CORPUS_FOLDER_H
#define RP_CORPUS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/text.h"

/* A list of paths that grows. All zero is an empty one. */
struct rp_paths {
    char **paths;
    size_t count, capacity;
};
/** Append a copy of a path. */
RP_MUST_CHECK int rp_paths_add(struct rp_paths *paths, const char *path, struct rp_error *error);
/** Sort bytewise, whatever the locale, and drop repetitions. */
void rp_paths_sort(struct rp_paths *paths);
void rp_paths_release(struct rp_paths *paths);

/* What a folder holds, sorted bytewise, without names that begin with a dot. A folder in a store is
 * what lies directly below a URL; of a server that cannot be asked for a list, only those of the
 * files are known that would say which others there are (index.json and the like). */
struct rp_folder {
    const char *path; /* as people see it, without a slash at its end where it is a URL */
    const char *url;  /* likewise, and with its query, which may hold a secret; NULL: a directory */
    struct rp_paths names;
};
bool rp_folder_has(const struct rp_folder *folder, const char *name);

/** Append a file of the folder to the list. */
RP_MUST_CHECK int rp_folder_add(const struct rp_folder *folder, const char *name,
                                struct rp_paths *files, struct rp_error *error);

/** All of a file of the folder, as rp_file_read_all. */
RP_MUST_CHECK int rp_folder_read(const struct rp_folder *folder, const char *name,
                                 uint64_t bytes_max, char **text_out, size_t *bytes_out,
                                 struct rp_error *error);

/** The token files that a folder stands for, in their order: those of the first reader (readers.h)
 * whose format the folder has; in a store, where no reader knows it, all that have a sidecar. 0 and
 * nothing added: of none. The path of a folder may be a URL that ends with a slash. */
RP_MUST_CHECK int rp_folder_expand(const char *path, struct rp_paths *files,
                                   struct rp_error *error);
/** The path of some folder in a folder of a disk, if it has one. */
bool rp_folder_below(const char *path, char *below, size_t bytes);
/** What a folder may hold, for people: "NAME.bin with NAME.idx, …". */
void rp_folder_forms(char *text, size_t bytes);

/** Is it the name of a sidecar: that of a token file and four bytes? Also one of an older version,
 * which is refused where the token file is opened. */
static inline bool rp_folder_is_sidecar(const char *name)
{
    return rp_text_has_suffix(name, ".rpi") || rp_text_has_suffix(name, ".rpx");
}

#endif
