/* SPDX-License-Identifier: Apache-2.0 */
/* help.h — the forms of `ringpack convert --help-all`. */
#ifndef RP_TOOLS_CONVERT_HELP_H
#define RP_TOOLS_CONVERT_HELP_H

extern const char rp_convert_forms[];

#endif
