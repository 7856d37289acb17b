/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_config.c — see cmd_config.h. The table of options is made from rp_config_keys. */
#include "cmd_config.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "checkpoint/checkpoint.h"
#include "cmd.h"
#include "cmd_options.h"

#define KEYS_MAX 64
#define NAME_BYTES 40
#define OPTION_KEY_FIRST 0x2000

static struct argp_option options[KEYS_MAX + 3];
static char names[KEYS_MAX][NAME_BYTES];

static void note(struct rp_cmd_config *arguments, struct argp_state *state, const char *key,
                 const char *text)
{
    if (arguments->setting_count == RP_CMD_SETTINGS_MAX)
        argp_error(state, "more than %d settings: put them in a config file", RP_CMD_SETTINGS_MAX);
    arguments->settings[arguments->setting_count++] = (struct rp_cmd_setting){key, text};
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct rp_cmd_config *arguments = state->input;
    if (key == 'c') {
        arguments->path = text;
        return 0;
    }
    if (key < OPTION_KEY_FIRST || key >= OPTION_KEY_FIRST + KEYS_MAX)
        return ARGP_ERR_UNKNOWN;
    note(arguments, state, rp_config_keys()[key - OPTION_KEY_FIRST].name, text);
    return 0;
}

/* The parser of a verb: its own options, and the child for those of the config. */
static error_t parse_verb(int key, char *text, struct argp_state *state)
{
    struct rp_cmd_config *arguments = state->input;
    if (key != ARGP_KEY_INIT)
        return arguments->verb->parse(key, text, state);
    state->child_inputs[0] = arguments;
    return 0;
}

/* The argp child for the keys of the config. Its input is a struct rp_cmd_config. The options of
 * the keys are hidden: 60 of them would bury those of the verb. */
static const struct argp *make_argp(void)
{
    static struct argp argp = {.options = options, .parser = parse};
    size_t count = 0;
    options[count++] = (struct argp_option){
        "config", 'c', "FILE", 0, "YAML file of keys, or a checkpoint, with the config of its run",
        0};
    options[count++] = (struct argp_option){
        "--KEY=VALUE",
        0,
        NULL,
        OPTION_DOC | OPTION_NO_USAGE,
        "any key of the config, with dashes: `ringpack config keys` lists them, "
        "`ringpack config keys KEY...` explains single ones",
        0};
    const struct rp_config_key *keys = rp_config_keys();
    for (int i = 0; i < KEYS_MAX && keys[i].name; i++) {
        snprintf(names[i], sizeof names[i], "%s", keys[i].name);
        for (char *c = names[i]; *c; c++)
            *c = *c == '_' ? '-' : *c;
        options[count++] = (struct argp_option){
            names[i], OPTION_KEY_FIRST + i, "VALUE", OPTION_HIDDEN, NULL, 0};
    }
    options[count] = (struct argp_option){0};
    return &argp;
}

static int read_kept(struct rp_config *config, const char *path, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint;
    size_t bytes;
    int code = rp_checkpoint_open(&checkpoint, path, error);
    if (code < 0)
        return code;
    const char *text = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONFIG, &bytes);
    code = rp_config_read_kept(config, text ? text : "", bytes, path, error);
    rp_checkpoint_close(checkpoint);
    return code;
}

int rp_cmd_config_read_file(struct rp_config *config, const char *path, struct rp_error *error)
{
    return rp_checkpoint_is_file(path) ? read_kept(config, path, error)
                                       : rp_config_read(config, path, error);
}

int rp_cmd_config_read(struct rp_cmd_config *arguments, struct rp_error *error)
{
    int code = arguments->path ? rp_cmd_config_read_file(arguments->config, arguments->path, error)
                               : 0;
    for (size_t i = 0; i < arguments->setting_count && code >= 0; i++)
        code = rp_config_set(arguments->config, arguments->settings[i].key,
                             arguments->settings[i].text, error);
    return code < 0 ? code : 0;
}

int rp_cmd_config_finish(struct rp_cmd_config *arguments)
{
    struct rp_error error = {0};
    int code = rp_cmd_config_read(arguments, &error);
    if (code == 0)
        code = rp_config_finish(arguments->config, &error);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_config_run(const struct rp_cmd_verb *verb, void *arguments, int argc, char **argv)
{
    const struct argp_child children[] = {{make_argp(), 0, "Keys of the config:", 1}, {0}};
    const struct argp argp = {.options = verb->options,
                              .parser = parse_verb,
                              .args_doc = verb->args_doc,
                              .doc = verb->doc,
                              .children = children};
    struct rp_cmd_config *first = arguments;
    struct rp_config config;
    rp_config_init(&config);
    first->config = &config;
    first->verb = verb;
    int status = rp_cmd_parse(&argp, argc, argv, arguments);
    if (status == RP_EXIT_FINE)
        status = verb->finish ? verb->finish(first) : rp_cmd_config_finish(first);
    if (status == RP_EXIT_FINE)
        status = verb->run(arguments, &config);
    rp_config_free(&config);
    return status;
}

const char *rp_cmd_config_given(const struct rp_cmd_config *arguments, const char *key)
{
    const char *text = NULL;
    for (size_t i = 0; i < arguments->setting_count; i++)
        if (!strcmp(arguments->settings[i].key, key))
            text = arguments->settings[i].text;
    return text;
}

void rp_cmd_config_words(const struct rp_cmd_config *arguments, struct rp_words *words)
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
