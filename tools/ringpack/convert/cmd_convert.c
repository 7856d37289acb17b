/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_convert — `ringpack convert INPUT... -o PREFIX`: the options, and the loop over the files. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/text.h"
#include "cmd.h"
#include "cmd_options.h"
#include "convert/convert.h"
#include "interrupt.h"

static const char help[] =
    "usage: ringpack convert [options] -o PREFIX INPUT...\n\n"
    "Turn text files, directories of them, and JSONL into PREFIX.bin and PREFIX.idx (Megatron),\n"
    "with the sidecar of `ringpack index`. A document is one file, or one line of a JSONL file\n"
    "with `text`, `tokens` or `input_ids`. Inputs may be gzip. In a directory, what is no UTF-8\n"
    "text is skipped and counted. The order is that of the inputs, and bytewise by path within a\n"
    "directory. Nothing is left when it fails.\n\n"
    "  -o, --output PREFIX  what to write\n"
    "  --force              replace PREFIX.bin and PREFIX.idx\n"
    "  --tokenizer T        bytes (default: UTF-8 bytes, vocabulary 257, EOS 256), or the path of\n"
    "                       a Hugging Face tokenizer.json (needs the Python package `tokenizers`)\n"
    "  --eos ID|TOKEN       the token that ends a document (default: the tokenizer's)\n"
    "  --no-append-eos      do not append it (default: --append-eos)\n"
    "  --drop-labels        of lines whose `labels` or masks leave tokens out, convert\n"
    "                       the ids: every token is trained on (default: they are refused)\n"
    "  --vocab-size N       of the tokenizer that made `tokens`; from 65500 on they become i32\n"
    "  --as text|jsonl      what the inputs are (default: jsonl for *.jsonl, *.ndjson, also .gz)\n"
    "  --glob PATTERN       in directories, take only files whose name matches; may be repeated\n"
    "  --min-bytes N        skip files and texts of fewer bytes\n"
    "  --split-bytes N      cut text files into documents at line ends, of about N bytes\n"
    "  --max-tokens N       stop after the document that reaches N tokens\n"
    "  -q, --quiet          no progress and no summary\n";

struct arguments {
    const char *output, *tokenizer, *eos;
    const char **globs;
    size_t glob_count;
    uint64_t vocab_size, min_bytes, split_bytes, max_tokens;
    bool force, no_append_eos, drop_labels, quiet;
    int as; /* 0 by name, 't' text, 'j' JSONL */
};

static bool is_jsonl(const struct arguments *arguments, const char *path)
{
    if (arguments->as)
        return arguments->as == 'j';
    return rp_text_has_suffix(path, ".jsonl") || rp_text_has_suffix(path, ".ndjson") ||
           rp_text_has_suffix(path, ".jsonl.gz") || rp_text_has_suffix(path, ".ndjson.gz");
}

static int convert_files(struct rp_convert *convert, const struct arguments *arguments,
                         const struct rp_inputs *inputs, struct rp_cmd_progress *progress,
                         struct rp_error *error)
{
    uint64_t done = 0;
    int code = 0;
    for (size_t i = 0; i < inputs->count && code == 0; i++) {
        const struct rp_input *input = &inputs->files[i];
        code = is_jsonl(arguments, input->path) ? rp_convert_jsonl(convert, input, error)
                                                : rp_convert_text(convert, input, error);
        done += input->bytes;
        rp_cmd_progress(progress, done, inputs->bytes);
        if (code == 0)
            code = rp_interrupt_check(RP_CONVERT_IS_SAFE, error);
    }
    if (code == 0)
        code = rp_tokenizer_flush(&convert->tokenizer, error);
    return code < 0 ? code : 0;
}

static int check_found(const struct rp_convert *convert, const struct rp_inputs *inputs,
                       struct rp_error *error)
{
    if (convert->output.documents > 0)
        return 0;
    const struct rp_counts *counts = &convert->counts;
    return rp_fail(error, -RP_E_EMPTY, "check the inputs, --glob and --min-bytes",
                   "no document in %zu files (%" PRIu64 " binary, %" PRIu64 " not UTF-8, %" PRIu64
                   " too small, %" PRIu64 " unreadable)",
                   inputs->count, counts->binary, counts->not_utf8, counts->too_small,
                   counts->unreadable + inputs->unreadable);
}

