/* SPDX-License-Identifier: Apache-2.0 */
/* curses.h — ncurses, loaded only when `ringpack top` starts. */
#ifndef RP_TOOLS_CURSES_H
#define RP_TOOLS_CURSES_H

#define NCURSES_NOMACROS
#include <ncurses.h>

#include "base/fail.h"

#define RP_CURSES_FUNCTIONS(X)                                                                     \
    X(newterm)                                                                                     \
    X(delscreen)                                                                                   \
    X(newwin)                                                                                      \
    X(delwin)                                                                                      \
    X(wresize)                                                                                     \
    X(endwin)                                                                                      \
    X(cbreak)                                                                                      \
    X(noecho)                                                                                      \
    X(curs_set)                                                                                    \
    X(keypad)                                                                                      \
    X(wtimeout)                                                                                    \
    X(wgetch)                                                                                      \
    X(werase)                                                                                      \
    X(wmove)                                                                                       \
    X(waddnstr)                                                                                    \
    X(wattrset)                                                                                    \
    X(wnoutrefresh)                                                                                \
    X(doupdate)                                                                                    \
    X(start_color)                                                                                 \
    X(use_default_colors)                                                                          \
    X(init_pair)                                                                                   \
    X(COLOR_PAIR)

/* Each is called as curses->NAME(…) where its documentation says NAME(…). */
struct rp_curses {
#define RP_CURSES_POINTER(name) __typeof__(name) *name;
    RP_CURSES_FUNCTIONS(RP_CURSES_POINTER)
#undef RP_CURSES_POINTER
};

/** Load it. NULL, with the reason, if it cannot be loaded. One thread. */
const struct rp_curses *rp_curses_load(struct rp_error *error);

#endif
