/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_state.h — read the state token of `--state FILE`, whatever the form of the file. */
#ifndef RP_TOOLS_CMD_STATE_H
#define RP_TOOLS_CMD_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/contract.h"
#include "base/fail.h"
#include "checkpoint/checkpoint.h"

/** Read a state token from a file of its own, where zeros may follow it as in a trainer's
 * state_dict; from a file that a trainer has saved it in (state/state_file.h); or from a checkpoint
 * of an engine, or the newest of a directory. Its hash and its fields are checked, and errors name
 * the file. The caller frees *state, which is NULL after a failure. */
RP_MUST_CHECK int rp_cmd_read_state(const char *path, char **state, size_t *bytes,
                                    struct rp_error *error);
/** The same, and the name of the file: `path`, or the checkpoint of that directory. The caller
 * frees *file, which is NULL after a failure. */
RP_MUST_CHECK int rp_cmd_read_state_of(const char *path, char **state, size_t *bytes, char **file,
                                       struct rp_error *error);

/** The contract of a checkpoint, or of the newest of a directory: a view of *text, which the caller
 * frees. False if the file is none, or has none. */
bool rp_cmd_read_contract(const char *path, char **text, struct rp_contract *contract);

bool rp_cmd_is_directory(const char *path);

/** Open a checkpoint, or the newest of a directory that verifies. */
RP_MUST_CHECK int rp_cmd_open_checkpoint(struct rp_checkpoint **checkpoint, const char *path,
                                         struct rp_error *error);

/** A copy of a section, which the caller frees. 0, and NULL where the checkpoint has none. */
RP_MUST_CHECK int rp_cmd_copy_section(const struct rp_checkpoint *checkpoint,
                                      enum rp_checkpoint_section_type type, char **copy,
                                      size_t *bytes, struct rp_error *error);

/** Whether a file is a state token, or has one in a form of trainers. */
bool rp_cmd_is_state(const char *path);

#endif
