/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_metrics.c — `ringpack metrics`: the engines of this node for Prometheus and for a browser. */
#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cmd.h"
#include "cmd_run.h"
#include "interrupt.h"
#include "metrics/serve.h"
#include "metrics/text.h"

#define LISTEN_STANDARD "127.0.0.1:9690"

enum { OPTION_LISTEN = 0x1000, OPTION_ONCE };

static const struct argp_option options[] = {
    {"listen", OPTION_LISTEN, "HOST:PORT", 0,
     "serve at this address (default " LISTEN_STANDARD "; port 0 is any free one)", 0},
    {"once", OPTION_ONCE, NULL, 0,
     "print the metrics once, as text that node_exporter reads from files, and end", 0},
    RP_RUN_OPTION,
    RP_RUN_CONFIG_OPTION,
    {"run-dir", RP_WATCH_RUN_DIR, "DIR", 0, RP_WATCH_RUN_DIR_HELP, 0},
    {0},
};

struct arguments {
    struct rp_watch_wanted wanted;
    const char *listen;
    bool once;
};

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case OPTION_LISTEN:
        a->listen = text;
        return 0;
    case OPTION_ONCE:
        a->once = true;
        return 0;
    case ARGP_KEY_END:
        if (a->once && a->listen)
            argp_error(state, "--once serves nothing: leave out --listen");
        return 0;
    default:
        return rp_watch_parse(&a->wanted, key, text, state);
    }
}

static int print_once(struct rp_watch *watch, struct rp_error *error)
{
    int code = rp_watch_look(watch, RP_SERVE_PATIENCE_NS, error);
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
        code = rp_watch_look(watch, RP_SERVE_PATIENCE_NS, error);
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
    struct rp_watch watch;
    struct rp_error error = {0};
    int code = rp_watch_open(&watch, &arguments->wanted, &error);
    if (code == 0)
        code = arguments->once
                   ? print_once(&watch, &error)
                   : serve(&watch, arguments->listen ? arguments->listen : LISTEN_STANDARD, &error);
    rp_watch_close(&watch);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_metrics(int argc, char **argv)
{
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "[RUN...]",
        .doc = "Serve what the engines of this machine do as OpenMetrics, and as a live page."
               "\vWithout RUN, all engines of this user are watched, also those that start later. "
               "/metrics is for Prometheus; /healthz answers 200, or 503 with the reason; / is a "
               "page for people. Only this machine can connect, unless --listen says otherwise. "
               "Engines are asked at most once a second, and only while somebody reads.\n\n"
               "  ringpack metrics\n"
               "  ringpack metrics --listen 0.0.0.0:9690 pretrain\n"
               "  ringpack metrics --once > /var/lib/node_exporter/ringpack.prom"};
    struct arguments arguments = {0};
    if (rp_cmd_parse_run(&argp, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    return run(&arguments);
}
