/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_config.h — `-c FILE` and an option for every key of the config, for verbs that take a config.
 */
#ifndef RP_TOOLS_CMD_CONFIG_H
#define RP_TOOLS_CMD_CONFIG_H

#include <argp.h>

#include "config/config.h"
#include "job/job.h"

#define RP_CMD_SETTINGS_MAX 256

/* What the command line has given. Options override the file, whatever their order. */
struct rp_cmd_config {
    const struct rp_cmd_verb *verb;
    struct rp_config *config;
    const char *path;
    struct rp_cmd_setting {
        const char *key, *text;
    } settings[RP_CMD_SETTINGS_MAX];
    size_t setting_count;
};

/* A verb that takes a config and some options. Its arguments begin with a struct rp_cmd_config. */
struct rp_cmd_verb {
    const struct argp_option *options; /* of the verb only */
    argp_parser_t parse;               /* of these options */
    const char *args_doc;              /* NULL = it takes no words */
    const char *doc;
    int (*run)(void *arguments, const struct rp_config *config);
    int (*finish)(struct rp_cmd_config *arguments); /* NULL = rp_cmd_config_finish */
};

/** Parse the command line into `arguments`, finish the config, run. Returns the exit status. */
int rp_cmd_config_run(const struct rp_cmd_verb *verb, void *arguments, int argc, char **argv);

/** Read a config: a YAML file, or the config that a checkpoint keeps. */
RP_MUST_CHECK int rp_cmd_config_read_file(struct rp_config *config, const char *path,
                                          struct rp_error *error);

/** Read the file and apply the options. */
RP_MUST_CHECK int rp_cmd_config_read(struct rp_cmd_config *arguments, struct rp_error *error);

/** rp_cmd_config_read, then check and finish. Returns RP_EXIT_FINE, or RP_EXIT_TROUBLE after
 * reporting. */
int rp_cmd_config_finish(struct rp_cmd_config *arguments);

/** The last text that was given for a key; NULL if none was. */
const char *rp_cmd_config_given(const struct rp_cmd_config *arguments, const char *key);

/** Add the typed options to the command line of a child. */
void rp_cmd_config_words(const struct rp_cmd_config *arguments, struct rp_words *words);

#endif
