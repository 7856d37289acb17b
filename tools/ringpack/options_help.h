/* SPDX-License-Identifier: Apache-2.0 */
/* options_help.h — the help of a verb, in 79 columns. */
#ifndef RP_TOOLS_OPTIONS_HELP_H
#define RP_TOOLS_OPTIONS_HELP_H

#include "options.h"

/** Print the help of a verb with these options; `all`: as --help-all does. */
void rp_help_print(const struct rp_verb *verb, const struct rp_option *options, size_t count,
                   bool all);

#endif
