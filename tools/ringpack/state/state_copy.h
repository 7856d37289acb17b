/* SPDX-License-Identifier: Apache-2.0 */
/* state_copy.h — `ringpack checkpoint export | import | diff`. Each returns the exit status. */
#ifndef RP_TOOLS_STATE_COPY_H
#define RP_TOOLS_STATE_COPY_H

#include <stdbool.h>

/* A state token that is taken from one place and written to a file. */
struct rp_saved_copy {
    const char *path;          /* whatever rp_cmd_read_state reads; or NULL: */
    const char *run, *run_dir; /* a running engine's */
    const char *output;
    bool is_import; /* write only the token, whatever the name of the file */
    bool json;
};
int rp_saved_copy(const struct rp_saved_copy *copy);

/** Compare two checkpoints, directories of them, or files with a state, and print differences. */
int rp_saved_diff(const char *had, const char *has, bool json);

#endif
