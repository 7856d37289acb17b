/* SPDX-License-Identifier: Apache-2.0 */
/* verb.c — `ringpack config keys | show | check | diff | init | stream | contract`. */
#include <string.h>

#include "cmd.h"
#include "cmd_options.h"
#include "config/keys.h"

#define ACTIONS "keys, show, check, diff, init, stream or contract"

enum { OPTION_JSON = 0x1000, OPTION_MANUAL };

static const struct argp_option own_options[] = {
    {"json", OPTION_JSON, NULL, 0, "print JSON (show, diff)", 0},
    {"manual", OPTION_MANUAL, NULL, 0, "print the manual page ringpack.yaml(5) (keys)", 0},
    {"output", 'o', "FILE", 0, "write the config to FILE, which must not exist (init)", 0},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct rp_keys_arguments *arguments = state->input;
    switch (key) {
    case OPTION_JSON:
        arguments->json = true;
        return 0;
    case OPTION_MANUAL:
        arguments->manual = true;
        return 0;
    case 'o':
        arguments->output = rp_cmd_local_path(state, "output", text);
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->word_count == RP_KEYS_WORDS_MAX)
            argp_error(state, "more than %d words", RP_KEYS_WORDS_MAX);
        arguments->words[arguments->word_count++] = text;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The config is read here and finished by the actions that need the files of the corpus, because
 * finishing lists all of them. */
static int read_config(struct rp_cmd_config *arguments)
{
    struct rp_error error;
    int code = rp_cmd_config_read(arguments, &error);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

static int run(void *input, const struct rp_config *config)
{
    struct rp_keys_arguments *arguments = input;
    (void)config; /* the same as arguments->config.config */
    if (arguments->word_count == 0)
        return rp_cmd_misuse("config", "expected " ACTIONS);
    const char *action = arguments->words[0];
    arguments->word_count--;
    memmove(arguments->words, arguments->words + 1,
            arguments->word_count * sizeof *arguments->words);
    if (!strcmp(action, "keys"))
        return rp_keys_list(arguments);
    if (!strcmp(action, "show"))
        return rp_keys_show(arguments, arguments->config.config);
    if (!strcmp(action, "check"))
        return rp_keys_check(arguments, arguments->config.config);
    if (!strcmp(action, "diff"))
        return rp_keys_diff(arguments);
    if (!strcmp(action, "init"))
        return rp_keys_init(arguments, arguments->config.config);
    if (!strcmp(action, "stream"))
        return rp_keys_stream(arguments, arguments->config.config);
    if (!strcmp(action, "contract"))
        return rp_keys_contract(arguments, arguments->config.config);
    return rp_cmd_misuse("config", "expected " ACTIONS ", found `%s`", action);
}

int rp_cmd_config(int argc, char **argv)
{
    static const struct rp_cmd_verb verb = {
        .options = own_options,
        .parse = parse,
        .args_doc =
            "keys [KEY...]\nshow [KEY...]\ncheck\ndiff FILE FILE\ninit PATH...\nstream\ncontract",
        .doc =
            "Show, check, compare or write configs. Only `contract` opens the corpus.\v"
            "`show` prints what each key is set to, by which line of the file or option, and "
            "whether it may change when the run resumes; with one KEY it prints the value alone. "
            "`check` also lists the files of the corpus. `diff` exits 1 if the configs differ, "
            "and says for each key whether a run of the first may resume with the second. "
            "`init` writes a config for a corpus, with every default as a comment; keys that are "
            "given as options are set. `stream` prints the fields of the run's contract that "
            "follow from the config alone, and `contract` all of them: a Loader compares them with "
            "those of the engine that it attaches to.",
        .run = run,
        .finish = read_config};
    struct rp_keys_arguments arguments = {0};
    return rp_cmd_config_run(&verb, &arguments, argc, argv);
}
