/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_options.h — suggest the nearest option for a misspelt one. */
#ifndef RP_TOOLS_CMD_OPTIONS_H
#define RP_TOOLS_CMD_OPTIONS_H

#include <argp.h>
#include <getopt.h>

/** Returns 0 if every long option of the command line is an option or an abbreviation of one, or
 * RP_EXIT_TROUBLE after reporting the first that is not. argp and getopt parse afterwards. */
int rp_cmd_check_argp(const struct argp *argp, int argc, char *const *argv);
int rp_cmd_check_getopt(const struct option *options, int argc, char *const *argv);

#endif
