/* SPDX-License-Identifier: Apache-2.0 */
/* view.h — the picture of `ringpack top`: a line for each engine, and a table of one. */
#ifndef RP_TOOLS_TOP_VIEW_H
#define RP_TOOLS_TOP_VIEW_H

#include "top/screen.h"
#include "watch/watch.h"

enum rp_view_order { RP_VIEW_BY_NAME, RP_VIEW_BY_SPEED, RP_VIEW_BY_STATE, RP_VIEW_ORDERS };

struct rp_view {
    enum rp_view_order order;
    bool is_detailed;
    char chosen[RP_RUN_NAME_BYTES]; /* run; "" = the first */
    char trouble[256];              /* why the last poll failed; "" = it did not */
};

void rp_view_draw(struct rp_view *view, struct rp_screen *screen, const struct rp_watch *watch);

/** Choose another order, engine or depth. */
void rp_view_press(struct rp_view *view, enum rp_key key, const struct rp_watch *watch);

/* show.c, or without_curses.c */
/** Draw once a second, until a key or a signal ends it. */
RP_MUST_CHECK int rp_top_show(struct rp_watch *watch, struct rp_error *error);

#endif
