/* SPDX-License-Identifier: Apache-2.0 */
#include "top/screen.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "top/curses.h"

#define LINE_BYTES 1024

struct rp_screen {
    const struct rp_curses *curses;
    SCREEN *terminal;
    WINDOW *window;
    int columns, lines;
};

/* Numbers of color pairs. */
enum { PAIR_WELL = 1, PAIR_ILL };

static void find_size(struct rp_screen *screen)
{
    struct winsize size = {0};
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row;
    screen->columns = known ? size.ws_col : 80;
    screen->lines = known ? size.ws_row : 24;
}

static int take_terminal(struct rp_screen *screen, struct rp_error *error)
{
    const struct rp_curses *curses = screen->curses;
    screen->terminal = curses->newterm(NULL, stdout, stdin);
    if (!screen->terminal)
        return rp_fail(error, -RP_E_USAGE,
                       "set TERM, for instance TERM=xterm, or use `ringpack ps`",
                       "the terminal `%s` is not known", getenv("TERM") ? getenv("TERM") : "");
    curses->cbreak();
    curses->noecho();
    curses->curs_set(0);
    if (curses->start_color() == OK && curses->use_default_colors() == OK) {
        curses->init_pair(PAIR_WELL, COLOR_GREEN, -1);
        curses->init_pair(PAIR_ILL, COLOR_RED, -1);
    }
    find_size(screen);
    screen->window = curses->newwin(screen->lines, screen->columns, 0, 0);
    if (!screen->window)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for the screen");
    curses->keypad(screen->window, true);
    return 0;
}

int rp_screen_open(struct rp_screen **screen_out, struct rp_error *error)
{
    *screen_out = NULL;
    if (isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1)
        return rp_fail(error, -RP_E_USAGE,
                       "`ringpack ps` and `ringpack stat RUN` print once, to anything",
                       "this is no terminal");
    struct rp_screen *screen = rp_calloc(1, sizeof *screen);
    if (!screen)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for the screen");
    screen->curses = rp_curses_load(error);
    int code = screen->curses ? take_terminal(screen, error) : -RP_E_RESOURCE;
    if (code < 0) {
        rp_screen_close(screen);
        return code;
    }
    *screen_out = screen;
    return 0;
}

void rp_screen_close(struct rp_screen *screen)
{
    if (!screen)
        return;
    if (screen->window)
        screen->curses->delwin(screen->window);
    if (screen->terminal) {
        screen->curses->endwin();
        screen->curses->delscreen(screen->terminal);
    }
    free(screen);
}

int rp_screen_columns(const struct rp_screen *screen)
{
    return screen->columns;
}

int rp_screen_lines(const struct rp_screen *screen)
{
    return screen->lines;
}

void rp_screen_begin(struct rp_screen *screen)
{
    screen->curses->werase(screen->window);
}

static int attributes_of(const struct rp_curses *curses, enum rp_ink ink)
{
    switch (ink) {
    case RP_INK_DIM:
        return (int)A_DIM;
    case RP_INK_TITLE:
        return (int)A_BOLD;
    case RP_INK_WELL:
        return curses->COLOR_PAIR(PAIR_WELL);
    case RP_INK_ILL:
        return curses->COLOR_PAIR(PAIR_ILL) | (int)A_BOLD;
    case RP_INK_CHOSEN:
        return (int)A_REVERSE;
    default:
        return (int)A_NORMAL;
    }
}

void rp_screen_put(struct rp_screen *screen, int line, int column, enum rp_ink ink,
                   const char *format, ...)
{
    char text[LINE_BYTES];
    va_list arguments;
    if (line < 0 || line >= screen->lines || column < 0 || column >= screen->columns)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    /* a character in the last place would scroll some terminals */
    int room = screen->columns - column - (line == screen->lines - 1);
    screen->curses->wattrset(screen->window, attributes_of(screen->curses, ink));
    if (room > 0 && screen->curses->wmove(screen->window, line, column) == OK)
        screen->curses->waddnstr(screen->window, text, room);
}

void rp_screen_show(struct rp_screen *screen)
{
    screen->curses->wnoutrefresh(screen->window);
    screen->curses->doupdate();
}

/* For a closed terminal, curses reports a timeout, but at once. */
static bool is_terminal_gone(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 0) > 0 && (input.revents & (POLLHUP | POLLERR | POLLNVAL));
}

enum rp_key rp_screen_key(struct rp_screen *screen, int timeout_ms)
{
    screen->curses->wtimeout(screen->window, timeout_ms);
    switch (screen->curses->wgetch(screen->window)) {
    case 'q':
    case 'Q':
    case 27:
        return RP_KEY_QUIT;
    case 's':
        return RP_KEY_SORT;
    case 'd':
    case '\n':
    case KEY_ENTER:
        return RP_KEY_DETAIL;
    case 'k':
    case KEY_UP:
        return RP_KEY_UP;
    case 'j':
    case KEY_DOWN:
        return RP_KEY_DOWN;
    case KEY_RESIZE:
        find_size(screen);
        screen->curses->wresize(screen->window, screen->lines, screen->columns);
        return RP_KEY_RESIZED;
    case ERR:
        return is_terminal_gone() ? RP_KEY_QUIT : RP_KEY_NONE;
    default:
        return RP_KEY_NONE;
    }
}
