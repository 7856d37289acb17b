/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.h — names of files, sources and keys are printed as they are, and may hold commands to a
 * terminal: sequences that move the cursor, change colours or answer for the user. */
#ifndef RP_TOOLS_TERMINAL_H
#define RP_TOOLS_TERMINAL_H

#include <stdbool.h>

/** Let control characters come out of stdout escaped, as "\033", all but newlines and tabs: on a
 * terminal, and in output for people through a pipe or a file. Output for programs stays as it is
 * there. Not for curses, which writes control characters of its own and escapes them in names. */
void rp_terminal_guard(bool is_for_programs);

#endif
