/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_convert — `ringpack convert INPUT... -o PREFIX`: the options. conversion.c goes on. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "cmd.h"
#include "cmd_options.h"
#include "convert/help.h"
#include "convert/parts.h"
#include "interrupt.h"

#define WORKERS_MAX 1024u
#define PARTS_MAX 1000000u

/* What getopt fills in. */
struct arguments {
    struct rp_convert_options options;
    struct rp_inputs inputs;
    const char **globs;
};

static int take_number(const char *option, const char *argument, bool bytes, uint64_t *value)
{
    if (bytes ? rp_text_bytes(argument, value) : rp_text_count(argument, value))
        return 0;
    return rp_cmd_misuse("convert", "--%s: expected a number, found `%s`", option, argument);
}

static int take_as(struct arguments *arguments, const char *argument)
{
    arguments->inputs.as = rp_form_named(argument);
    if (arguments->inputs.as)
        return 0;
    return rp_cmd_misuse("convert", "--as: expected a form, for instance jsonl, found `%s`",
                         argument);
}

static int take_dtype(struct rp_convert_options *options, const char *argument)
{
    static const char *const types[] = {"u16", "u32", "i32", "i64"};
    options->dtype = argument;
    for (size_t i = 0; i < RP_ARRAY_COUNT(types); i++)
        if (!strcmp(argument, types[i]))
            return 0;
    return rp_cmd_misuse("convert", "--dtype: expected u16, u32, i32 or i64, found `%s`", argument);
}

static int take_workers(uint32_t *workers, const char *argument)
{
    uint64_t value;
    if (!rp_text_u64(argument, &value) || value == 0 || value > WORKERS_MAX)
        return rp_cmd_misuse("convert", "--workers: expected 1 to %u, found `%s`", WORKERS_MAX,
                             argument);
    *workers = (uint32_t)value;
    return 0;
}

static int take_part(struct rp_convert_options *options, const char *argument)
{
    char first[24];
    const char *slash = strchr(argument, '/');
    uint64_t part = 0, parts = 0;
    size_t length = slash ? (size_t)(slash - argument) : 0;
    bool fine = slash && length < sizeof first;
    if (fine) {
        memcpy(first, argument, length);
        first[length] = 0;
        fine = rp_text_u64(first, &part) && rp_text_u64(slash + 1, &parts);
    }
    if (!fine || part >= parts || parts > PARTS_MAX)
        return rp_cmd_misuse("convert", "--part: expected I/N with 0 <= I < N, found `%s`",
                             argument);
    options->part = (uint32_t)part;
    options->parts = (uint32_t)parts;
    return 0;
}

static const struct option options[] = {
    {"output", required_argument, NULL, 'o'},
    {"force", no_argument, NULL, 'F'},
    {"tokenizer", required_argument, NULL, 't'},
    {"special-tokens", no_argument, NULL, 'S'},
    {"skip-bad", no_argument, NULL, 'B'},
    {"eos", required_argument, NULL, 'e'},
    {"append-eos", no_argument, NULL, 'a'},
    {"no-append-eos", no_argument, NULL, 'A'},
    {"bos", required_argument, NULL, 'b'},
    {"column", required_argument, NULL, 'c'},
    {"dtype", required_argument, NULL, 'D'},
    {"workers", required_argument, NULL, 'w'},
    {"part", required_argument, NULL, 'p'},
    {"merge", no_argument, NULL, 'M'},
    {"group-bytes", required_argument, NULL, 'G'},
    {"drop-labels", no_argument, NULL, 'd'},
    {"mask", required_argument, NULL, 'K'},
    {"mask-value", required_argument, NULL, 'V'},
    {"mask-of", required_argument, NULL, 'O'},
    {"vocab-size", required_argument, NULL, 'v'},
    {"as", required_argument, NULL, 'k'},
    {"glob", required_argument, NULL, 'g'},
    {"min-bytes", required_argument, NULL, 'm'},
    {"split-bytes", required_argument, NULL, 's'},
    {"max-tokens", required_argument, NULL, 'n'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"help-all", no_argument, NULL, 'H'},
    {0},
};

static int take_choice(const char *option, const char *argument, const char *one, const char *other,
                       const char **value)
{
    *value = argument;
    if (!strcmp(argument, one) || !strcmp(argument, other))
        return 0;
    return rp_cmd_misuse("convert", "--%s: expected %s or %s, found `%s`", option, one, other,
                         argument);
}

static int take_word(struct arguments *arguments, int option)
{
    struct rp_convert_options *chosen = &arguments->options;
    switch (option) {
    case 'o':
        chosen->output = optarg;
        return rp_cmd_refuse_url("convert", "output", optarg);
    case 't':
        chosen->tokenizer.name = optarg;
        chosen->tokenizer_given = true;
        return 0;
    case 'e':
        chosen->tokenizer.eos = optarg;
        return 0;
    case 'b':
        chosen->tokenizer.bos = optarg;
        return 0;
    case 'c':
        chosen->column = optarg;
        return 0;
    case 'D':
        return take_dtype(chosen, optarg);
    case 'K':
        chosen->mask.name = optarg;
        return 0;
    case 'V':
        return take_choice("mask-value", optarg, "train", "ignore", &chosen->mask.value);
    case 'O':
        return take_choice("mask-of", optarg, "token", "next", &chosen->mask.of);
    case 'k':
        return take_as(arguments, optarg);
    case 'g':
        arguments->globs[arguments->inputs.glob_count++] = optarg;
        return 0;
    default:
        return rp_cmd_misuse("convert", NULL);
    }
}

