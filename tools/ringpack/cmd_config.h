/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_config.h — the config of a verb that takes one: `-c FILE`, and the keys that are given as
 * options, which override the file. */
#ifndef RP_TOOLS_CMD_CONFIG_H
#define RP_TOOLS_CMD_CONFIG_H

#include "config/config.h"
#include "job/job.h"
#include "options.h"

/** Parse the command line into `arguments`, finish the config, run. Returns the exit status. */
int rp_cmd_config_run(const struct rp_verb *verb, void *arguments, int argc, char **argv);

/** Read the file and apply the options. */
RP_MUST_CHECK int rp_cmd_config_read(struct rp_cmd_line *arguments, struct rp_error *error);

/** rp_cmd_config_read, then check and finish. Returns RP_EXIT_FINE, or RP_EXIT_TROUBLE after
 * reporting. */
int rp_cmd_config_finish(struct rp_cmd_line *arguments);

/** The same of a run that continues from this state token (NULL: from a checkpoint, or from row 0):
 * a config without `stream_version` has the token's. */
int rp_cmd_config_finish_at(struct rp_cmd_line *arguments, const void *state, size_t bytes);
/** The same after rp_cmd_config_read. */
int rp_cmd_config_end_at(struct rp_cmd_line *arguments, const void *state, size_t bytes);

/** The same of the state in a file, or NULL. A pipe, which can be read only once, is left to the
 * verb. */
int rp_cmd_config_finish_at_file(struct rp_cmd_line *arguments, const char *path);

/** The last text that was given for a key; NULL if none was. */
const char *rp_cmd_config_given(const struct rp_cmd_line *arguments, const char *key);

/** Add the typed file and options to the command line of a child. */
void rp_cmd_config_given_words(const struct rp_cmd_line *arguments, struct rp_words *words);
/** The same, and the stream version that the config has here. */
void rp_cmd_config_words(const struct rp_cmd_line *arguments, struct rp_words *words);

#endif
