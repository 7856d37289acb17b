/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_stat.c — `ringpack stat`: the status of a running engine, as JSON with all keys of the
 * engine's answer, or as a page for people. */
#include <argp.h>
#include <jansson.h>
#include <unistd.h>

#include "cmd.h"
#include "cmd_run.h"
#include "ringpack/client.h"
#include "stat_page.h"

enum { OPTION_RUN_DIR = 0x1000, OPTION_JSON };

static const struct argp_option options[] = {
    RP_RUN_OPTION,
    RP_RUN_CONFIG_OPTION,
    {"run-dir", OPTION_RUN_DIR, "DIR", 0, "directory of the engine's socket", 0},
    {"json", OPTION_JSON, NULL, 0, "print JSON (the default where stdout is no terminal)", 0},
    {0},
};

struct arguments {
    const char *run, *run_dir;
    bool json;
};

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case OPTION_RUN_DIR:
        a->run_dir = text;
        return 0;
    case OPTION_JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->run)
            argp_error(state, "one run expected, `%s` is one too many", text);
        a->run = text;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int stat_run(const struct arguments *arguments)
{
    struct rp_error error;
    char *text;
    if (rp_run_stat(arguments->run_dir, arguments->run, &text, &error) < 0)
        return rp_cmd_report(&error);
    json_error_t where;
    json_t *stat = json_loads(text, 0, &where);
    rp_text_free(text);
    if (!json_is_object(stat)) {
        json_decref(stat);
        rp_fail(&error, -RP_E_PROTOCOL, "use the engine and the program of one ringpack version",
                "the engine's answer is no JSON object: %s", where.text);
        return rp_cmd_report(&error);
    }
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
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .args_doc = "[RUN]",
                              .doc = "Show what a running engine is doing."};
    struct arguments arguments = {0};
    if (rp_cmd_parse_run(&argp, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    return stat_run(&arguments);
}
