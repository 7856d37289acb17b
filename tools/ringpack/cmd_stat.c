/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_stat.c — `ringpack stat`: the status of a running engine, as JSON with all keys of the
 * engine's answer, or as a page for people. */
#include <jansson.h>
#include <unistd.h>

#include "cmd.h"
#include "cmd_run.h"
#include "options.h"
#include "stat_page.h"

struct arguments {
    struct rp_cmd_line line;
    bool json;
};

static const struct rp_option options[] = {
    {RP_FLAG("json", struct arguments, json),
     .help = "print JSON (the default if stdout is no terminal)"},
    {0},
};

static int stat_run(const struct arguments *arguments)
{
    struct rp_error error;
    json_t *stat;
    const struct rp_cmd_line *line = &arguments->line;
    if (rp_cmd_run_stat(line->run_dir, line->words[0], &stat, &error) < 0)
        return rp_cmd_report(&error);
    if (arguments->json || isatty(STDOUT_FILENO) != 1) {
        rp_cmd_print_json(stat);
    } else {
        rp_status_page(stat);
        json_decref(stat);
    }
    return RP_EXIT_FINE;
}

int rp_cmd_stat(int argc, char **argv)
{
    static const struct rp_verb verb = {.name = "stat",
                                        .usage = "[RUN]",
                                        .help = "Show the state of a running engine.",
                                        .options = options,
                                        .takes = RP_TAKES_RUN,
                                        .words_most = 1};
    struct arguments arguments = {0};
    if (rp_cmd_parse(&verb, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    return stat_run(&arguments);
}
