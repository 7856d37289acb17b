/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_options.h — a misspelt option is told with the one that is near it. */
#ifndef RP_TOOLS_CMD_OPTIONS_H
#define RP_TOOLS_CMD_OPTIONS_H

#include <argp.h>
#include <getopt.h>

/** Returns 0 if every long option of the command line begins one that there is, or RP_EXIT_TROUBLE
 * after naming the first that does not. argp and getopt then parse as they do. */
int rp_cmd_check_argp(const struct argp *argp, int argc, char *const *argv);
int rp_cmd_check_getopt(const struct option *options, int argc, char *const *argv);

#endif
