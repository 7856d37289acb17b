/* SPDX-License-Identifier: Apache-2.0 */
/* verb.c — `ringpack config keys | show | check | diff | init | stream | contract`. */
#include <string.h>

#include "cmd.h"
#include "config/keys.h"
#include "other_streams.h"

#define ACTIONS "keys, show, check, diff, init, stream or contract"

enum { OPTION_JSON = 0x1000, OPTION_MANUAL };

static const struct rp_option own_options[] = {
    {RP_FLAG("json", struct rp_keys_arguments, json), .help = "print JSON (show, diff)"},
    {RP_FLAG("manual", struct rp_keys_arguments, manual),
     .help = "print the manual page ringpack.yaml(5) (keys)"},
    {RP_LOCAL("output", "FILE", struct rp_keys_arguments, output), .letter = 'o',
     .help = "write the config to FILE, which must not exist (init)"},
    {0},
};

/* The config is read here and finished by the actions that need the files of the corpus, because
 * finishing lists all of them. */
static int read_config(struct rp_cmd_line *arguments)
{
    struct rp_error error;
    int code = rp_cmd_config_read(arguments, &error);
    rp_config_settle_window(arguments->config);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

static int check(const struct rp_keys_arguments *arguments)
{
    struct rp_error error;
    if (rp_other_streams_is_for(&arguments->line) &&
        rp_other_streams_check(&arguments->line, &error) < 0)
        return rp_cmd_report(&error);
    return rp_keys_check(arguments, arguments->line.config);
}

static int run(void *input, const struct rp_config *config)
{
    struct rp_keys_arguments *arguments = input;
    (void)config; /* the same as arguments->line.config */
    const char *action = arguments->line.words[0];
    arguments->words = arguments->line.words + 1;
    arguments->word_count = arguments->line.count - 1;
    if (!strcmp(action, "keys"))
        return rp_keys_list(arguments);
    if (!strcmp(action, "show"))
        return rp_keys_show(arguments, arguments->line.config);
    if (!strcmp(action, "check"))
        return check(arguments);
    if (!strcmp(action, "diff"))
        return rp_keys_diff(arguments);
    if (!strcmp(action, "init"))
        return rp_keys_init(arguments, arguments->line.config);
    if (!strcmp(action, "stream"))
        return rp_keys_stream(arguments, arguments->line.config);
    if (!strcmp(action, "contract"))
        return rp_keys_contract(arguments, arguments->line.config);
    return rp_cmd_misuse("config", "expected " ACTIONS ", found `%s`", action);
}

int rp_cmd_config(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "config",
        .usage = "keys [KEY...]\nshow [KEY...]\ncheck\ndiff FILE FILE\ninit PATH...\n"
                 "stream\ncontract",
        .help = "Show, check, compare or write configs. Only `contract` opens the corpus.",
        .notes =
            "`show` prints the value of each key, the line of the file or the option that set it, "
            "and whether it may change when the run resumes; with one KEY it prints the value "
            "only. `check` also lists the files of the corpus. `diff` exits 1 if the configs "
            "differ, and says for each key whether a run of the first may resume with the second. "
            "`init` writes a config for a corpus, with every default as a comment; keys that are "
            "given as options are set. `stream` prints the fields of the run's contract that "
            "follow from the config only, and `contract` all of them: a Loader compares them with "
            "the fields of the engine that it attaches to.",
        .options = own_options,
        .takes = RP_TAKES_CONFIG,
        .words_least = 1,
        .words_most = RP_KEYS_WORDS_MAX + 1,
        .expected = ACTIONS,
        .run = run,
        .finish = read_config};
    struct rp_keys_arguments arguments = {0};
    return rp_cmd_config_run(&verb, &arguments, argc, argv);
}
