/* SPDX-License-Identifier: Apache-2.0 */
/* out_dir.h — the directories of outputs, and the files in them that are written in place.
 *
 * An entry is foreign if everybody may write to the directory that holds it (as to /tmp), and its
 * owner is neither this user, nor root, nor the owner of that directory: anybody can have made it
 * there first. On the way to an output a foreign symlink is not followed, and a foreign directory
 * is not entered if everybody may also write to it. A foreign file is not written to, and not
 * replaced if the directory is sticky. All other directories are used, also directories of a group,
 * whose members may write there because its owner has said so.
 *
 * Each part of a path is opened in the directory before it and judged by its descriptor, so that
 * an entry which is replaced meanwhile is judged again or not reached. */
#ifndef RP_BASE_OUT_DIR_H
#define RP_BASE_OUT_DIR_H

#include <sys/types.h>

#include "base/fail.h"

/** Open a directory to write files in it, with a descriptor that can be read, as a list of names or
 * a sync of them needs it. */
RP_MUST_CHECK int rp_out_dir_open_read(const char *path, struct rp_error *error);

/** Open a directory to write files in it, which is made, with its parents, if it is missing. The
 * descriptor may be one of O_PATH, if the directory cannot be read. */
RP_MUST_CHECK int rp_out_dir_make(const char *path, mode_t mode, struct rp_error *error);

/** The same for the directory of a file, which must exist. *name is the file's name in it, within
 * `path`. */
RP_MUST_CHECK int rp_out_dir_of(const char *path, const char **name, struct rp_error *error);

/** Open a file that is written in place, as open(2) does. With O_NOFOLLOW no symlink is followed
 * at its name, otherwise one that is not foreign. */
RP_MUST_CHECK int rp_out_file_open(const char *path, int flags, mode_t mode,
                                   struct rp_error *error);

/** rp_out_file_open in a directory that is open, without following a symlink. `path` is of both,
 * for messages. */
RP_MUST_CHECK int rp_out_file_open_at(int dir, const char *name, int flags, mode_t mode,
                                      const char *path, struct rp_error *error);

/** Whether a rename to `name` may replace the present entry. `path` is the path of both. */
RP_MUST_CHECK int rp_out_file_check_replaced(int dir, const char *name, const char *path,
                                             struct rp_error *error);

#endif
