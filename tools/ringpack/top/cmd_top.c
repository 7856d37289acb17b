/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_top.c — `ringpack top`: the engines of this node, on a terminal, until a key ends it. */
#include "cmd.h"
#include "options.h"
#include "top/view.h"

static int run(const struct rp_cmd_line *line)
{
    static struct rp_watch watch;
    struct rp_error error = {0};
    int code = rp_watch_open(&watch, line->run_dir, line->words, line->count, &error);
    if (code == 0)
        code = rp_top_show(&watch, &error);
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
