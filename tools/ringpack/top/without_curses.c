/* SPDX-License-Identifier: Apache-2.0 */
/* without_curses.c — in the place of the other files where the program was built without ncurses.
 */
#include "top/view.h"

int rp_top_show(struct rp_watch *watch, struct rp_error *error)
{
    (void)watch;
    return rp_fail(error, -RP_E_RESOURCE, "build it with libncurses-dev, or use `ringpack ps`",
                   "cannot draw: ringpack was built without ncurses");
}
