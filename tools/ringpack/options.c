/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "cmd.h"
#include "cmd_run.h"
#include "config/config.h"
#include "object/url.h"
#include "options_help.h"
#include "state/state_streams.h"

#define ALL_MAX 160u
#define NAME_BYTES 40

/* All options of a verb, and its command line. */
struct parser {
    const struct rp_verb *verb;
    struct rp_cmd_line *line; /* the beginning of the arguments */
    struct rp_option all[ALL_MAX];
    const char *keys[ALL_MAX]; /* at the place of an option of the kind KEY: its key */
    size_t count;
    int argc, at; /* the next argument */
    char **argv;
    struct rp_error *error; /* the first mistake's */
};

/* ---- the options of a verb ------------------------------------------------------------------- */

#define RUN_DIR_OPTION                                                                             \
    {                                                                                              \
        RP_TEXT("run-dir", "DIR", struct rp_cmd_line, run_dir),                                    \
            .help = "directory of the engines' sockets"                                            \
    }
static const struct rp_option run_options[] = {
    {RP_TEXT("run", "RUN", struct rp_cmd_line, run), .help = "the run: the same as the word RUN"},
    {RP_TEXT("config", "FILE", struct rp_cmd_line, path), .letter = 'c',
     .help = "the run of this config, or of this checkpoint"},
    {RP_TEXT("stream", "NAME", struct rp_cmd_line, stream),
     .help = "the one of the streams of the run that is meant (default: the main one)"},
    RUN_DIR_OPTION,
    {0},
};

static const struct rp_option config_options[] = {
    {RP_TEXT("config", "FILE", struct rp_cmd_line, path), .letter = 'c',
     .help = "YAML file of keys, or a checkpoint of a run"},
    {.kind = RP_OPTION_SHOWN,
     .name = "KEY",
     .value = "VALUE",
     .help = "any key of the config: see `ringpack config keys`"},
    {0},
};

static const struct rp_option help_options[] = {
    {.kind = RP_OPTION_HELP, .name = "help", .letter = 'h', .help = "print this help"},
    {0},
};

static void add(struct parser *parser, const struct rp_option *options)
{
    for (; options && options->kind && parser->count < ALL_MAX; options++)
        parser->all[parser->count++] = *options;
}

static void add_key(struct parser *parser, const char *key)
{
    static char names[ALL_MAX][NAME_BYTES];
    size_t place = parser->count;
    if (place == ALL_MAX)
        return;
    snprintf(names[place], sizeof names[place], "%s", key);
    for (char *c = names[place]; *c; c++)
        *c = *c == '_' ? '-' : *c;
    parser->keys[place] = key;
    const struct rp_option option[] = {
        {.kind = RP_OPTION_KEY, .name = names[place], .value = "VALUE", .place = place}, {0}};
    add(parser, option);
}

/* The keys are hidden: more than 60 of them would bury the options of the verb. */
static void add_keys(struct parser *parser)
{
    const struct rp_config_key *keys = rp_config_keys();
    for (size_t i = 0; keys[i].name; i++)
        add_key(parser, keys[i].name);
    for (const struct rp_config_older_name *entry = rp_config_older_names; entry->older; entry++)
        for (size_t i = 0; keys[i].name; i++) /* but for older names of keys of a source */
            if (!strcmp(keys[i].name, entry->name))
                add_key(parser, entry->older);
}

/* ---- one option ------------------------------------------------------------------------------ */

static int misspelt(const struct parser *parser, const char *name, size_t length)
{
    char word[RP_TEXT_WORD_MAX];
    snprintf(word, sizeof word, "%.*s", (int)rp_min_u64(length, sizeof word - 1), name);
    struct rp_text_near near = {.word = word};
    for (size_t i = 0; i < parser->count; i++)
        rp_text_offer(&near, parser->all[i].name);
    if (near.best)
        return rp_cmd_mistake(parser->error, parser->verb->name,
                              "unrecognized option '--%s'; did you mean `--%s`?", word, near.best);
    return rp_cmd_mistake(parser->error, parser->verb->name, "unrecognized option '--%s'", word);
}

/* The option of that name, or the only one that begins with it. NULL after a mistake. */
static const struct rp_option *find(const struct parser *parser, const char *name, size_t length)
{
    const struct rp_option *found = NULL;
    for (size_t i = 0; i < parser->count; i++) {
        const struct rp_option *option = &parser->all[i];
        if (option->kind == RP_OPTION_SHOWN || strncmp(option->name, name, length) != 0)
            continue;
        if (option->name[length] == '\0')
            return option;
        if (found && strcmp(found->name, option->name) != 0) {
            rp_cmd_mistake(parser->error, parser->verb->name,
                           "option '--%.*s' is short for --%s and for --%s", (int)length, name,
                           found->name, option->name);
            return NULL;
        }
        found = option;
    }
    if (!found)
        misspelt(parser, name, length);
    return found;
}

