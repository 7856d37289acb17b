/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "ringpack/client.h"
#include "shm/run_dir.h"
#include "stream_version.h"

static int read_kept(struct rp_config *config, const char *path, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint;
    size_t bytes;
    int code = rp_checkpoint_open(&checkpoint, path, error);
    if (code < 0)
        return code;
    const char *text = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONFIG, &bytes);
    code = rp_config_read_kept(config, text ? text : "", bytes, path, error);
    const void *token = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes);
    if (token)
        rp_version_keep(config, token, bytes);
    rp_checkpoint_close(checkpoint);
    return code;
}

int rp_cmd_config_read_file(struct rp_config *config, const char *path, struct rp_error *error)
{
    return rp_checkpoint_is_file(path) ? read_kept(config, path, error)
                                       : rp_config_read(config, path, error);
}

int rp_cmd_run_of(const char *config_path, const char *stream, struct rp_run_of *of,
                  struct rp_error *error)
{
    struct rp_config config;
    rp_config_init(&config);
    *of = (struct rp_run_of){.run = NULL};
    int code = rp_cmd_config_read_file(&config, config_path, error);
    if (code >= 0 && stream)
        code = rp_config_set(&config, "stream", stream, error);
    if (code >= 0)
        code = rp_config_choose_stream(&config, error);
    if (code >= 0) {
        const char *saved = config.checkpoint_dir;
        bool saves = saved && strcmp(saved, "none") != 0;
        of->run = strdup(config.run ? config.run : "default");
        of->run_dir = config.run_dir ? strdup(config.run_dir) : NULL;
        of->checkpoint_dir = saves ? strdup(saved) : NULL;
        if (!of->run || (config.run_dir && !of->run_dir) || (saves && !of->checkpoint_dir))
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for its run", config_path);
    }
    rp_config_free(&config);
    if (code >= 0)
        return 0;
    rp_cmd_run_free(of);
    return code;
}

int rp_cmd_run_stat(const char *run_dir, const char *run, json_t **stat, struct rp_error *error)
{
    char *text;
    json_error_t where;
    int code = rp_run_stat(run_dir, run, &text, error);
    if (code < 0)
        return code;
    *stat = json_loads(text, 0, &where);
    rp_text_free(text);
    if (json_is_object(*stat))
        return 0;
    json_decref(*stat);
    return rp_fail(error, -RP_E_PROTOCOL, "use the engine and the program of one ringpack version",
                   "the engine's answer is no JSON object: %s", where.text);
}

/* "train, eval", of an array of strings; *has: `stream` is one of them. */
static void list_streams(const json_t *names, const char *stream, char *text, size_t bytes,
                         bool *has)
{
    size_t used = 0, i;
    const json_t *name;
    text[0] = '\0';
    json_array_foreach(names, i, name)
    {
        const char *word = json_is_string(name) ? json_string_value(name) : "";
        *has |= !strcmp(word, stream);
        if (used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", word);
    }
}

int rp_cmd_run_stream(const char *run_dir, const char **run, const char *stream,
                      struct rp_error *error)
{
    json_t *stat;
    char names[512];
    bool has = false;
    const char *base = *run ? *run : "default";
    int code = rp_cmd_run_stat(run_dir, base, &stat, error);
    if (code < 0)
        return code;
    list_streams(json_object_get(stat, "streams"), stream, names, sizeof names, &has);
    const char *main_stream = json_string_value(json_object_get(stat, "stream_name"));
    char *other = has ? rp_asprintf("%s.%s", base, stream) : NULL; /* lives as long as we do */
    if (!has)
        code = rp_fail(error, -RP_E_USAGE,
                       names[0] ? "give one of these names" : "leave --stream out",
                       "run %s has no stream `%.64s`: %s%s", base, stream,
                       names[0] ? "its streams are " : "it has only one", names);
    else if (!other)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for its name", base);
    else if (main_stream && strcmp(main_stream, stream) != 0)
        *run = other;
    json_decref(stat);
    return code;
}

int rp_cmd_run_directory(const char *run_dir, const char *run, char **directory,
                         struct rp_error *error)
{
    json_t *stat;
    int code = rp_cmd_run_stat(run_dir, run, &stat, error);
    if (code == -RP_E_TIMEOUT)
        return code; /* it is silent */
    if (code < 0)
        return rp_fail(error, code,
                       "give the checkpoint directory of the run, or the name of a run whose "
                       "engine is running",
                       "%s: no file, no directory, and no running engine", run);
    const char *found = json_string_value(json_object_get(stat, "checkpoint_dir"));
    if (!found)
        code = rp_fail(error, -RP_E_EMPTY, "serve it with checkpoint_dir",
                       "run `%s` has no checkpoint_dir, and so no checkpoint and no journal", run);
    else if (!(*directory = strdup(found)))
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a path", run);
    json_decref(stat);
    return code;
}

bool rp_cmd_is_run(const char *word)
{
    struct stat info;
    return stat(word, &info) < 0 && errno == ENOENT && rp_run_name_check(word, NULL) == 0;
}

void rp_cmd_run_free(struct rp_run_of *of)
{
    free(of->run);
    free(of->run_dir);
    free(of->checkpoint_dir);
    *of = (struct rp_run_of){.run = NULL};
}
