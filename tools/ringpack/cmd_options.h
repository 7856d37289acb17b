/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_options.h — suggest the nearest option for a misspelt one. */
#ifndef RP_TOOLS_CMD_OPTIONS_H
#define RP_TOOLS_CMD_OPTIONS_H

#include <argp.h>
#include <getopt.h>

/** Parse the command line of a verb into `input`. Returns RP_EXIT_FINE, or RP_EXIT_TROUBLE after
 * reporting a mistake: the nearest option is suggested for a long option that is none. argp itself
 * ends the process at most mistakes, with the same status. */
int rp_cmd_parse(const struct argp *argp, int argc, char **argv, void *input);

/** `text`, the value of an option of argp that names a file or directory to write to: a URL is a
 * mistake. */
char *rp_cmd_local_path(const struct argp_state *state, const char *option, char *text);

/** The same for getopt: RP_EXIT_FINE, or RP_EXIT_TROUBLE after a message. */
int rp_cmd_refuse_url(const char *verb, const char *option, const char *text);

/** Returns RP_EXIT_FINE if every long option is one of these or an abbreviation of one, or
 * RP_EXIT_TROUBLE after reporting the first that is not. getopt parses afterwards. */
int rp_cmd_check_getopt(const struct option *options, int argc, char *const *argv);

#endif
