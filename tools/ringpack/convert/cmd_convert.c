/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_convert.c — `ringpack convert INPUT... -o PREFIX`: the options; conversion.c converts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "cmd.h"
#include "convert/parts.h"
#include "interrupt.h"
#include "options.h"

#define WORKERS_MAX 1024u
#define PARTS_MAX 1000000u

struct arguments {
    struct rp_cmd_line line;
    struct rp_convert_options options;
    struct rp_inputs inputs;
    const char **globs; /* [inputs.glob_count] */
};

static bool take_form(const char *text, void *place)
{
    const struct rp_form **form = place;
    return (*form = rp_form_named(text)) != NULL;
}

static bool take_glob(const char *text, void *place)
{
    struct arguments *arguments = place;
    const char **glob = RP_APPEND(arguments->globs, arguments->inputs.glob_count);
    if (!glob)
        return false;
    *glob = text;
    arguments->inputs.globs = arguments->globs;
    return true;
}

static bool take_part(const char *text, void *place)
{
    struct rp_convert_options *options = place;
    char first[24];
    const char *slash = strchr(text, '/');
    uint64_t part = 0, parts = 0;
    size_t length = slash ? (size_t)(slash - text) : 0;
    if (!slash || length >= sizeof first)
        return false;
    memcpy(first, text, length);
    first[length] = 0;
    bool is_fine = rp_text_u64(first, &part) && rp_text_u64(slash + 1, &parts);
    options->part = (uint32_t)part;
    options->parts = (uint32_t)parts;
    return is_fine && part < parts && parts <= PARTS_MAX;
}

static bool take_append_eos(const char *text, void *place)
{
    (void)text;
    *(bool *)place = false;
    return true;
}

static bool take_drop_labels(const char *text, void *place)
{
    (void)text;
    *(const char **)place = "none";
    return true;
}

