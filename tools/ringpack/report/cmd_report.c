/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_report.c — `ringpack report`: a run on one page. */
#include <argp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "cmd_options.h"
#include "cmd_run.h"
#include "page_file.h"
#include "report/report.h"
#include "watch/watch.h"

#define PATIENCE_NS UINT64_C(5000000000)

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "the page (default: stdout)", 0},
    RP_RUN_OPTION,
    RP_RUN_CONFIG_OPTION,
    {"run-dir", RP_WATCH_RUN_DIR, "DIR", 0, RP_WATCH_RUN_DIR_HELP, 0},
    {0},
};

struct arguments {
    struct rp_watch_wanted wanted; /* a name may be a path, too */
    const char *output;
};

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case 'o':
        a->output = rp_cmd_local_path(state, "output", text);
        return 0;
    case ARGP_KEY_END:
        if (a->wanted.count > 2)
            argp_error(state, "a run and a path expected, `%s` is one too many",
                       a->wanted.names[2]);
        if (a->wanted.count == 0)
            argp_error(state, "expected the name of a run, a checkpoint or a directory of them");
        return 0;
    default:
        return rp_watch_parse(&a->wanted, key, text, state);
    }
}

/* A word that is no path is the name of a run. */
static int take_word(struct rp_report *report, const struct rp_watch_wanted *wanted,
                     struct rp_error *error)
{
    const char *word = wanted->names[0];
    if (access(word, F_OK) == 0)
        return report->path ? rp_fail(error, -RP_E_USAGE, NULL, "%s: one path expected", word)
                            : rp_report_read(report, word, error);
    static struct rp_watch watch;
    int code = rp_watch_open(&watch, wanted, error);
    if (code == 0)
        code = rp_watch_look(&watch, PATIENCE_NS, error);
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
    struct rp_error error = {0};
    struct rp_report report = {.title = arguments->wanted.names[0]};
    int code = 0;
    for (size_t i = 0; i < arguments->wanted.count && code == 0; i++) {
        const struct rp_watch_wanted word = {arguments->wanted.run_dir, arguments->wanted.names + i,
                                             1};
        code = take_word(&report, &word, &error);
    }
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
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "RUN|CHECKPOINT|DIR [RUN|CHECKPOINT|DIR]",
        .doc = "Write what is known of a run to one page: of its engine, and of its checkpoints."
               "\vOf an engine that runs: speed, fill, waits of each rank, sources with their "
               "epochs, saves, versions, the contract. Of a directory of checkpoints: position, "
               "throughput, fill and mixture from save to save, and with which ranks and "
               "versions they were written. The page loads nothing and has no script.\n\n"
               "  ringpack report pretrain checkpoints -o run.html"};
    struct arguments arguments = {0};
    if (rp_cmd_parse_run(&argp, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    return run(&arguments);
}
