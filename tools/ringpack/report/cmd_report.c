/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_report.c — `ringpack report`: a run on one page. */
#include <stdio.h>
#include <unistd.h>

#include "cmd.h"
#include "options.h"
#include "page_file.h"
#include "report/report.h"
#include "watch/watch.h"

#define PATIENCE_NS UINT64_C(5000000000)

struct arguments {
    struct rp_cmd_line line;
    const char *output;
};

static const struct rp_option options[] = {
    {RP_LOCAL("output", "FILE", struct arguments, output), .letter = 'o',
     .help = "the page (default: stdout)"},
    {0},
};

/* A word that is no path is the name of a run. */
static int take_word(struct rp_report *report, const char *word, const char *run_dir,
                     struct rp_error *error)
{
    if (access(word, F_OK) == 0)
        return report->path ? rp_fail(error, -RP_E_USAGE, NULL, "%s: one path expected", word)
                            : rp_report_read(report, word, error);
    static struct rp_watch watch;
    int code = rp_watch_open(&watch, run_dir, &word, 1, error);
    if (code == 0)
        code = rp_watch_poll(&watch, PATIENCE_NS, error);
    if (code == 0 && watch.runs[0].state != RP_WATCH_RUNNING)
        code = rp_fail(error, -RP_E_GONE, "give the directory of its checkpoints",
                       "`%s` is no path, and as a run it is %s: %s", word,
                       rp_watch_state_word(watch.runs[0].state), watch.runs[0].why);
    if (code == 0 && !report->stat)
        report->stat = json_incref(watch.runs[0].stat);
    rp_watch_close(&watch);
    return code;
}

static int write_page(const struct rp_report *report, const char *path, struct rp_error *error)
{
    struct rp_page_file page;
    if (!path) {
        rp_report_page(stdout, report);
        return 0;
    }
    int code = rp_page_file_open(&page, path, error);
    if (code < 0)
        return code;
    rp_report_page(page.out, report);
    return rp_page_file_close(&page, 0, error);
}

static int run(const struct arguments *arguments)
{
    const struct rp_cmd_line *line = &arguments->line;
    struct rp_error error = {0};
    struct rp_report report = {.title = line->words[0]};
    int code = 0;
    for (size_t i = 0; i < line->count && code == 0; i++)
        code = take_word(&report, line->words[i], line->run_dir, &error);
    const char *name = json_string_value(json_object_get(report.stat, "run"));
    if (name)
        report.title = name;
    else if (report.point_count > 0)
        report.title = report.points[report.point_count - 1].info.run;
    if (code == 0)
        code = write_page(&report, arguments->output, &error);
    rp_report_free(&report);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_report_page(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "report",
        .usage = "RUN|CHECKPOINT|DIR [RUN|CHECKPOINT|DIR]",
        .help = "Write one page about a run: its engine, and its checkpoints.",
        .notes =
            "Of a running engine: speed, fill, waits of each rank, sources with their epochs, "
            "saves, versions, the contract. For a directory of checkpoints: position, throughput, "
            "fill and mixture from save to save, and the ranks and versions that wrote them. The "
            "page loads nothing and has no script.\n\n"
            "  ringpack report pretrain checkpoints -o run.html",
        .options = options,
        .takes = RP_TAKES_RUN,
        .words_least = 1,
        .words_most = 2,
        .expected = "the name of a run, a checkpoint or a directory of them"};
    struct arguments arguments = {0};
    if (rp_cmd_parse(&verb, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    return run(&arguments);
}