static int wrong_value(const struct parser *parser, const struct rp_option *option,
                       const char *text)
{
    char range[64];
    const char *expected = option->expected;
    uint64_t most = option->most ? option->most : option->bytes == 4 ? UINT32_MAX : 0;
    if (!expected && most)
        snprintf(range, sizeof range, "%" PRIu64 " … %" PRIu64, option->least, most);
    else if (!expected && option->least)
        snprintf(range, sizeof range, "%" PRIu64 " or more", option->least);
    else if (!expected)
        snprintf(range, sizeof range, "a whole number");
    return rp_cmd_mistake(parser->error, parser->verb->name, "--%s: expected %s, found `%s`",
                          option->name, expected ? expected : range, text);
}

/* Whether `text` is a word of a list such as "u16, u32 or i32". */
static bool is_choice(const char *list, const char *text)
{
    size_t length = strlen(text);
    for (const char *word = list; *word; word += strspn(word, ", ")) {
        size_t bytes = strcspn(word, ", ");
        if (bytes == length && memcmp(word, text, length) == 0 && strcmp(text, "or") != 0)
            return true;
        word += bytes;
    }
    return false;
}

static bool take_number(const struct rp_option *option, const char *text, void *place)
{
    uint64_t value, most = option->bytes == 4 ? UINT32_MAX : UINT64_MAX;
    bool is_one = option->kind == RP_OPTION_BYTES ? rp_text_bytes(text, &value)
                                                  : rp_text_count(text, &value);
    if (!is_one || value < option->least || value > (option->most ? option->most : most))
        return false;
    uint32_t narrow = (uint32_t)value;
    memcpy(place, option->bytes == 4 ? (void *)&narrow : (void *)&value, option->bytes);
    return true;
}

static int note_key(struct parser *parser, const struct rp_option *option, const char *text)
{
    struct rp_cmd_line *line = parser->line;
    if (line->setting_count == RP_CMD_SETTINGS_MAX)
        return rp_cmd_mistake(parser->error, parser->verb->name,
                              "more than %d settings: put them in a config file",
                              RP_CMD_SETTINGS_MAX);
    line->settings[line->setting_count++] = (struct rp_cmd_setting){parser->keys[option->place],
                                                                    text};
    return 0;
}

/* Store an option. `text` is NULL if it has no value. */
static int store(struct parser *parser, const struct rp_option *option, char *text)
{
    char *arguments = (char *)parser->line;
    void *place = arguments + option->place;
    bool is_fine = true;
    if (option->given)
        *(bool *)(arguments + option->given) = true;
    switch (option->kind) {
    case RP_OPTION_FLAG:
        *(bool *)place = true;
        break;
    case RP_OPTION_LOCAL:
        if (text && rp_url_is(text))
            return rp_cmd_mistake(parser->error, parser->verb->name,
                                  "--%s: expected a path on a disk of this machine, found a URL "
                                  "(%.*s://): ringpack reads from stores, and never writes to them",
                                  option->name, (int)strcspn(text, ":"), text);
        *(const char **)place = text;
        break;
    case RP_OPTION_CHOICE:
        is_fine = text && is_choice(option->expected, text);
        *(const char **)place = text;
        break;
    case RP_OPTION_TEXT:
        *(const char **)place = text;
        break;
    case RP_OPTION_COUNT:
    case RP_OPTION_BYTES:
        is_fine = take_number(option, text, place);
        break;
    case RP_OPTION_TAKE:
        is_fine = option->take(text, place);
        break;
    case RP_OPTION_KEY:
        return note_key(parser, option, text);
    default:
        rp_help_print(parser->verb, parser->all, parser->count, option->kind == RP_OPTION_HELP_ALL);
        exit(RP_EXIT_FINE);
    }
    return is_fine ? 0 : wrong_value(parser, option, text);
}

/* The value of an option is the rest of its argument, or the next argument. */
static int take_value(struct parser *parser, const struct rp_option *option, char *rest)
{
    if (!rest && parser->at == parser->argc)
        return rp_cmd_mistake(parser->error, parser->verb->name,
                              "option '--%s' needs a value: --%s=%s", option->name, option->name,
                              option->value);
    return store(parser, option, rest ? rest : parser->argv[parser->at++]);
}

