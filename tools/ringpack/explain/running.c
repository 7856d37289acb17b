/* SPDX-License-Identifier: Apache-2.0 */
/* running.c — the config of an engine that runs.
 *
 * The engine says its pid and its stream; its start options are its command line. The config file
 * may have been edited since, so the stream that follows from it is compared with the one that the
 * engine serves by whoever opens it. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "cmd_run.h"
#include "explain/origin.h"

#define WORDS_BYTES_MAX (4u << 20)
#define HINT "give its config instead: `-c CONFIG`"

/* The command line of an engine. Only its config and its keys count. */
struct engine_line {
    struct rp_cmd_line line;
    const char *value;
    bool flag;
};

static const struct rp_option other_options[] = {
    {RP_TEXT("state", "FILE", struct engine_line, value)},
    {RP_TEXT("start-step", "N", struct engine_line, value)},
    {RP_TEXT("base-row", "ROW", struct engine_line, value)},
    {RP_TEXT("ready-fd", "FD", struct engine_line, value)},
    {RP_TEXT("lifeline", "FD", struct engine_line, value)},
    {RP_FLAG("fresh", struct engine_line, flag)},
    {RP_FLAG("accept-weights", struct engine_line, flag)},
    {RP_FLAG("private", struct engine_line, flag)},
    {0},
};

/* /proc/PID/cmdline has no size, so it is read as a stream. */
static int read_words(int pid, char **text, size_t *bytes, struct rp_error *error)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    FILE *file = fopen(path, "re");
    *text = file ? malloc(WORDS_BYTES_MAX + 1) : NULL;
    *bytes = *text ? fread(*text, 1, WORDS_BYTES_MAX, file) : 0;
    if (*text)
        (*text)[*bytes] = '\0';
    if (file)
        fclose(file);
    if (*bytes > 0 && *bytes < WORDS_BYTES_MAX)
        return 0;
    free(*text);
    *text = NULL;
    return rp_fail(error, -RP_E_RESOURCE, HINT,
                   "%s: the command line of the engine cannot be read: is it of another user, or "
                   "in another container?",
                   path);
}

static int take_line(struct rp_origin *origin, int pid, int argc, char **argv,
                     struct rp_error *error)
{
    static const struct rp_verb serve = {
        .name = "serve", .options = other_options, .takes = RP_TAKES_CONFIG};
    static const char self[] = "/proc/self/fd/";
    struct engine_line engine = {.line.config = origin->line.config};
    int code = rp_cmd_read_line(&serve, argc, argv, &engine, error);
    if (code < 0)
        snprintf(error->hint, sizeof error->hint, HINT);
    char *path = NULL; /* a config that is no file, but a descriptor of the engine */
    if (code == 0 && engine.line.path && !strncmp(engine.line.path, self, sizeof self - 1)) {
        path = rp_asprintf("/proc/%d/fd/%s", pid, engine.line.path + sizeof self - 1);
        engine.line.path = path;
        code = path ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for a path");
    }
    if (code == 0)
        code = rp_cmd_config_read(&engine.line, error);
    free(path);
    return code;
}

static int take_command_line(struct rp_origin *origin, int pid, struct rp_error *error)
{
    char *text, directory[64];
    size_t bytes;
    int code = read_words(pid, &text, &bytes, error), argc = 0;
    if (code < 0)
        return code;
    char **argv = rp_calloc(bytes, sizeof *argv); /* a word has a byte, its NUL */
    for (char *word = text; argv && word < text + bytes; word += strlen(word) + 1)
        argv[argc++] = word;
    snprintf(directory, sizeof directory, "/proc/%d/cwd", pid);
    if (!argv)
        code = rp_fail(error, -ENOMEM, NULL, "out of memory for a command line");
    else if (argc < 2 || strcmp(argv[1], "serve") != 0)
        code = rp_fail(error, -RP_E_USAGE, HINT,
                       "process %d, the engine of that name, is no `ringpack serve`", pid);
    else if (chdir(directory) < 0)
        code = rp_fail(error, -errno, HINT, "%s: %s", directory, strerror(errno));
    if (code == 0)
        code = take_line(origin, pid, argc - 1, argv + 1, error);
    free(argv);
    free(text);
    return code;
}

/* Keys that are not of the stream, but of its steps. */
static const struct {
    const char *key, *stat;
} geometry[] = {{"dp_world_size", "world"},
                {"batch_size", "batch_size"},
                {"global_batch_size", "global_batch_size"},
                {"drop_last", "drop_last"}};

/* Take the steps from the engine, which does not read its config again; an older engine does not
 * say all of it. */
static int take_geometry(struct rp_origin *origin, const json_t *stat, struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; code == 0 && i < RP_ARRAY_COUNT(geometry); i++) {
        const json_t *value = json_object_get(stat, geometry[i].stat);
        char text[32];
        if (json_is_integer(value))
            snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        else if (json_is_boolean(value))
            snprintf(text, sizeof text, "%s", json_is_true(value) ? "true" : "false");
        else
            continue;
        code = rp_config_set(origin->line.config, geometry[i].key, text, error);
    }
    return code;
}

/* The engine's config has the weights of today, and does not say the row of their change. */
static int refuse_weights(struct rp_error *error)
{
    return rp_fail(error, -RP_E_USAGE, "save a checkpoint, and give its path",
                   "the weights of the run were changed when it was resumed (--accept-weights), "
                   "or num_epochs after a source had ended: earlier rows may have been planned "
                   "with other values");
}

int rp_origin_of_engine(struct rp_origin *origin, const char *run, const char *run_dir,
                        struct rp_error *error)
{
    json_t *stat;
    int code = rp_cmd_run_stat(run_dir, run, &stat, error);
    if (code < 0)
        return code;
    json_int_t pid = json_integer_value(json_object_get(stat, "pid"));
    origin->position = (uint64_t)json_integer_value(json_object_get(stat, "next_row"));
    origin->base_known = (uint64_t)json_integer_value(json_object_get(stat, "base_row"));
    origin->has_position = true;
    origin->step = (uint64_t)json_integer_value(json_object_get(stat, "step"));
    origin->has_step = json_object_get(stat, "step") != NULL;
    const char *stream = json_string_value(json_object_get(stat, "stream"));
    snprintf(origin->stream, sizeof origin->stream, "%s", stream ? stream : "");
    bool is_reweighted = json_is_true(json_object_get(stat, "reweighted"));
    if (is_reweighted)
        code = refuse_weights(error);
    else if (pid <= 0)
        code = rp_fail(error, -RP_E_PROTOCOL, HINT, "the engine does not say its pid");
    else
        code = take_command_line(origin, (int)pid, error);
    if (code == 0)
        code = take_geometry(origin, stat, error);
    json_decref(stat);
    return code;
}