/* The vocabulary decides the dtype, so it must be known before the first token. */
static int settle_tokens(struct rp_convert *convert, const struct arguments *arguments,
                         struct rp_error *error)
{
    const struct rp_tokenizer *tokenizer = &convert->tokenizer;
    convert->eos = tokenizer->eos;
    convert->append_eos = !arguments->no_append_eos;
    convert->eos_declared = arguments->eos != NULL;
    if (convert->append_eos && convert->eos < 0)
        return rp_fail(error, -RP_E_USAGE, "give --eos, a token or its id, or --no-append-eos",
                       "%s: which of its tokens ends a document is not clear",
                       arguments->tokenizer);
    convert->vocab_size = arguments->vocab_size ? arguments->vocab_size : tokenizer->vocab_size;
    if (convert->append_eos && (uint64_t)convert->eos >= convert->vocab_size)
        return rp_fail(
            error, -RP_E_VOCABULARY, "give --vocab-size N, and the --eos that belongs to it",
            "--eos%s: expected less than %" PRIu64 ", found %" PRId64,
            arguments->eos ? "" : " (the tokenizer's)", convert->vocab_size, convert->eos);
    return 0;
}

static void print_summary(const struct rp_convert *convert, const struct rp_inputs *inputs,
                          const char *prefix, double seconds)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES], d[RP_CMD_TEXT_BYTES];
    const struct rp_counts *counts = &convert->counts;
    printf("%s.bin: %s tokens (%s) in %s documents from %s files, %.1f s\n", prefix,
           rp_cmd_count_text(convert->output.token_count, a), convert->output.wide ? "i32" : "u16",
           rp_cmd_count_text(convert->output.documents, b), rp_cmd_count_text(counts->files, c),
           seconds);
    uint64_t unreadable = counts->unreadable + inputs->unreadable;
    if (counts->binary + counts->not_utf8 + counts->too_small + unreadable > 0)
        printf("skipped: %s binary, %s not UTF-8, %s too small, %s unreadable\n",
               rp_cmd_count_text(counts->binary, a), rp_cmd_count_text(counts->not_utf8, b),
               rp_cmd_count_text(counts->too_small, c), rp_cmd_count_text(unreadable, d));
}

static int convert_inputs(struct rp_convert *convert, const struct arguments *arguments,
                          const struct rp_inputs *inputs, struct rp_error *error)
{
    struct rp_cmd_progress progress;
    uint64_t started_ns = rp_now_ns();
    int code = rp_tokenizer_open(&convert->tokenizer, arguments->tokenizer, arguments->eos,
                                 rp_convert_sink, convert, error);
    if (code < 0)
        return code;
    code = settle_tokens(convert, arguments, error);
    if (code == 0)
        code = rp_output_open(&convert->output, arguments->output, convert->vocab_size,
                              arguments->force, error);
    if (code == 0) {
        rp_cmd_progress_begin(&progress, "converting", true);
        progress.shown &= !arguments->quiet;
        code = convert_files(convert, arguments, inputs, &progress, error);
        rp_cmd_progress_end(&progress);
    }
    if (code == 0)
        code = check_found(convert, inputs, error);
    if (code == 0)
        code = rp_output_publish(&convert->output, error);
    if (code == 0 && !arguments->quiet)
        print_summary(convert, inputs, arguments->output, (double)(rp_now_ns() - started_ns) / 1e9);
    rp_tokenizer_close(&convert->tokenizer);
    rp_output_discard(&convert->output);
    return code;
}

