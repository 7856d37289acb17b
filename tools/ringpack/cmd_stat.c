/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_stat.c — `ringpack stat`: the status of a running engine, as JSON or as a table.
 *
 * All keys of the engine's answer are shown in their order, so a new key needs no change here. */
#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "cmd_options.h"
#include "ringpack/client.h"

enum { OPTION_RUN_DIR = 0x1000, OPTION_JSON };

#define LABEL_WIDTH 20
#define COLUMN_WIDTH 14

static const struct argp_option options[] = {
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

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && !strcmp(text + length - end_length, end);
}

/* A value for people; the end of the key tells its unit. Returns `text`, or the string of the
 * value. */
static const char *format_value(const char *key, const json_t *value, char text[RP_CMD_TEXT_BYTES])
{
    double number = json_number_value(value);
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_boolean(value))
        snprintf(text, RP_CMD_TEXT_BYTES, "%s", json_is_true(value) ? "yes" : "no");
    else if (!json_is_number(value))
        snprintf(text, RP_CMD_TEXT_BYTES, "-");
    else if (ends_with(key, "bytes") && number >= 0)
        rp_cmd_bytes_text((uint64_t)number, text);
    else if (!strcmp(key, "fill") || ends_with(key, "share"))
        snprintf(text, RP_CMD_TEXT_BYTES, "%.3f %%", 100 * number);
    else if (ends_with(key, "per_second"))
        rp_cmd_short_text(number, text);
    else if (ends_with(key, "seconds"))
        rp_cmd_seconds_text(number, text);
    else if (ends_with(key, "pid") || number < 0 || json_is_real(value))
        snprintf(text, RP_CMD_TEXT_BYTES, "%.15g", number);
    else
        rp_cmd_count_text((uint64_t)number, text);
    return text;
}

static const char *label_of(const char *key, char label[RP_CMD_TEXT_BYTES])
{
    snprintf(label, RP_CMD_TEXT_BYTES, "%s", key);
    for (char *c = label; *c; c++)
        if (*c == '_')
            *c = ' ';
    return label;
}

static void print_labels(json_t *object)
{
    char text[RP_CMD_TEXT_BYTES];
    for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i))
        printf("%*s", COLUMN_WIDTH, label_of(json_object_iter_key(i), text));
    putchar('\n');
}

static void print_values(json_t *object)
{
    char text[RP_CMD_TEXT_BYTES];
    for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i))
        printf("%*s", COLUMN_WIDTH,
               format_value(json_object_iter_key(i), json_object_iter_value(i), text));
    putchar('\n');
}

/* Single values first, then each array of objects: one line per object below a line of the keys. */
static void print_text(json_t *stat)
{
    char text[RP_CMD_TEXT_BYTES], label[RP_CMD_TEXT_BYTES];
    for (void *i = json_object_iter(stat); i; i = json_object_iter_next(stat, i)) {
        const char *key = json_object_iter_key(i);
        const json_t *value = json_object_iter_value(i);
        if (!json_is_array(value))
            printf("%-*s%s\n", LABEL_WIDTH, label_of(key, label), format_value(key, value, text));
    }
    for (void *i = json_object_iter(stat); i; i = json_object_iter_next(stat, i)) {
        const json_t *array = json_object_iter_value(i);
        for (size_t n = 0; n < json_array_size(array); n++) {
            if (n == 0) {
                printf("\n%s\n", json_object_iter_key(i));
                print_labels(json_array_get(array, n));
            }
            print_values(json_array_get(array, n));
        }
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
        print_text(stat);
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
    argp_err_exit_status = RP_EXIT_TROUBLE;
    if (rp_cmd_check_argp(&argp, argc, argv) != RP_EXIT_FINE ||
        argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return RP_EXIT_TROUBLE;
    return stat_run(&arguments);
}
