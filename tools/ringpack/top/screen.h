/* SPDX-License-Identifier: Apache-2.0 */
/* screen.h — a terminal on which lines are put, each cut to its width. */
#ifndef RP_TOOLS_SCREEN_H
#define RP_TOOLS_SCREEN_H

#include <stdbool.h>

#include "base/fail.h"

enum rp_ink { RP_INK_PLAIN, RP_INK_DIM, RP_INK_TITLE, RP_INK_WELL, RP_INK_ILL, RP_INK_CHOSEN };

enum rp_key {
    RP_KEY_NONE, /* the time is over, or the key has no meaning */
    RP_KEY_QUIT,
    RP_KEY_SORT,
    RP_KEY_DETAIL,
    RP_KEY_UP,
    RP_KEY_DOWN,
    RP_KEY_RESIZED,
};

struct rp_screen;

/** Take the terminal of stdin and stdout. -RP_E_USAGE without one. */
RP_MUST_CHECK int rp_screen_open(struct rp_screen **screen, struct rp_error *error);
/** Give it back as it was. NULL is fine. */
void rp_screen_close(struct rp_screen *screen);

int rp_screen_columns(const struct rp_screen *screen);
int rp_screen_lines(const struct rp_screen *screen);

/** Begin a new picture; rp_screen_show shows it, and sends only the differences. */
void rp_screen_begin(struct rp_screen *screen);
/** Put a text; it is cut to the width, and each byte that is not printable ASCII becomes `?`. */
void rp_screen_put(struct rp_screen *screen, int line, int column, enum rp_ink ink,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));
void rp_screen_show(struct rp_screen *screen);

/** Wait for a key, at most timeout_ms. */
enum rp_key rp_screen_key(struct rp_screen *screen, int timeout_ms);

#endif
