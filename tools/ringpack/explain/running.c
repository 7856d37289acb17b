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
#include "cmd.h"
#include "explain/origin.h"
#include "ringpack/client.h"

#define WORDS_BYTES_MAX (4u << 20)
#define HINT "give its config instead: `-c CONFIG`"

/* The options of `serve` alone: without a value, and with one. */
static const char *const own_flags[] = {"fresh", "accept-weights", "private"};
static const char *const own_values[] = {"state", "ready-fd", "lifeline", "start-step", "base-row"};

struct words {
    struct rp_origin *origin;
    int pid;
    char *at, *end; /* of the words that are left, each ended by a NUL */
};

static char *next_word(struct words *words)
{
    char *word = words->at;
    if (word >= words->end)
        return NULL;
    words->at += strlen(word) + 1;
    return word;
}

static bool is_among(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

/* The key that an option or its beginning stands for; NULL if there is none. */
static const char *key_named(char *name)
{
    const char *found = NULL;
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : *c;
    for (const struct rp_config_key *key = rp_config_keys(); key->name; key++) {
        if (!strcmp(key->name, name))
            return key->name;
        if (!found && !strncmp(key->name, name, strlen(name)))
            found = key->name;
    }
    return found;
}

/* A config that is no file is a descriptor of the engine. */
static int take_config(struct words *words, const char *path, struct rp_error *error)
{
    static const char self[] = "/proc/self/fd/";
    bool is_descriptor = !strncmp(path, self, sizeof self - 1);
    char *known = is_descriptor ? rp_format("/proc/%d/fd/%s", words->pid, path + sizeof self - 1)
                                : strdup(path);
    int code = known ? rp_cmd_config_read_file(words->origin->line.config, known, error)
                     : rp_fail(error, -ENOMEM, NULL, "out of memory for a path");
    free(known);
    return code;
}

static int take_option(struct words *words, char *name, const char *value, struct rp_error *error)
{
    if (is_among(own_values, RP_ARRAY_COUNT(own_values), name))
        return 0;
    const char *key = key_named(name);
    if (!key || !value)
        return rp_fail(error, -RP_E_USAGE, HINT, "engine %d: unknown option --%s", words->pid,
                       name);
    return rp_config_set(words->origin->line.config, key, value, error);
}

/* Take the words after `serve`: of the config, or all others. */
static int take_words(struct words *words, bool config, struct rp_error *error)
{
    int code = 0;
    for (char *word; code == 0 && (word = next_word(words)) != NULL;) {
        char name[64];
        bool is_short = !strncmp(word, "-c", 2);
        size_t length = is_short ? 0 : strcspn(word, "=");
        snprintf(name, sizeof name, "%.*s", length > 2 ? (int)length - 2 : 0,
                 is_short ? "" : word + 2);
        if (is_among(own_flags, RP_ARRAY_COUNT(own_flags), name))
            continue;
        const char *value = is_short && word[2]                ? word + 2
                            : !is_short && word[length] == '=' ? word + length + 1
                                                               : next_word(words);
        bool is_config = is_short || !strcmp(name, "config");
        if (is_config != config)
            continue;
        code = is_config ? take_config(words, value ? value : "", error)
                         : take_option(words, name, value, error);
    }
    return code;
}

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

static int take_command_line(struct rp_origin *origin, int pid, struct rp_error *error)
{
    char *text, directory[64];
    size_t bytes;
    int code = read_words(pid, &text, &bytes, error);
    if (code < 0)
        return code;
    struct words words = {origin, pid, text, text + bytes};
    snprintf(directory, sizeof directory, "/proc/%d/cwd", pid);
    next_word(&words);
    const char *verb = next_word(&words);
    char *first = words.at;
    if (!verb || strcmp(verb, "serve") != 0)
        code = rp_fail(error, -RP_E_USAGE, HINT,
                       "process %d, the engine of that name, is no `ringpack serve`", pid);
    else if (chdir(directory) < 0)
        code = rp_fail(error, -errno, HINT, "%s: %s", directory, strerror(errno));
    if (code == 0)
        code = take_words(&words, true, error);
    words.at = first;
    if (code == 0)
        code = take_words(&words, false, error);
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

/* The engine's config has the weights of today, and does not say at which row they were changed. */
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
    char *text;
    int code = rp_run_stat(run_dir, run, &text, error);
    if (code < 0)
        return code;
    json_t *stat = json_loads(text, 0, NULL);
    rp_text_free(text);
    json_int_t pid = json_integer_value(json_object_get(stat, "pid"));
    origin->position = (uint64_t)json_integer_value(json_object_get(stat, "next_row"));
    origin->base_known = (uint64_t)json_integer_value(json_object_get(stat, "base_row"));
    origin->has_position = true;
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