static const struct rp_option own_options[] = {
    {RP_LOCAL("output", "PREFIX", struct arguments, options.output), .letter = 'o',
     .help = "the files to write: PREFIX.bin, PREFIX.idx"},
    {RP_FLAG("force", struct arguments, options.force), .help = "replace an existing output",
     .more = "PREFIX.bin, .idx, .spans, .tokens.json, PREFIX.bin.rpi and the side columns that are "
             "made; it is refused if there is another side column."},
    {RP_TEXT("tokenizer", "T", struct arguments, options.tokenizer.name),
     .given = offsetof(struct arguments, options.tokenizer_given),
     .help = "a tokenizer.json, the folder that has it, or bytes",
     .more =
         "Of Hugging Face; it needs the package `tokenizers`; bytes: UTF-8 bytes, vocabulary 257, "
         "EOS 256. Text needs it; files of text and JSONL become bytes without."},
    {RP_TEXT("column", "NAME", struct arguments, options.column),
     .help = "the column of ids, text or messages",
     .more = "Default: input_ids, tokens, the only column of integer lists, or text; without a "
             "`text`, before the lists, `prompt` with `completion`, `messages`, or `chosen` with "
             "`rejected`, a pair of neighbouring documents."},
    {RP_TAKE("as", "FORM", struct arguments, inputs.as, take_form),
     .expected = "a form, for instance jsonl",
     .help = "form of the inputs (default: by their names)"},
    {RP_TAKE("glob", "PATTERN", struct arguments, line, take_glob), .expected = "a pattern",
     .help = "take only such files of directories; may be repeated"},
    {RP_CHOICE("dtype", "T", struct arguments, options.dtype), .expected = "u16, u32, i32 or i64",
     .help = "u16, u32, i32 or i64: of ids that are stored as bytes",
     .more = "In columns of bytes (mds, litdata, tfrecord) or in bare records (arrayrecord)."},
    {RP_COUNT("vocab-size", "N", struct arguments, options.vocab_size),
     .help = "refuse ids that are not below N",
     .more = "The vocabulary of the tokenizer that made the ids. From 65500 on they become i32 "
             "(default: the largest id decides, for forms other than text and jsonl)."},
    {RP_TEXT("eos", "ID|TOKEN", struct arguments, options.tokenizer.eos),
     .help = "the token that ends a document",
     .more = "Default: the tokenizer's. Rows of ids need it, or --no-append-eos."},
    {RP_FLAG("no-append-eos", struct arguments, options.no_append_eos), .help = "do not append it"},
    {RP_TAKE("append-eos", NULL, struct arguments, options.no_append_eos, take_append_eos),
     .help = "append it (default)"},
    {RP_TEXT("bos", "ID|TOKEN", struct arguments, options.tokenizer.bos),
     .help = "the token that begins each document",
     .more = "It is put before each document that does not begin with it."},
    {RP_FLAG("special-tokens", struct arguments, options.tokenizer.special_tokens),
     .help = "names of special tokens in a text become those tokens",
     .more = "For instance <|endoftext|> (default: it is text as any other; templates of chats "
             "write special tokens all the same)."},
    {RP_TEXT("mask", "NAME", struct arguments, options.mask.name),
     .help = "the column that marks trained tokens, or none",
     .more = "Default: labels, completion_mask, assistant_masks or loss_mask."},
    {RP_CHOICE("mask-value", "V", struct arguments, options.mask.value),
     .expected = "train or ignore",
     .help = "train or ignore: the meaning of an entry that is not 0"},
    {RP_CHOICE("mask-of", "W", struct arguments, options.mask.of), .expected = "token or next",
     .help = "entry i is about token i (default) or next: i + 1"},
    {RP_TAKE("drop-labels", NULL, struct arguments, options.mask.name, take_drop_labels),
     .help = "the same as --mask none: every token is trained"},
    {RP_TAKE("side-column", "NAME=FIELD[:TYPE]", struct arguments, options.sides,
             rp_convert_sides_option),
     .expected = "NAME=FIELD or NAME=FIELD:TYPE, at most 6 times, with a type of " RP_COLUMN_TYPES,
     .help = "a side column of the lists or numbers of a field; may be repeated",
     .more = "PREFIX.NAME.col: a list with a value, or a list of values, for each id, or a number "
             "for all tokens, of jsonl, parquet, arrow and lance. TYPE: " RP_COLUMN_TYPES
             " (default: of JSON f32, else the field's). Tokens that --eos and --bos put around a "
             "document have zeros, or its number."},
    {RP_FLAG("skip-bad", struct arguments, options.tokenizer.skip_bad),
     .help = "leave out and count rows and lines that are refused"},
    {RP_BYTES("min-bytes", "N", struct arguments, options.min_bytes),
     .help = "skip files and texts of fewer bytes"},
    {RP_BYTES("split-bytes", "N", struct arguments, options.split_bytes),
     .help = "cut text files at line ends into about N bytes"},
    {RP_COUNT("max-tokens", "N", struct arguments, options.max_tokens),
     .help = "stop after the document that reaches N tokens"},
    {RP_COUNT("workers", "N", struct arguments, options.workers), .least = 1, .most = WORKERS_MAX,
     .help = "groups at a time (default: one a CPU, at most 8)"},
    {RP_BYTES("group-bytes", "N", struct arguments, options.group_bytes),
     .help = "bytes of input in a group",
     .more = "Default: 16m to 256m, by the size of all inputs."},
    {RP_TAKE("part", "I/N", struct arguments, options, take_part),
     .expected = "I/N with 0 <= I < N", .help = "make every N-th part, from the I-th on",
     .more = "N machines that share the directory of PREFIX do one conversion together, each with "
             "another I."},
    {RP_FLAG("merge", struct arguments, options.merge),
     .help = "only join the parts that all machines have made"},
    {RP_FLAG("quiet", struct arguments, options.quiet), .letter = 'q',
     .help = "no progress and no summary"},
    {.kind = RP_OPTION_HELP_ALL,
     .name = "help-all",
     .help = "this help with all forms, and more of each option"},
    {0},
};

static bool ends_in_name(const char *path)
{
    size_t length = strlen(path);
    return length > 0 && path[length - 1] != '/';
}

