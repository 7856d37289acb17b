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

/* The names in a folder, sorted bytewise, without names that begin with a dot. A folder in a store
 * has the objects directly below a URL. Without a listing API, only the index files of a data set
 * (index.json and the like) can be found. */
struct rp_folder {
    char *path; /* for display; a URL has no slash at its end */
    char *url;  /* likewise, with its query, which may hold a secret; NULL: a directory */
    struct rp_paths names;
};
bool rp_folder_has(const struct rp_folder *folder, const char *name);

/** Append a file of the folder to the list. */
RP_MUST_CHECK int rp_folder_add(const struct rp_folder *folder, const char *name,
                                struct rp_paths *files, struct rp_error *error);

/** The whole content of a file in the folder, as rp_file_read_all. */
RP_MUST_CHECK int rp_folder_read(const struct rp_folder *folder, const char *name,
                                 uint64_t bytes_max, char **text_out, size_t *bytes_out,
                                 struct rp_error *error);

/** List a folder; release it in any case. The path may be a URL that ends with a slash. */
RP_MUST_CHECK int rp_folder_list(struct rp_folder *folder, const char *path,
                                 struct rp_error *error);
void rp_folder_release(struct rp_folder *folder);
/** The path of any subfolder of a folder on a disk, if it has one. */
bool rp_folder_below(const char *path, char *below, size_t bytes);

/** Whether this is the name of a sidecar: a token file's name and four bytes. Also true for older
 * versions, which are refused when the token file is opened. */
static inline bool rp_folder_is_sidecar(const char *name)
{
    return rp_text_has_suffix(name, ".rpi") || rp_text_has_suffix(name, ".rpx");
}

#endif
