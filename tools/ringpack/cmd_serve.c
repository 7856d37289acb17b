/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_serve.c — `ringpack serve`: run an engine on this machine.
 *
 * Every key of the config is also an option (--batch-size 8 is batch_size: 8). Options override the
 * file. */
#include <argp.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alerts/keeper.h"
#include "base/cpus.h"
#include "base/mem.h"
#include "base/text.h"
#include "cmd.h"
#include "cmd_config.h"
#include "cmd_state.h"
#include "explain/start_step.h"
#include "interrupt.h"
#include "process.h"
#include "server/server.h"

enum {
    OPTION_STATE = 0x1000,
    OPTION_START_STEP,
    OPTION_BASE_ROW,
    OPTION_FRESH,
    OPTION_ACCEPT_WEIGHTS,
    OPTION_PRIVATE,
    OPTION_READY_FD,
    OPTION_LIFELINE
};

struct arguments {
    struct rp_cmd_config config;
    const char *state_path;
    struct rp_start_step start;
    bool fresh, accept_weights, is_private;
    int ready_fd, lifeline_fd;
};

static const struct argp_option own_options[] = {
    {"state", OPTION_STATE, "FILE", 0,
     "start at the position of this state token, checkpoint, or file of a trainer that has one", 0},
    {"start-step", OPTION_START_STEP, "N", 0,
     "start at step N; refused where a checkpoint of checkpoint_dir is at another row", 0},
    {"base-row", OPTION_BASE_ROW, "ROW", 0,
     "row at which step 0 of --start-step begins (default 0)", 0},
    {"fresh", OPTION_FRESH, NULL, 0,
     "set aside the checkpoints of checkpoint_dir, and start at row 0: as resume=fresh", 0},
    {"accept-weights", OPTION_ACCEPT_WEIGHTS, NULL, 0,
     "from the start row on, use the weights of the config, not the state's", 0},
    {"private", OPTION_PRIVATE, NULL, 0,
     "serve a tool: run no alert_command, raise no alert, and write no run record", 0},
    {"ready-fd", OPTION_READY_FD, "FD", 0, "write `ready` to FD once trainers can attach", 0},
    {"lifeline", OPTION_LIFELINE, "FD", 0, "stop when FD reaches end of file: die with the parent",
     0},
    {0},
};

static int parse_fd(struct argp_state *state, const char *option, const char *text)
{
    uint64_t fd;
    if (!rp_text_u64(text, &fd) || fd > INT_MAX || fcntl((int)fd, F_GETFD) < 0)
        argp_error(state, "--%s: expected the number of an open file descriptor, found `%s`",
                   option, text);
    return (int)fd;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case OPTION_STATE:
        a->state_path = text;
        return 0;
    case OPTION_START_STEP:
        a->start.is_given = true;
        if (!rp_text_count(text, &a->start.step))
            argp_error(state, "--start-step: expected the number of a step, found `%s`", text);
        return 0;
    case OPTION_BASE_ROW:
        if (!rp_text_count(text, &a->start.base_row))
            argp_error(state, "--base-row: expected the number of a row, found `%s`", text);
        return 0;
    case ARGP_KEY_END:
        if (a->start.is_given && (a->fresh || a->state_path))
            argp_error(state, "--start-step, --state and --fresh say where to start: give one");
        return 0;
    case OPTION_FRESH:
        a->fresh = true;
        return 0;
    case OPTION_ACCEPT_WEIGHTS:
        a->accept_weights = true;
        return 0;
    case OPTION_PRIVATE:
        a->is_private = true;
        return 0;
    case OPTION_READY_FD:
        a->ready_fd = parse_fd(state, "ready-fd", text);
        return 0;
    case OPTION_LIFELINE:
        a->lifeline_fd = parse_fd(state, "lifeline", text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int serve(void *argument, const struct rp_config *config)
{
    const struct arguments *arguments = argument;
    struct rp_error error = {0};
    struct rp_engine_options options = {.config = config,
                                        .fresh = arguments->fresh,
                                        .accept_weights = arguments->accept_weights,
                                        .keep_journal = true,
                                        .ready_fd = arguments->ready_fd,
                                        .lifeline_fd = arguments->lifeline_fd};
    char *state = NULL;
    struct rp_alert_keeper *keeper = NULL;
    struct rp_cpus cpus;
    rp_interrupt_release(); /* the engine takes the signals */
    int code = rp_interrupt_check("nothing was started", &error);
    if (code >= 0 && config->cpus &&
        rp_cpus_parse(&cpus, config->cpus)) /* before any thread is started */
        code = rp_cpus_pin(&cpus, &error);
    if (code >= 0 && arguments->state_path) {
        code = rp_cmd_read_state(arguments->state_path, &state, &options.state_bytes, &error);
        options.state = state;
        options.state_path = arguments->state_path;
    }
    if (code >= 0 && arguments->start.is_given) {
        code = rp_start_at_step(&arguments->start, config, &state, &options.state_bytes, &error);
        options.state = state;
    }
    if (code >= 0)
        code = rp_alert_keeper_open(&keeper, config, &error);
    if (code >= 0) {
        options.observer = rp_alert_keeper_observer(keeper);
        code = rp_engine_run(&options, &error);
    }
    rp_alert_keeper_close(keeper);
    free(state);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

static int finish(struct rp_cmd_config *config)
{
    const struct arguments *arguments = (const struct arguments *)config;
    struct rp_error error = {0};
    int code = rp_cmd_config_read(config, &error);
    if (code == 0 && arguments->is_private)
        code = rp_config_make_private(config->config, &error);
    if (code == 0)
        code = rp_config_finish(config->config, &error);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_serve(int argc, char **argv)
{
    static const struct rp_cmd_verb verb = {
        .options = own_options,
        .parse = parse,
        .doc = "Feed the trainers of this machine until SIGTERM.",
        .run = serve,
        .finish = finish,
    };
    struct arguments arguments = {.ready_fd = -1, .lifeline_fd = -1};
    signal(SIGTTOU,
           SIG_IGN); /* `stty tostop` would stop a background engine at a line of its log */
    int trouble = rp_process_leave_first();
    if (trouble)
        return trouble;
    rp_interrupt_catch_once();
    return rp_cmd_config_run(&verb, &arguments, argc, argv);
}
