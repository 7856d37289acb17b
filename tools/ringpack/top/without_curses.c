/* SPDX-License-Identifier: Apache-2.0 */
/* without_curses.c — in the place of screen.c where the program was built without ncurses. */
#include "top/screen.h"

int rp_screen_open(struct rp_screen **screen, struct rp_error *error)
{
    *screen = NULL;
    return rp_fail(error, -RP_E_RESOURCE, "build it with libncurses-dev, or use `ringpack ps`",
                   "nothing can be drawn: ringpack was built without ncurses");
}

void rp_screen_close(struct rp_screen *screen)
{
    (void)screen;
}

int rp_screen_columns(const struct rp_screen *screen)
{
    (void)screen;
    return 0;
}

int rp_screen_lines(const struct rp_screen *screen)
{
    (void)screen;
    return 0;
}

void rp_screen_begin(struct rp_screen *screen)
{
    (void)screen;
}

void rp_screen_put(struct rp_screen *screen, int line, int column, enum rp_ink ink,
                   const char *format, ...)
{
    (void)screen;
    (void)line;
    (void)column;
    (void)ink;
    (void)format;
}

void rp_screen_show(struct rp_screen *screen)
{
    (void)screen;
}

enum rp_key rp_screen_key(struct rp_screen *screen, int timeout_ms)
{
    (void)screen;
    (void)timeout_ms;
    return RP_KEY_QUIT;
}
