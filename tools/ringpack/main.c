/* SPDX-License-Identifier: Apache-2.0 */
/* main.c — the table of verbs, their dispatcher and the usage text. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alerts/watcher.h"
#include "base/bits.h"
#include "base/escape.h"
#include "base/mapped.h"
#include "base/text.h"
#include "cmd.h"
#include "process.h"
#include "terminal.h"

/* jemalloc reads this at its start. One arena is enough, because threads allocate little after
 * their start, and jemalloc 5.3 crashes in a thread that has no memory for its own arena (`ulimit
 * -v`). */
const char *malloc_conf = "narenas:1";

/* The purposes of verbs. */
enum group {
    PREPARE,
    RUN,
    WATCH,
    PROVE,
};
static const char *const titles[] = {
    [PREPARE] = "Prepare a corpus and a config",
    [RUN] = "Run, save and rewind",
    [WATCH] = "Watch a run",
    [PROVE] = "Search a stream, and prove it",
};

struct verb {
    enum group group;
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
};

/* In the order of the groups. */
static const struct verb verbs[] = {
    {PREPARE, "demo", rp_cmd_demo,
     "make a corpus, serve it, kill everything, resume, compare: in a minute"},
    {PREPARE, "convert", rp_cmd_convert,
     "turn text or JSONL into token files (Megatron .bin/.idx)"},
    {PREPARE, "index", rp_cmd_index,
     "scan token files once, so that runs start at once and damage is noticed"},
    {PREPARE, "annotate", rp_cmd_annotate,
     "add numbers of documents to an index: columns for `select` and `repeat`"},
    {PREPARE, "column", rp_cmd_column,
     "write a value for each token next to its shard: side columns of batches"},
    {PREPARE, "inspect", rp_cmd_inspect, "print the format of a path, and its documents"},
    {PREPARE, "config", rp_cmd_config, "show, check, compare or write configs"},
    {PREPARE, "plan", rp_cmd_plan, "show how a config packs its corpus, without reading a token"},
    {PREPARE, "calibrate", rp_cmd_calibrate,
     "measure the cost of a document on this GPU: the key `cost`"},
    {PREPARE, "doctor", rp_cmd_doctor, "check this machine and propose changes"},
    {PREPARE, "bench", rp_cmd_bench, "benchmark a config against the limits of this machine"},
    {RUN, "serve", rp_cmd_serve, "feed the trainers of this machine"},
    {RUN, "read", rp_cmd_read, "read one rank as a trainer does: tokens/s, waits, digest"},
    {RUN, "checkpoint", rp_cmd_checkpoint,
     "list, compare, export, rewind the checkpoints of a run"},
    {RUN, "weights", rp_cmd_weights, "set the weights from a step on, while an engine runs"},
    {RUN, "grow", rp_cmd_grow, "take appended documents from a step on, while an engine runs"},
    {WATCH, "ps", rp_cmd_ps, "list the engines of this machine"},
    {WATCH, "stat", rp_cmd_stat, "show the state of a running engine"},
    {WATCH, "top", rp_cmd_top, "watch engines, ranks and rings on a terminal"},
    {WATCH, "metrics", rp_cmd_metrics, "export metrics to Prometheus, and as a live page"},
    {WATCH, "report", rp_cmd_report_page,
     "write one page about a run: its engine and its checkpoints"},
    {PROVE, "explain", rp_cmd_explain, "list the documents of a step or row, or find a text"},
    {PROVE, "state", rp_cmd_state, "write the state token of any step or row"},
    {PROVE, "audit", rp_cmd_audit, "prove that two positions have the same rows before them"},
    {PROVE, "journal", rp_cmd_journal, "print the history of a run, and verify it"},
    {PROVE, "verify", rp_cmd_verify, "prove that a killed and resumed run gives the same rows"},
};