static int take_option(struct arguments *arguments, int option)
{
    struct rp_convert_options *chosen = &arguments->options;
    switch (option) {
    case 'F':
        chosen->force = true;
        return 0;
    case 'a':
        chosen->no_append_eos = false;
        return 0;
    case 'A':
        chosen->no_append_eos = true;
        return 0;
    case 'd':
        chosen->mask.name = "none";
        return 0;
    case 'M':
        chosen->merge = true;
        return 0;
    case 'S':
        chosen->tokenizer.special_tokens = true;
        return 0;
    case 'B':
        chosen->tokenizer.skip_bad = true;
        return 0;
    case 'q':
        chosen->quiet = true;
        return 0;
    case 'w':
        return take_workers(&chosen->workers, optarg);
    case 'p':
        return take_part(chosen, optarg);
    case 'v':
        return take_number("vocab-size", optarg, false, &chosen->vocab_size);
    case 'm':
        return take_number("min-bytes", optarg, true, &chosen->min_bytes);
    case 's':
        return take_number("split-bytes", optarg, true, &chosen->split_bytes);
    case 'n':
        return take_number("max-tokens", optarg, false, &chosen->max_tokens);
    case 'G':
        return take_number("group-bytes", optarg, true, &chosen->group_bytes);
    default:
        return take_word(arguments, option);
    }
}

static bool ends_in_name(const char *path)
{
    size_t length = strlen(path);
    return length > 0 && path[length - 1] != '/';
}

static int check_options(const struct rp_convert_options *chosen, int inputs)
{
    if (!chosen->output)
        return rp_cmd_misuse("convert", "expected -o PREFIX");
    if (!ends_in_name(chosen->output))
        return rp_cmd_misuse("convert", "-o: expected a PREFIX that ends in a name, found `%s`",
                             chosen->output);
    if (chosen->merge && chosen->parts)
        return rp_cmd_misuse("convert", "expected --part, or --merge when all parts are made");
    if (inputs == 0)
        return rp_cmd_misuse("convert", "expected at least one input");
    return RP_EXIT_FINE;
}

/* A folder stands for the tokenizer.json in it. The caller frees `made`. */
static int find_tokenizer(struct rp_tokenizer_choice *tokenizer, char **made,
                          struct rp_error *error)
{
    struct stat info;
    *made = NULL;
    if (!strcmp(tokenizer->name, "bytes") || stat(tokenizer->name, &info) < 0 ||
        !S_ISDIR(info.st_mode))
        return 0;
    size_t length = strlen(tokenizer->name);
    while (length > 1 && tokenizer->name[length - 1] == '/')
        length--;
    *made = rp_format("%.*s/tokenizer.json", (int)length, tokenizer->name);
    if (!*made)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a name");
    tokenizer->name = *made;
    if (access(*made, F_OK) == 0)
        return 0;
    return rp_fail(error, -errno, "save_pretrained() of a fast tokenizer writes it",
                   "%s: expected the folder of a tokenizer, found no tokenizer.json", *made);
}

static int run(struct arguments *arguments, char **paths, int path_count)
{
    struct rp_error error;
    char *tokenizer;
    rp_interrupt_catch();
    int code = find_tokenizer(&arguments->options.tokenizer, &tokenizer, &error);
    for (int i = 0; i < path_count && code == 0; i++)
        code = rp_inputs_add(&arguments->inputs, paths[i], &error);
    if (code == 0)
        code = rp_conversion_run(&arguments->options, &arguments->inputs, &error);
    rp_inputs_release(&arguments->inputs);
    free(tokenizer);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_convert(int argc, char **argv)
{
    struct arguments arguments = {.options.tokenizer.name = "bytes"};
    /* One per argument is more than enough. */
    arguments.globs = calloc((size_t)argc, sizeof *arguments.globs);
    arguments.inputs.globs = arguments.globs;
    int status = arguments.globs ? rp_cmd_check_getopt(options, argc, argv)
                                 : rp_cmd_misuse("convert", "out of memory");
    for (int option; status == RP_EXIT_FINE &&
                     (option = getopt_long(argc, argv, "o:qh", options, NULL)) != -1;) {
        if (option == 'h' || option == 'H') {
            fputs(option == 'h' ? rp_convert_help : rp_convert_help_all, stdout);
            free(arguments.globs);
            return RP_EXIT_FINE;
        }
        status = take_option(&arguments, option);
    }
    if (status == RP_EXIT_FINE)
        status = check_options(&arguments.options, argc - optind);
    if (status == RP_EXIT_FINE)
        status = run(&arguments, argv + optind, argc - optind);
    free(arguments.globs);
    return status;
}
