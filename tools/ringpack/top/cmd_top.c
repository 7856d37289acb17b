/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_top.c — `ringpack top`: the engines of this node, on a terminal, until a key ends it. */
#include <stdio.h>

#include "base/clock.h"
#include "cmd.h"
#include "interrupt.h"
#include "options.h"
#include "top/view.h"

#define LOOK_NS UINT64_C(1000000000)
#define PATIENCE_NS UINT64_C(500000000)

static void look(struct rp_view *view, struct rp_watch *watch)
{
    struct rp_error error = {0};
    int code = rp_watch_look(watch, PATIENCE_NS, &error);
    snprintf(view->trouble, sizeof view->trouble, "%s",
             code < 0 ? error.message[0] ? error.message : rp_strerror(code) : "");
}

static void show(struct rp_screen *screen, struct rp_watch *watch)
{
    struct rp_view view = {.is_detailed = true};
    enum rp_key key = RP_KEY_NONE;
    while (key != RP_KEY_QUIT && !rp_interrupted()) {
        uint64_t next_ns = rp_now_ns() + LOOK_NS;
        look(&view, watch);
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

static int run(const struct rp_cmd_line *line)
{
    static struct rp_watch watch;
    struct rp_screen *screen = NULL;
    struct rp_error error = {0};
    int code = rp_watch_open(&watch, line->run_dir, line->words, line->count, &error);
    rp_interrupt_catch(); /* before curses, which would end the process */
    if (code == 0)
        code = rp_screen_open(&screen, &error);
    if (code == 0)
        show(screen, &watch);
    rp_screen_close(screen);
    rp_watch_close(&watch);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_top(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "top",
        .usage = "[RUN...]",
        .help = "Show the engines of this machine and user, once a second.",
        .notes = "Keys: q quits, s changes the order, d shows one engine or only the list, up and "
                 "down (or k and j) choose the engine. The bar of a ring shows its ready batches: "
                 "if it is empty, the trainer waits for the engine; if it is full, the engine "
                 "waits for the trainer.",
        .takes = RP_TAKES_RUN,
        .words_most = SIZE_MAX};
    struct rp_cmd_line line = {0};
    if (rp_cmd_parse(&verb, argc, argv, &line) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    return run(&line);
}