static int take_long(struct parser *parser, char *name)
{
    size_t length = strcspn(name, "=");
    const struct rp_option *option = find(parser, name, length);
    if (!option)
        return -RP_E_USAGE;
    char *value = name[length] ? name + length + 1 : NULL;
    if (option->value)
        return take_value(parser, option, value);
    if (value)
        return rp_cmd_mistake(parser->error, parser->verb->name,
                              "option '--%s' takes no value, found `%s`", option->name, value);
    return store(parser, option, NULL);
}

static int take_letters(struct parser *parser, char *letters)
{
    int code = 0;
    for (; *letters && code == 0; letters++) {
        const struct rp_option *option = NULL;
        for (size_t i = 0; i < parser->count && !option; i++)
            option = parser->all[i].letter == *letters ? &parser->all[i] : NULL;
        if (!option)
            return rp_cmd_mistake(parser->error, parser->verb->name, "unrecognized option '-%c'",
                                  *letters);
        if (option->value)
            return take_value(parser, option, letters[1] ? letters + 1 : NULL);
        code = store(parser, option, NULL);
    }
    return code;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void add_all(struct parser *parser)
{
    const struct rp_verb *verb = parser->verb;
    add(parser, verb->options);
    if (verb->takes == RP_TAKES_RUN || verb->takes == RP_TAKES_RUN_OR)
        add(parser, run_options);
    if (verb->takes == RP_TAKES_CONFIG)
        add(parser, config_options);
    add(parser, help_options);
    if (verb->takes == RP_TAKES_CONFIG)
        add_keys(parser);
}

int rp_cmd_read_line(const struct rp_verb *verb, int argc, char **argv, void *arguments,
                     struct rp_error *error)
{
    static struct parser parser;
    struct rp_cmd_line *line = arguments;
    parser = (struct parser){
        .verb = verb, .line = line, .argc = argc, .at = 1, .argv = argv, .error = error};
    add_all(&parser);
    line->verb = verb;
    line->words = rp_calloc((size_t)argc + 2, sizeof *line->words);
    if (!line->words)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the command line");
    int code = 0;
    for (bool has_options = true; parser.at < argc && code == 0;) {
        char *word = argv[parser.at++];
        if (has_options && strcmp(word, "--") == 0)
            has_options = false;
        else if (has_options && strncmp(word, "--", 2) == 0)
            code = take_long(&parser, word + 2);
        else if (has_options && word[0] == '-' && word[1])
            code = take_letters(&parser, word + 1);
        else
            line->words[line->count++] = word;
    }
    return code;
}

/* --run and -c become the first word. Without --run-dir, the run_dir of the config is taken. */
static int take_run(struct rp_cmd_line *line, struct rp_error *error)
{
    struct rp_run_of of = {.run = NULL};
    if (line->path && line->run)
        return rp_fail(error, -RP_E_USAGE, "give one of them", "--run %s, and -c %s", line->run,
                       line->path);
    if (line->verb->takes != RP_TAKES_RUN) {
        rp_saved_choose_stream(line->stream); /* the verb may read a state */
        return 0;
    }
    int code = line->path ? rp_cmd_run_of(line->path, line->stream, &of, error) : 0;
    if (code < 0)
        return code;
    const char *run = line->run ? line->run : of.run;
    if (!line->run_dir)
        line->run_dir = of.run_dir;
    if (run) {
        memmove(line->words + 1, line->words, line->count++ * sizeof *line->words);
        line->words[0] = run;
    }
    if (line->stream && !line->path)
        return rp_cmd_run_stream(line->run_dir, &line->words[0], line->stream, error);
    return 0;
}

static int check_words(const struct rp_cmd_line *line, struct rp_error *error)
{
    const struct rp_verb *verb = line->verb;
    if (line->count > verb->words_most)
        return rp_cmd_mistake(error, verb->name, "`%s` is one word too many",
                              line->words[verb->words_most]);
    if (line->count < verb->words_least)
        return rp_cmd_mistake(error, verb->name, "expected %s", verb->expected);
    return 0;
}

int rp_cmd_parse(const struct rp_verb *verb, int argc, char **argv, void *arguments)
{
    struct rp_error error;
    int code = rp_cmd_read_line(verb, argc, argv, arguments, &error);
    if (code == 0 && verb->takes != RP_TAKES_CONFIG)
        code = take_run(arguments, &error);
    if (code == 0)
        code = check_words(arguments, &error);
    if (code < 0)
        return rp_cmd_report(&error);
    return verb->check ? verb->check(arguments) : RP_EXIT_FINE;
}
