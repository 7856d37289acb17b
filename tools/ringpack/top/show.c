/* SPDX-License-Identifier: Apache-2.0 */
/* show.c — the terminal of `ringpack top` (view.h). */
#include <stdio.h>

#include "base/clock.h"
#include "interrupt.h"
#include "top/view.h"

#define POLL_NS UINT64_C(1000000000)
#define PATIENCE_NS UINT64_C(500000000)

static void poll_runs(struct rp_view *view, struct rp_watch *watch)
{
    struct rp_error error = {0};
    int code = rp_watch_poll(watch, PATIENCE_NS, &error);
    snprintf(view->trouble, sizeof view->trouble, "%s",
             code < 0 ? error.message[0] ? error.message : rp_strerror(code) : "");
}

static void show(struct rp_screen *screen, struct rp_watch *watch)
{
    struct rp_view view = {.is_detailed = true};
    enum rp_key key = RP_KEY_NONE;
    while (key != RP_KEY_QUIT && !rp_interrupted()) {
        uint64_t next_ns = rp_now_ns() + POLL_NS;
        poll_runs(&view, watch);
        rp_view_draw(&view, screen, watch);
        for (uint64_t now;
             (now = rp_now_ns()) < next_ns && key != RP_KEY_QUIT && !rp_interrupted();) {
            key = rp_screen_key(screen, (int)((next_ns - now) / 1000000u) + 1);
            if (key == RP_KEY_NONE)
                continue;
            rp_view_press(&view, key, watch);
            rp_view_draw(&view, screen, watch);
        }
    }
}

int rp_top_show(struct rp_watch *watch, struct rp_error *error)
{
    struct rp_screen *screen = NULL;
    rp_interrupt_catch(); /* before curses, which would end the process */
    int code = rp_screen_open(&screen, error);
    if (code == 0)
        show(screen, watch);
    rp_screen_close(screen);
    return code;
}