static void print_usage(FILE *out)
{
    fputs("Usage: ringpack VERB [arguments]\n", out);
    for (size_t i = 0; i < RP_ARRAY_COUNT(verbs); i++) {
        if (i == 0 || verbs[i].group != verbs[i - 1].group)
            fprintf(out, "\n%s:\n", titles[verbs[i].group]);
        fprintf(out, "  %-12s%s\n", verbs[i].name, verbs[i].help);
    }
    fputs("\n`ringpack help VERB` explains a verb; `ringpack --version` prints the version.\n"
          "Exit status: 0 fine, 1 checked and it differs, 2 trouble.\n",
          out);
}

static const struct verb *find_verb(const char *name)
{
    if (!strcmp(name, "attach"))
        name = "read"; /* its older name */
    for (size_t i = 0; i < RP_ARRAY_COUNT(verbs); i++)
        if (!strcmp(verbs[i].name, name))
            return &verbs[i];
    struct rp_text_near near = {.word = name};
    for (size_t i = 0; i < RP_ARRAY_COUNT(verbs); i++)
        rp_text_offer(&near, verbs[i].name);
    char shown[RP_ESCAPED_BYTES(256)];
    rp_escape(shown, sizeof shown, name, "");
    fprintf(stderr, "ringpack: error RP_E_USAGE: there is no verb `%s`", shown);
    if (near.best)
        fprintf(stderr, "; did you mean `%s`?", near.best);
    fputs("\n  next: `ringpack help` lists the verbs\n", stderr);
    return NULL;
}

/* Whether the output of a verb in a pipe is YAML, JSON, HTML or text for Prometheus. */
static bool is_for_programs(const struct verb *verb, int argc, char **argv)
{
    if (verb->run == rp_cmd_config)
        return argc > 1 && !strcmp(argv[1], "init");
    return verb->run == rp_cmd_stat || verb->run == rp_cmd_metrics ||
           verb->run == rp_cmd_report_page;
}

/* Options may be shortened. */
static bool has_option(int argc, char **argv, const char *option)
{
    for (int i = 1; i < argc; i++)
        if (strlen(argv[i]) > strlen("--") && !strncmp(argv[i], option, strlen(argv[i])))
            return true;
    return false;
}

static int run_verb(const char *name, int argc, char **argv)
{
    const struct verb *verb = find_verb(name);
    if (!verb)
        return RP_EXIT_TROUBLE;
    if (verb->run != rp_cmd_top)
        rp_terminal_guard(is_for_programs(verb, argc, argv) || has_option(argc, argv, "--json") ||
                          has_option(argc, argv, "--csv"));
    return verb->run(argc, argv);
}

static int run_help(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stdout);
        return RP_EXIT_FINE;
    }
    char option[] = "--help";
    char *arguments[] = {argv[1], option, NULL};
    return run_verb(argv[1], 2, arguments);
}

/* Open descriptors 0, 1 and 2 if they are closed. Otherwise the first files that we open would get
 * these numbers, and messages would be written into them. */
static void keep_standard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Called at every exit, also after --help: output that could not be written is an error. */
static void finish_output(void)
{
    int code = fflush(stdout) != 0 ? -errno : ferror(stdout) ? -EIO : 0;
    if (code == 0)
        return;
    struct rp_error error;
    rp_fail(&error, code, NULL, "standard output: %s", rp_strerror(code));
    _exit(rp_cmd_report(&error));
}

static int run_words(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return RP_EXIT_TROUBLE;
    }
    const char *verb = argv[1];
    if (!strcmp(verb, "--version")) {
        puts("ringpack " RP_VERSION);
        return RP_EXIT_FINE;
    }
    if (!strcmp(verb, "help") || !strcmp(verb, "--help") || !strcmp(verb, "-h"))
        return run_help(argc - 1, argv + 1);
    if (!strcmp(verb, RP_ALERT_WATCHER))
        return rp_cmd_watch_alerts(argc - 1, argv + 1);
    return run_verb(verb, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    keep_standard_descriptors();
    atexit(finish_output);
    rp_process_hide_words(argc, argv);
    rp_process_prepare();
    rp_mapped_watch();
    signal(SIGXFSZ, SIG_IGN); /* write(2) then fails with EFBIG instead of ending the process */
    return rp_process_run(run_words, argc, argv);
}
