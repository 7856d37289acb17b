/* SPDX-License-Identifier: Apache-2.0 */
/* options.h — the command line of every verb: one parser, one form of help and of mistakes.
 *
 * A verb is a table of options, a few texts and a range of words. Its arguments are a struct that
 * begins with a struct rp_cmd_line; the parser stores each option at its place in that struct.
 * Options and words may be mixed, `--` ends the options, and a long option may be shortened as long
 * as it stays unique. `-h` and `--help` print the help and end the process with RP_EXIT_FINE. */
#ifndef RP_TOOLS_OPTIONS_H
#define RP_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

enum rp_option_kind {
    RP_OPTION_END,    /* ends a table */
    RP_OPTION_FLAG,   /* bool: becomes true */
    RP_OPTION_TEXT,   /* const char * */
    RP_OPTION_LOCAL,  /* const char *: a path to write to: a URL is a mistake */
    RP_OPTION_CHOICE, /* const char *: a word of `expected` */
    RP_OPTION_COUNT,  /* uint32_t or uint64_t: 500, 10k */
    RP_OPTION_BYTES,  /* uint64_t: 500, 16m */
    RP_OPTION_TAKE,   /* anything: `take` stores it */
    RP_OPTION_KEY,    /* a key of the config: noted in the struct rp_cmd_line */
    RP_OPTION_SHOWN,  /* a line of the help */
    RP_OPTION_HELP,
    RP_OPTION_HELP_ALL, /* the help with `more` of each option, and `all` of the verb */
};

struct rp_option {
    enum rp_option_kind kind;
    char letter; /* 0 = none */
    const char *name;
    const char *value;    /* the name of its value in the help; NULL = it has none */
    const char *help;     /* NULL = hidden */
    const char *more;     /* after `help` in --help-all */
    const char *expected; /* for a wrong value; NULL = the kind says it */
    uint64_t least, most; /* a number's limits; most 0 = as the type */
    size_t place, bytes;  /* in the arguments */
    size_t given;         /* in the arguments: a bool that becomes true; 0 = none */
    bool (*take)(const char *text, void *place); /* false: `text` is not as expected */
};

/* The beginning of a row of a table: {RP_FLAG("json", struct arguments, json), .help = "..."}. */
#define RP_OPTION_PLACE(type, member, c_type)                                                      \
    .place = offsetof(type, member) + 0 * sizeof(_Generic(((type *)NULL)->member, c_type : 0))
#define RP_FLAG(name_, type, member)                                                               \
    .kind = RP_OPTION_FLAG, .name = name_, RP_OPTION_PLACE(type, member, bool)
#define RP_TEXT_OPTION(kind_, name_, value_, type, member)                                         \
    .kind = kind_, .name = name_, .value = value_, RP_OPTION_PLACE(type, member, const char *)
#define RP_TEXT(name, value, type, member) RP_TEXT_OPTION(RP_OPTION_TEXT, name, value, type, member)
#define RP_LOCAL(name, value, type, member)                                                        \
    RP_TEXT_OPTION(RP_OPTION_LOCAL, name, value, type, member)
#define RP_CHOICE(name, value, type, member)                                                       \
    RP_TEXT_OPTION(RP_OPTION_CHOICE, name, value, type, member)
#define RP_COUNT(name_, value_, type, member)                                                      \
    .kind = RP_OPTION_COUNT, .name = name_, .value = value_, .place = offsetof(type, member),      \
    .bytes = _Generic(((type *)NULL)->member, uint32_t : 4u, uint64_t : 8u)
#define RP_BYTES(name_, value_, type, member)                                                      \
    .kind = RP_OPTION_BYTES, .name = name_, .value = value_,                                       \
    RP_OPTION_PLACE(type, member, uint64_t), .bytes = 8
#define RP_TAKE(name_, value_, type, member, take_)                                                \
    .kind = RP_OPTION_TAKE, .name = name_, .value = value_, .place = offsetof(type, member),       \
    .take = take_

#define RP_CMD_SETTINGS_MAX 256

/* The words and the options that several verbs have. */
struct rp_cmd_line {
    const struct rp_verb *verb;
    const char **words; /* [count]; NULL after the last */
    size_t count;
    const char *path; /* -c */
    const char *run, *run_dir, *stream;
    struct rp_cmd_setting {
        const char *key, *text;
    } settings[RP_CMD_SETTINGS_MAX]; /* keys of the config that were given as options */
    size_t setting_count;
    struct rp_config *config; /* the verb's, if it takes one */
};

/* The options that a verb shares with others. */
enum rp_verb_takes {
    RP_TAKES_NOTHING,
    RP_TAKES_RUN,    /* --run, -c and --run-dir: the run becomes the first word */
    RP_TAKES_RUN_OR, /* the same options, which the verb resolves itself */
    RP_TAKES_CONFIG, /* -c and an option for each key of the config */
};

struct rp_verb {
    const char *name;
    const char *usage; /* the words, a form on each line; NULL = there are none */
    const char *help;  /* the first paragraph */
    const char *notes; /* after the options, or NULL */
    const char *all;   /* after the notes in --help-all, or NULL */
    const struct rp_option *options;
    enum rp_verb_takes takes;
    size_t words_least, words_most;
    const char *expected;          /* if words are missing */
    int (*check)(void *arguments); /* checks all options together: an exit status; may be NULL */
    /* Only with RP_TAKES_CONFIG, see cmd_config.h. */
    int (*run)(void *arguments, const struct rp_config *config);
    int (*finish)(struct rp_cmd_line *line); /* NULL = rp_cmd_config_finish */
};

/** Parse the command line of a verb into its arguments. Returns RP_EXIT_FINE, or RP_EXIT_TROUBLE
 * after reporting a mistake. The words live as long as the process. */
int rp_cmd_parse(const struct rp_verb *verb, int argc, char **argv, void *arguments);

/** Read the command line of another process: options and words are stored, and not checked
 * together. An error names the first mistake. */
RP_MUST_CHECK int rp_cmd_read_line(const struct rp_verb *verb, int argc, char **argv,
                                   void *arguments, struct rp_error *error);

#endif