static int check(void *argument)
{
    const struct arguments *arguments = argument;
    const struct rp_convert_options *chosen = &arguments->options;
    if (!chosen->output)
        return rp_cmd_misuse("convert", "expected -o PREFIX");
    if (!ends_in_name(chosen->output))
        return rp_cmd_misuse("convert", "-o: expected a PREFIX that ends in a name, found `%s`",
                             chosen->output);
    if (chosen->merge && chosen->parts)
        return rp_cmd_misuse("convert", "expected --part, or --merge when all parts are made");
    for (uint32_t i = 0; i < chosen->sides.count; i++) {
        const char *name = chosen->sides.columns[i].name;
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(chosen->sides.columns[k].name, name))
                return rp_cmd_misuse("convert", "column `%s` is given twice", name);
        int status = rp_wanted_check_name("convert", name);
        if (status != RP_EXIT_FINE)
            return status;
    }
    return RP_EXIT_FINE;
}

static int run(struct arguments *arguments)
{
    struct rp_error error;
    char *tokenizer;
    rp_interrupt_catch();
    int code = rp_tokenizer_find(&arguments->options.tokenizer.name, &tokenizer, &error);
    for (size_t i = 0; i < arguments->line.count && code == 0; i++)
        code = rp_inputs_add(&arguments->inputs, arguments->line.words[i], &error);
    if (code == 0)
        code = rp_conversion_run(&arguments->options, &arguments->inputs, &error);
    rp_inputs_release(&arguments->inputs);
    free(tokenizer);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

/* The end of --help-all. */
static const char forms[] =
    "Documents keep the order of the inputs, and within a directory the order of its own list of "
    "files (MDS, litData, datasets), or bytewise by path. The result depends neither on the number "
    "of workers nor on the parts. An input may be the URL of an object, of a pattern, or of a "
    "folder, which ends with a slash; each object is kept next to PREFIX while it is read.\n\n"
    "  form         files                                     the Python package that reads it\n"
    "  text         any other file; .gz .zst; UTF-8           (.zst: zstandard)\n"
    "  jsonl        .jsonl .ndjson .json, also .gz .zst; a line has `text`, `tokens`,\n"
    "               `input_ids`, `prompt` and `completion`, `chosen` and `rejected`, or\n"
    "               `messages`; a .json file that is one value over many lines needs --as text\n"
    "               (messages: transformers)\n"
    "  megatron     .bin with its .idx, or the prefix\n"
    "  parquet      .parquet .pq; columns as in jsonl         pyarrow\n"
    "  arrow        .arrow .feather .ipc, save_to_disk        pyarrow\n"
    "  mds          .mds, also compressed; its directory      (zstandard, brotli, ...)\n"
    "  litdata      the directory with its index.json         (zstandard)\n"
    "  hdf5         .h5 .hdf5, Cerebras' layout too           h5py\n"
    "  tar          WebDataset: .npy, .json, .txt members\n"
    "  tfrecord     .tfrecord .tfrecords, also .gz            tfrecord\n"
    "  arrayrecord  .array_record .arrayrecord                array_record, tfrecord\n"
    "  lance        DIRECTORY.lance                           pylance\n"
    "  levanter     the directory with its shard_ledger.json  tensorstore\n\n"
    "Files are converted in groups, each to a part in PREFIX.parts (large JSONL and Parquet in "
    "pieces), and the parts are joined at the end. The disk needs room for the tokens twice. After "
    "an interruption, a part that is finished and unchanged is not made again.";

int rp_cmd_convert(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "convert",
        .usage = "-o PREFIX INPUT...",
        .help =
            "Turn files, folders or URLs of text or of token ids into PREFIX.bin and PREFIX.idx "
            "(Megatron), with the sidecar of `ringpack index`. A document is one text file, or "
            "one row or line of any other form. The same inputs and options make the same bytes. "
            "After a crash, a full disk or Ctrl-C, the same command continues. Forms: text, jsonl, "
            "megatron, parquet, arrow, mds, litdata, hdf5, tar, tfrecord, arrayrecord, lance, "
            "levanter.",
        .all = forms,
        .options = own_options,
        .words_least = 1,
        .words_most = SIZE_MAX,
        .expected = "at least one input",
        .check = check};
    struct arguments arguments = {.options.tokenizer.name = "bytes"};
    int status = rp_cmd_parse(&verb, argc, argv, &arguments);
    if (status == RP_EXIT_FINE)
        status = run(&arguments);
    free(arguments.globs);
    for (uint32_t i = 0; i < arguments.options.sides.count; i++)
        free(arguments.options.sides.columns[i].name);
    return status;
}
