/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_metrics.c — `ringpack metrics`: the engines of this node for Prometheus and for a browser. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cmd.h"
#include "interrupt.h"
#include "metrics/serve.h"
#include "metrics/text.h"
#include "options.h"

#define LISTEN_STANDARD "127.0.0.1:9690"

struct arguments {
    struct rp_cmd_line line;
    const char *listen;
    bool once;
};

static const struct rp_option options[] = {
    {RP_TEXT("listen", "HOST:PORT", struct arguments, listen),
     .help = "serve at this address (default " LISTEN_STANDARD "; port 0 is any free one)"},
    {RP_FLAG("once", struct arguments, once),
     .help = "print the metrics once, as text that node_exporter reads from files, and end"},
    {0},
};

static int check(void *argument)
{
    const struct arguments *a = argument;
    if (a->once && a->listen)
        return rp_cmd_misuse("metrics", "--once serves nothing: leave out --listen");
    return RP_EXIT_FINE;
}

static int print_once(struct rp_watch *watch, struct rp_error *error)
{
    int code = rp_watch_poll(watch, RP_SERVE_PATIENCE_NS, error);
    if (code == 0)
        rp_metrics_text(stdout, watch, RP_METRICS_PROMETHEUS);
    return code;
}

static int serve(struct rp_watch *watch, const char *where, struct rp_error *error)
{
    struct rp_serve_place place;
    char text[80];
    int code = rp_serve_parse(&place, where, error);
    if (code == 0)
        code = rp_watch_poll(watch, RP_SERVE_PATIENCE_NS, error);
    int fd = code == 0 ? rp_serve_listen(&place, error) : code;
    if (fd < 0)
        return fd;
    fprintf(stderr, "ringpack metrics: http://%s/metrics, /healthz, /stat.json and a page at /\n",
            rp_serve_place_text(&place, text));
    if (!place.is_loopback)
        fputs("ringpack metrics: whoever can connect to this address can read them\n", stderr);
    signal(SIGPIPE, SIG_IGN);
    rp_interrupt_catch();
    return rp_serve_run(watch, &place, fd, error);
}

static int run(const struct arguments *arguments)
{
    const struct rp_cmd_line *line = &arguments->line;
    struct rp_watch watch;
    struct rp_error error = {0};
    int code = rp_watch_open(&watch, line->run_dir, line->words, line->count, &error);
    if (code == 0)
        code = arguments->once
                   ? print_once(&watch, &error)
                   : serve(&watch, arguments->listen ? arguments->listen : LISTEN_STANDARD, &error);
    rp_watch_close(&watch);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_metrics(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "metrics",
        .usage = "[RUN...]",
        .help = "Export metrics of the engines of this machine to Prometheus, and as a live page.",
        .notes =
            "Without RUN, all engines of this user are watched, and those that start later. "
            "/metrics is for Prometheus; /healthz answers 200, or 503 with the reason; / is a "
            "page for people. Without --listen, only this machine can connect. Engines are polled "
            "at most once a second, and only while a client reads.\n\n"
            "  ringpack metrics\n"
            "  ringpack metrics --listen 0.0.0.0:9690 pretrain\n"
            "  ringpack metrics --once > /var/lib/node_exporter/ringpack.prom",
        .options = options,
        .takes = RP_TAKES_RUN,
        .words_most = SIZE_MAX,
        .check = check};
    struct arguments arguments = {0};
    if (rp_cmd_parse(&verb, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    return run(&arguments);
}
