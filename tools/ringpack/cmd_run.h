/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_run.h — one way to name a run, for the verbs about engines that run: `RUN`, `--run RUN`, or
 * `-c CONFIG`, whose keys `run` and `run_dir` say which. */
#ifndef RP_TOOLS_CMD_RUN_H
#define RP_TOOLS_CMD_RUN_H

#include <argp.h>

#include <stdbool.h>

#include "base/fail.h"

/* Entries of a verb's options, which its parser never sees. */
enum { RP_OPTION_RUN = 0x1f10, RP_OPTION_RUN_CONFIG };
#define RP_RUN_OPTION                                                                              \
    {                                                                                              \
        "run", RP_OPTION_RUN, "RUN", 0, "the run: the same as the word RUN", 0                     \
    }
#define RP_RUN_CONFIG_OPTION                                                                       \
    {                                                                                              \
        "config", 'c', "FILE", 0, "the run that this config, or checkpoint, is of", 0              \
    }

/** True if a word names no file, and may name a run. */
bool rp_cmd_is_run(const char *word);

/** The run that a config, or the config of a checkpoint, is of: its name, its run directory and its
 * checkpoint directory, NULL where the config has none. Freed by rp_cmd_run_free. */
struct rp_run_of {
    char *run, *run_dir, *checkpoint_dir;
};
RP_MUST_CHECK int rp_cmd_run_of(const char *config_path, struct rp_run_of *of,
                                struct rp_error *error);
void rp_cmd_run_free(struct rp_run_of *of);

/** As rp_cmd_parse; --run and -c become the word RUN, and --run-dir if the config has one. */
int rp_cmd_parse_run(const struct argp *argp, int argc, char **argv, void *input);

#endif