static int run(const struct arguments *arguments, char **paths, int path_count)
{
    struct rp_convert convert = {
        .output.tokens.fd = -1,
        .tokenizer.socket = -1,
        .drop_labels = arguments->drop_labels,
        .min_bytes = arguments->min_bytes,
        .split_bytes = arguments->split_bytes,
        .max_tokens = arguments->max_tokens ? arguments->max_tokens : UINT64_MAX,
    };
    struct rp_inputs inputs = {0};
    struct rp_error error;
    rp_interrupt_catch();
    int code = 0;
    for (int i = 0; i < path_count && code == 0; i++)
        code = rp_inputs_add(&inputs, paths[i], arguments->globs, arguments->glob_count, &error);
    if (code == 0)
        code = convert_inputs(&convert, arguments, &inputs, &error);
    rp_inputs_release(&inputs);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

static int take_number(const char *option, const char *argument, bool bytes, uint64_t *value)
{
    if (bytes ? rp_text_bytes(argument, value) : rp_text_count(argument, value))
        return 0;
    return rp_cmd_misuse("convert", "--%s: expected a number, found `%s`", option, argument);
}

static int take_as(struct arguments *arguments, const char *argument)
{
    if (strcmp(argument, "text") && strcmp(argument, "jsonl"))
        return rp_cmd_misuse("convert", "--as: expected text or jsonl, found `%s`", argument);
    arguments->as = (unsigned char)argument[0];
    return 0;
}

static const struct option options[] = {
    {"output", required_argument, NULL, 'o'},
    {"force", no_argument, NULL, 'F'},
    {"tokenizer", required_argument, NULL, 't'},
    {"eos", required_argument, NULL, 'e'},
    {"append-eos", no_argument, NULL, 'a'},
    {"no-append-eos", no_argument, NULL, 'A'},
    {"drop-labels", no_argument, NULL, 'd'},
    {"vocab-size", required_argument, NULL, 'v'},
    {"as", required_argument, NULL, 'k'},
    {"glob", required_argument, NULL, 'g'},
    {"min-bytes", required_argument, NULL, 'm'},
    {"split-bytes", required_argument, NULL, 's'},
    {"max-tokens", required_argument, NULL, 'n'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static int take_option(struct arguments *arguments, int option)
{
    switch (option) {
    case 'o':
        arguments->output = optarg;
        return 0;
    case 'F':
        arguments->force = true;
        return 0;
    case 't':
        arguments->tokenizer = optarg;
        return 0;
    case 'e':
        arguments->eos = optarg;
        return 0;
    case 'a':
        arguments->no_append_eos = false;
        return 0;
    case 'A':
        arguments->no_append_eos = true;
        return 0;
    case 'd':
        arguments->drop_labels = true;
        return 0;
    case 'k':
        return take_as(arguments, optarg);
    case 'g':
        arguments->globs[arguments->glob_count++] = optarg;
        return 0;
    case 'v':
        return take_number("vocab-size", optarg, false, &arguments->vocab_size);
    case 'm':
        return take_number("min-bytes", optarg, true, &arguments->min_bytes);
    case 's':
        return take_number("split-bytes", optarg, true, &arguments->split_bytes);
    case 'n':
        return take_number("max-tokens", optarg, false, &arguments->max_tokens);
    case 'q':
        arguments->quiet = true;
        return 0;
    default:
        return rp_cmd_misuse("convert", NULL);
    }
}

static bool ends_in_name(const char *path)
{
    size_t length = strlen(path);
    return length > 0 && path[length - 1] != '/';
}

int rp_cmd_convert(int argc, char **argv)
{
    struct arguments arguments = {.tokenizer = "bytes"};
    /* One per argument is more than enough. */
    arguments.globs = calloc((size_t)argc, sizeof *arguments.globs);
    int status = arguments.globs ? rp_cmd_check_getopt(options, argc, argv)
                                 : rp_cmd_misuse("convert", "out of memory");
    for (int option; status == RP_EXIT_FINE &&
                     (option = getopt_long(argc, argv, "o:qh", options, NULL)) != -1;) {
        if (option == 'h') {
            fputs(help, stdout);
            free(arguments.globs);
            return RP_EXIT_FINE;
        }
        status = take_option(&arguments, option);
    }
    if (status == RP_EXIT_FINE && !arguments.output)
        status = rp_cmd_misuse("convert", "expected -o PREFIX");
    if (status == RP_EXIT_FINE && !ends_in_name(arguments.output))
        status = rp_cmd_misuse("convert", "-o: expected a PREFIX that ends in a name, found `%s`",
                               arguments.output);
    if (status == RP_EXIT_FINE && optind == argc)
        status = rp_cmd_misuse("convert", "expected at least one input");
    if (status == RP_EXIT_FINE)
        status = run(&arguments, argv + optind, argc - optind);
    free(arguments.globs);
    return status;
}
