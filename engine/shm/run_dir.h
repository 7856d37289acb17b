/* SPDX-License-Identifier: Apache-2.0 */
/* run_dir.h — the run directory: the place of an engine's socket, where trainers search for it.
 * Private to engine/shm, and to tools/ringpack, which searches for engines.
 *
 * Named by --run-dir, it is that directory and no other. Otherwise there are two:
 * $XDG_RUNTIME_DIR/ringpack and, if that cannot be used, /tmp/ringpack-UID. An engine takes the
 * first one that it can use; a trainer, whose environment may be another, searches both. */
#ifndef RP_SHM_RUN_DIR_H
#define RP_SHM_RUN_DIR_H

#include <stdbool.h>
#include <sys/un.h>

#include "base/fail.h"

/* Where to search, in this order. */
struct rp_run_dirs {
    char *paths[2];
    unsigned count;
    bool is_default;
};
RP_MUST_CHECK int rp_run_dirs_list(struct rp_run_dirs *dirs, const char *run_dir,
                                   struct rp_error *error);
void rp_run_dirs_free(struct rp_run_dirs *dirs);

/** Open a run directory: owned by us, writable by no other user, no symlink. Returns a descriptor,
 * -ENOENT if it does not exist, or a code. */
RP_MUST_CHECK int rp_run_dir_open(const char *path, struct rp_error *error);

/** -RP_E_USAGE unless it can be the name of a run, and so of a file. */
RP_MUST_CHECK int rp_run_name_check(const char *run, struct rp_error *error);

/** The address of NAME.sock in the directory, reached through its descriptor: no race between check
 * and use, and a long path meets no limit of sun_path. */
struct sockaddr_un rp_run_socket_address(int directory_fd, const char *run);

#endif
