/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd_config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd.h"
#include "cmd_run.h"
#include "cmd_state.h"
#include "state/state_streams.h"
#include "stream_version.h"

int rp_cmd_config_read(struct rp_cmd_line *arguments, struct rp_error *error)
{
    int code = arguments->path ? rp_cmd_config_read_file(arguments->config, arguments->path, error)
                               : 0;
    for (size_t i = 0; i < arguments->setting_count && code >= 0; i++)
        code = rp_config_set(arguments->config, arguments->settings[i].key,
                             arguments->settings[i].text, error);
    if (code >= 0)
        code = rp_config_choose_stream(arguments->config, error);
    if (code >= 0 && arguments->config->is_repeated)
        rp_saved_choose_stream(rp_config_stream_name(arguments->config));
    return code;
}

int rp_cmd_config_end_at(struct rp_cmd_line *arguments, const void *state, size_t bytes)
{
    struct rp_error error = {0};
    rp_version_keep(arguments->config, state, bytes);
    int code = rp_config_finish(arguments->config, &error);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_config_finish_at(struct rp_cmd_line *arguments, const void *state, size_t bytes)
{
    struct rp_error error = {0};
    int code = rp_cmd_config_read(arguments, &error);
    return code < 0 ? rp_cmd_report(&error) : rp_cmd_config_end_at(arguments, state, bytes);
}

int rp_cmd_config_finish_at_file(struct rp_cmd_line *arguments, const char *path)
{
    struct stat info;
    char *state = NULL;
    size_t bytes = 0;
    bool is_read = path && stat(path, &info) == 0 &&
                   (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) &&
                   rp_cmd_read_state(path, &state, &bytes, NULL) == 0;
    int status = rp_cmd_config_finish_at(arguments, is_read ? state : NULL, bytes);
    free(state);
    return status;
}

int rp_cmd_config_finish(struct rp_cmd_line *arguments)
{
    return rp_cmd_config_finish_at(arguments, NULL, 0);
}

int rp_cmd_config_run(const struct rp_verb *verb, void *arguments, int argc, char **argv)
{
    static struct rp_config config; /* lasts until the process ends (rp_engine_run) */
    struct rp_cmd_line *line = arguments;
    rp_config_init(&config);
    line->config = &config;
    int status = rp_cmd_parse(verb, argc, argv, arguments);
    if (status == RP_EXIT_FINE)
        status = verb->finish ? verb->finish(line) : rp_cmd_config_finish(line);
    if (status == RP_EXIT_FINE)
        status = verb->run(arguments, &config);
    return status;
}

const char *rp_cmd_config_given(const struct rp_cmd_line *arguments, const char *key)
{
    const char *text = NULL;
    for (size_t i = 0; i < arguments->setting_count; i++)
        if (!strcmp(arguments->settings[i].key, key))
            text = arguments->settings[i].text;
    return text;
}

/* The child has another checkpoint_dir, and is to serve the stream that is planned here. */
static void add_version(const struct rp_cmd_line *arguments, struct rp_words *words)
{
    if (arguments->config->version_from == RP_VERSION_KEPT)
        rp_words_add(words, "--stream-version=%" PRIu32, arguments->config->stream_version);
}

void rp_cmd_config_given_words(const struct rp_cmd_line *arguments, struct rp_words *words)
{
    if (arguments->path) {
        rp_words_add(words, "-c");
        rp_words_add(words, "%s", arguments->path);
    }
    for (size_t i = 0; i < arguments->setting_count; i++) {
        rp_words_add(words, "--%s=%s", arguments->settings[i].key, arguments->settings[i].text);
        if (words->failed)
            return;
        for (char *key = words->word[words->count - 1]; *key != '='; key++)
            *key = *key == '_' ? '-' : *key;
    }
}

void rp_cmd_config_words(const struct rp_cmd_line *arguments, struct rp_words *words)
{
    rp_cmd_config_given_words(arguments, words);
    add_version(arguments, words);
}
