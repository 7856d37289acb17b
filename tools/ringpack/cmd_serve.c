/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_serve.c — `ringpack serve`: run an engine on this machine.
 *
 * Every key of the config is also an option (--batch-size 8 is batch_size: 8). Options override the
 * file. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alerts/keeper.h"
#include "base/cpus.h"
#include "base/text.h"
#include "cmd.h"
#include "cmd_config.h"
#include "cmd_state.h"
#include "explain/start_step.h"
#include "interrupt.h"
#include "process.h"
#include "server/server.h"
#include "other_streams.h"
#include "stream_version.h"

struct arguments {
    struct rp_cmd_line line;
    const char *state_path, *records_path;
    char *state; /* its token */
    size_t state_bytes;
    char *records; /* its contract */
    struct rp_contract contract;
    struct rp_start_step start;
    bool fresh, accept_weights, is_private;
    int ready_fd, lifeline_fd;
};

static bool take_fd(const char *text, void *place)
{
    uint64_t fd;
    if (!rp_text_u64(text, &fd) || fd > INT_MAX || fcntl((int)fd, F_GETFD) < 0)
        return false;
    *(int *)place = (int)fd;
    return true;
}

#define FD_EXPECTED "the number of an open file descriptor"

static const struct rp_option own_options[] = {
    {RP_TEXT("state", "FILE", struct arguments, state_path),
     .help = "start at the position of this state token, checkpoint, or file of a trainer that "
             "has one"},
    {RP_COUNT("start-step", "N", struct arguments, start.step),
     .given = offsetof(struct arguments, start.is_given), .expected = "the number of a step",
     .help = "start at step N; refused if a checkpoint of checkpoint_dir is at another row"},
    {RP_COUNT("base-row", "ROW", struct arguments, start.base_row),
     .expected = "the number of a row",
     .help = "row at which step 0 of --start-step begins (default 0)"},
    {RP_FLAG("fresh", struct arguments, fresh),
     .help = "set aside the checkpoints of checkpoint_dir, and start at row 0: as resume=fresh"},
    {RP_FLAG("accept-weights", struct arguments, accept_weights),
     .help = "from the start row on, use the weights of the config, not of the state"},
    {RP_TEXT("records-of", "CHECKPOINT", struct arguments, records_path),
     .help = "with --state of an earlier row: deliver rows again as the run of this checkpoint "
             "had them"},
    {RP_FLAG("private", struct arguments, is_private),
     .help = "serve a tool: run no alert_command, raise no alert, and write no run record"},
    {RP_TAKE("ready-fd", "FD", struct arguments, ready_fd, take_fd), .expected = FD_EXPECTED,
     .help = "write `ready` to FD once trainers can attach"},
    {RP_TAKE("lifeline", "FD", struct arguments, lifeline_fd, take_fd), .expected = FD_EXPECTED,
     .help = "stop when FD reaches end of file: die with the parent"},
    {0},
};

static int check(void *argument)
{
    const struct arguments *a = argument;
    if (a->start.is_given + a->fresh + (a->state_path != NULL) > 1)
        return rp_cmd_misuse("serve",
                             "--start-step, --state and --fresh are starting points: give one");
    if (a->start.base_row > 0 && !a->start.is_given)
        return rp_cmd_misuse("serve", "--base-row is for --start-step, which is not given");
    return RP_EXIT_FINE;
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
    char *state = arguments->state;
    struct rp_alert_keeper *keeper = NULL;
    struct rp_other_streams *streams = NULL;
    bool was_stopped = false;
    struct rp_cpus cpus;
    rp_interrupt_release(); /* the engine takes the signals */
    int code = rp_interrupt_check("no engine was started", &error);
    if (code >= 0 && config->cpus &&
        rp_cpus_parse(&cpus, config->cpus)) /* before any thread is started */
        code = rp_cpus_pin(&cpus, &error);
    if (code >= 0 && state) {
        options.state = state;
        options.state_bytes = arguments->state_bytes;
        options.state_path = arguments->state_path;
        options.records = arguments->records ? &arguments->contract.stream : NULL;
    }
    if (code >= 0 && arguments->start.is_given) {
        code = rp_start_at_step(&arguments->start, config, &state, &options.state_bytes, &error);
        options.state = state;
    }
    if (code >= 0)
        code = rp_alert_keeper_open(&keeper, config, &error);
    if (code >= 0 && !arguments->is_private && rp_other_streams_is_for(&arguments->line))
        code = rp_other_streams_open(&streams, &arguments->line, &error);
    bool is_whole = code != RP_OTHER_STREAM_FAILED;
    if (code >= 0 && is_whole) {
        options.stays = config->is_repeated || (streams && arguments->lifeline_fd >= 0);
        options.was_stopped = &was_stopped;
        options.observer = rp_alert_keeper_observer(keeper);
        code = rp_engine_run(&options, &error);
    }
    rp_alert_keeper_close(keeper);
    rp_other_streams_close(streams, was_stopped || code < 0 || !is_whole);
    free(state);
    free(arguments->records);
    if (!is_whole)
        return RP_EXIT_TROUBLE;
    if (code == RP_ENGINE_STAGE_ENDED)
        return RP_EXIT_STAGE;
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

/* A tool reads the chosen stream once, from the run that it names. */
static int make_private(struct rp_cmd_line *line, struct rp_error *error)
{
    struct rp_config *config = line->config;
    const char *run = rp_cmd_config_given(line, "run");
    if (config->is_repeated && run) {
        free(config->run);
        config->run = strdup(run);
        if (!config->run)
            return rp_fail(error, -ENOMEM, NULL, "no memory for the name of the run");
    }
    config->is_repeated = false;
    return rp_config_make_private(config, error);
}

static int finish(struct rp_cmd_line *line)
{
    struct arguments *arguments = (struct arguments *)line;
    struct rp_error error = {0};
    int code = rp_cmd_config_read(line, &error);
    if (code == 0 && arguments->is_private)
        code = make_private(line, &error);
    if (code == 0 && arguments->state_path)
        code = rp_cmd_read_state(arguments->state_path, &arguments->state, &arguments->state_bytes,
                                 &error);
    if (code == 0 && arguments->records_path)
        (void)rp_cmd_read_contract(arguments->records_path, &arguments->records,
                                   &arguments->contract);
    if (code == 0 && !arguments->fresh)
        rp_version_keep(line->config, arguments->state, arguments->state_bytes);
    if (code == 0)
        code = rp_config_finish(line->config, &error);
    if (code == 0 && !arguments->is_private && rp_other_streams_is_for(line))
        code = rp_other_streams_check(line, &error);
    if (code < 0) {
        free(arguments->state);
        free(arguments->records);
    }
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_serve(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "serve",
        .help = "Feed the trainers of this machine until SIGTERM.",
        .options = own_options,
        .takes = RP_TAKES_CONFIG,
        .check = check,
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
