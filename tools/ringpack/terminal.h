/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.h — names of files, sources and keys are printed as they are, and may hold what a
 * terminal obeys: sequences that move the cursor, change colours or answer for the user. */
#ifndef RP_TOOLS_TERMINAL_H
#define RP_TOOLS_TERMINAL_H

/** If stdout is a terminal, let control characters come out escaped there, as "\033", all but
 * newlines and tabs. What goes to a pipe or a file stays as it is. Not for curses, which writes
 * control characters of its own and escapes those of names. */
void rp_terminal_guard(void);

#endif
