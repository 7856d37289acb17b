/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_options.c — see cmd_options.h. */
#include "cmd_options.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/text.h"
#include "cmd.h"
#include "object/url.h"
#include "terminal.h"

#define OPTIONS_MAX 128u

/* The long options of a verb. */
struct known {
    struct option options[OPTIONS_MAX];
    size_t count;
};

static void add(struct known *known, const char *name, bool takes_value)
{
    if (known->count < OPTIONS_MAX)
        known->options[known->count++] = (struct option){
            name, takes_value ? required_argument : no_argument, NULL, 0};
}

static void add_argp(struct known *known, const struct argp *argp)
{
    for (const struct argp_option *o = argp->options; o && (o->name || o->key || o->doc); o++)
        if (o->name && !(o->flags & OPTION_DOC))
            add(known, o->name, o->arg != NULL);
    for (const struct argp_child *child = argp->children; child && child->argp; child++)
        add_argp(known, child->argp);
}

/* The first option that begins with the `length` bytes of `name`, or NULL. */
static const struct option *find(const struct known *known, const char *name, size_t length)
{
    for (size_t i = 0; i < known->count; i++)
        if (!strncmp(known->options[i].name, name, length))
            return &known->options[i];
    return NULL;
}

static int refuse(const struct known *known, const char *program, const char *name, size_t length)
{
    char word[RP_TEXT_WORD_MAX];
    snprintf(word, sizeof word, "%.*s", (int)rp_min_u64(length, sizeof word - 1), name);
    struct rp_text_near near = {.word = word};
    for (size_t i = 0; i < known->count; i++)
        rp_text_offer(&near, known->options[i].name);
    const char *verb = strchr(program, ' ') ? strchr(program, ' ') + 1 : program;
    if (near.best)
        return rp_cmd_misuse(verb, "unrecognized option '--%s'; did you mean `--%s`?", word,
                             near.best);
    return rp_cmd_misuse(verb, "unrecognized option '--%s'", word);
}

static int check(const struct known *known, int argc, char *const *argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        const char *name = argv[i] + 2;
        size_t length = strcspn(name, "=");
        const struct option *option = find(known, name, length);
        if (!option)
            return refuse(known, argv[0], name, length);
        i += option->has_arg == required_argument && name[length] == '\0'; /* its value */
    }
    return RP_EXIT_FINE;
}

static int check_argp(const struct argp *argp, int argc, char *const *argv)
{
    static const char *const usual[] = {"help", "usage", "version"}; /* argp has these itself */
    struct known known = {.count = 0};
    add_argp(&known, argp);
    for (size_t i = 0; i < RP_ARRAY_COUNT(usual); i++)
        add(&known, usual[i], false);
    return check(&known, argc, argv);
}

int rp_cmd_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    argp_err_exit_status = RP_EXIT_TROUBLE;
    if (check_argp(argp, argc, argv) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    FILE *real = stderr, *guarded = rp_terminal_open_messages();
    stderr = guarded ? guarded : real; /* argp shows words as they are, and may end the process */
    int code = argp_parse(argp, argc, argv, 0, NULL, input);
    stderr = real;
    if (guarded)
        fclose(guarded);
    return code != 0 ? RP_EXIT_TROUBLE : RP_EXIT_FINE;
}

#define LOCAL_EXPECTED                                                                             \
    "--%s: expected a path on a disk of this machine, found a URL (%.*s://): ringpack reads from " \
    "stores, and never writes to them"

char *rp_cmd_local_path(const struct argp_state *state, const char *option, char *text)
{
    if (rp_url_is(text))
        argp_error(state, LOCAL_EXPECTED, option, (int)strcspn(text, ":"), text);
    return text;
}

int rp_cmd_refuse_url(const char *verb, const char *option, const char *text)
{
    return rp_url_is(text)
               ? rp_cmd_misuse(verb, LOCAL_EXPECTED, option, (int)strcspn(text, ":"), text)
               : RP_EXIT_FINE;
}

int rp_cmd_check_getopt(const struct option *options, int argc, char *const *argv)
{
    struct known known = {.count = 0};
    for (; options->name; options++)
        add(&known, options->name, options->has_arg == required_argument);
    return check(&known, argc, argv);
}
