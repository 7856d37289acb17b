/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_run.h — config files, and the run that a word or a config names. */
#ifndef RP_TOOLS_CMD_RUN_H
#define RP_TOOLS_CMD_RUN_H

#include <jansson.h>
#include <stdbool.h>

#include "base/fail.h"
#include "config/config.h"

/** Read a config: a YAML file, or the config that a checkpoint keeps. */
RP_MUST_CHECK int rp_cmd_config_read_file(struct rp_config *config, const char *path,
                                          struct rp_error *error);

/** Query a running engine for its status. The caller releases *stat. */
RP_MUST_CHECK int rp_cmd_run_stat(const char *run_dir, const char *run, json_t **stat,
                                  struct rp_error *error);

/** The checkpoint directory of a running engine. The caller frees *directory. */
RP_MUST_CHECK int rp_cmd_run_directory(const char *run_dir, const char *run, char **directory,
                                       struct rp_error *error);

/** True if a word names no file, and may name a run. */
bool rp_cmd_is_run(const char *word);

/** The run of one of the streams of a run (NULL: of `default`), which its engine lists. */
RP_MUST_CHECK int rp_cmd_run_stream(const char *run_dir, const char **run, const char *stream,
                                    struct rp_error *error);

/** The run that a config, or the config of a checkpoint, is of: its name, its run directory and its
 * checkpoint directory, NULL where the config has none. `stream` chooses one of its streams; NULL:
 * the one that it chooses itself. Freed by rp_cmd_run_free. */
struct rp_run_of {
    char *run, *run_dir, *checkpoint_dir;
};
RP_MUST_CHECK int rp_cmd_run_of(const char *config_path, const char *stream, struct rp_run_of *of,
                                struct rp_error *error);
void rp_cmd_run_free(struct rp_run_of *of);

#endif
