/* SPDX-License-Identifier: Apache-2.0 */
/* help.h — what `ringpack convert --help` and `--help-all` print. */
#ifndef RP_TOOLS_CONVERT_HELP_H
#define RP_TOOLS_CONVERT_HELP_H

extern const char rp_convert_help[], rp_convert_help_all[];

#endif
