/* SPDX-License-Identifier: Apache-2.0 */
/* conversion.c — a conversion from its start to its end: checks before the first token, parts that
 * are there already, converting, joining, and the summary. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cmd.h"
#include "convert/parts.h"

static bool all_are(const struct rp_inputs *inputs, enum rp_reading first, enum rp_reading last)
{
    for (size_t i = 0; i < inputs->count; i++)
        if (inputs->files[i].form->reading < first || inputs->files[i].form->reading > last)
            return false;
    return true;
}

/* Everything but the inputs that decides the result of a task, as one hash. */
static int hash_choices(struct rp_conversion *conversion, struct rp_error *error)
{
    const struct rp_convert_options *options = conversion->options;
    char hex[RP_HASH_HEX_BYTES];
    struct rp_hashed_file file = {0};
    int code = strcmp(options->tokenizer.name, "bytes") == 0
                   ? 0
                   : rp_hash_file(options->tokenizer.name, &file, error);
    if (code < 0)
        return code;
    conversion->tokenizer_hash = file.hash;
    json_t *choices = json_pack(
        "{s:s, s:I, s:I, s:b, s:b, s:b, s:b, s:i, s:s?, s:s?, s:s?, s:I, s:I, s:I, s:I, s:s?, "
        "s:s?}",
        "tokenizer", rp_hash128_hex(conversion->tokenizer_hash, hex), "eos",
        (json_int_t)conversion->eos, "bos", (json_int_t)conversion->bos, "append_eos",
        conversion->append_eos, "eos_declared", options->tokenizer.eos != NULL, "special_tokens",
        options->tokenizer.special_tokens, "skip_bad", options->tokenizer.skip_bad, "text",
        (int)conversion->text, "mask", options->mask.name, "mask_value", options->mask.value,
        "mask_of", options->mask.of, "vocab_size", (json_int_t)conversion->vocab_size, "min_bytes",
        (json_int_t)options->min_bytes, "split_bytes", (json_int_t)options->split_bytes,
        "max_tokens", (json_int_t)options->max_tokens, "column", options->column, "dtype",
        options->dtype);
    int set = options->sides.count == 0
                  ? 0
                  : json_object_set_new(choices, "side_columns",
                                        rp_convert_sides_json(&options->sides));
    char *text = choices && set == 0 ? json_dumps(choices, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    json_decref(choices);
    if (!text)
        return rp_fail(error, -RP_E_USAGE, NULL,
                       "--column, --mask, --side-column: expected a name in UTF-8");
    conversion->made_of = rp_hash128(text, strlen(text));
    free(text);
    return 0;
}

static int check_end(const struct rp_conversion *conversion, const char *option, bool given,
                     int64_t id, struct rp_error *error)
{
    if (conversion->vocab_size == 0 || id < 0 || (uint64_t)id < conversion->vocab_size)
        return 0;
    return rp_fail(error, -RP_E_VOCABULARY,
                   "give --vocab-size N, and the --eos and --bos that belong to it",
                   "%s%s: expected less than %" PRIu64 ", found %" PRId64, option,
                   given ? "" : " (the tokenizer's)", conversion->vocab_size, id);
}

/* -1: no document gets one. */
static int64_t appended_eos(const struct rp_conversion *conversion)
{
    return conversion->append_eos ? conversion->eos : -1;
}

/* The vocabulary decides the type of the output where it is known before the first token. */
static int settle_tokens(struct rp_conversion *conversion, const struct rp_tokenizer *tokenizer,
                         struct rp_error *error)
{
    const struct rp_convert_options *options = conversion->options;
    bool all_text = all_are(conversion->inputs, RP_READ_TEXT, RP_READ_JSON);
    bool is_prose = all_are(conversion->inputs, RP_READ_TEXT, RP_READ_TEXT);
    bool copied = all_are(conversion->inputs, RP_READ_MEGATRON, RP_READ_MEGATRON);
    conversion->append_eos = !options->no_append_eos && (!copied || options->tokenizer.eos);
    conversion->eos = tokenizer->eos;
    conversion->bos = options->tokenizer.bos ? tokenizer->bos : -1;
    if (conversion->append_eos && conversion->eos < 0)
        return rp_fail(error, -RP_E_USAGE, "give --eos, a token or its id, or --no-append-eos",
                       "%s: which of its tokens ends a document is not clear",
                       options->tokenizer.name);
    if (options->vocab_size)
        conversion->vocab_size = options->vocab_size;
    else if (options->tokenizer_given || all_text)
        conversion->vocab_size = tokenizer->vocab_size;
    bool default_bytes = is_prose || (all_text && !options->vocab_size);
    conversion->tokenizer_known = options->tokenizer_given || default_bytes;
    conversion->text = options->tokenizer_given ? RP_TEXT_TOKENS
                       : default_bytes          ? RP_TEXT_BYTES
                                                : RP_TEXT_REFUSED;
    int64_t eos = appended_eos(conversion);
    if (conversion->vocab_size)
        conversion->wide = conversion->vocab_size > RP_OUTPUT_IDS_NARROW;
    else
        conversion->wide = rp_ends_are_wide(conversion);
    int code = check_end(conversion, "--eos", options->tokenizer.eos != NULL, eos, error);
    if (code == 0)
        code = check_end(conversion, "--bos", true, conversion->bos, error);
    return code == 0 ? hash_choices(conversion, error) : code;
}

static int refuse_existing(const struct rp_convert_options *options, struct rp_error *error)
{
    struct rp_output output;
    int code = rp_output_open(&output, options->output, false, options->force, &options->sides,
                              error);
    if (code == 0)
        rp_output_discard(&output);
    return code < 0
               ? code
               : rp_output_sides_check(options->output, &options->sides, options->force, error);
}

/* The parts that earlier runs, or other machines, have made. */
static void find_finished(struct rp_conversion *conversion)
{
    size_t found = 0;
    for (size_t i = 0; i < conversion->task_count && conversion->folder; i++) {
        struct rp_task *task = &conversion->tasks[i];
        if (task->mine)
            rp_part_check(conversion, task, conversion->options->merge);
        found += task->finished;
    }
    for (size_t i = 0; i < conversion->task_count; i++)
        if (conversion->tasks[i].mine && !conversion->tasks[i].finished)
            conversion->total_bytes += conversion->tasks[i].bytes;
    if (found > 0 && !conversion->options->merge && !conversion->options->quiet)
        fprintf(stderr, "ringpack: %zu of %zu parts are in %s already, finished and unchanged\n",
                found, conversion->task_count, conversion->folder);
}

static int check_all_finished(const struct rp_conversion *conversion, struct rp_error *error)
{
    size_t missing = 0, first = 0;
    for (size_t i = conversion->task_count; i-- > 0;)
        if (!conversion->tasks[i].finished && !conversion->tasks[i].changed) {
            missing++;
            first = i;
        }
    if (missing == 0 || rp_tasks_enough(conversion))
        return 0;
    return rp_fail(error, -RP_E_EMPTY,
                   "run --part I/N for each I with the same inputs and options, or give this "
                   "command without --merge: it makes the missing parts",
                   "%s: %zu of %zu parts are not there, or are of other inputs or options; the "
                   "first is %06zu, which begins with %s",
                   conversion->folder, missing, conversion->task_count, first,
                   conversion->tasks[first].inputs->path);
}

static int check_found(const struct rp_conversion *conversion, const struct rp_task_part *made,
                       struct rp_error *error)
{
    if (made->documents > 0)
        return 0;
    const struct rp_counts *counts = &made->counts;
    return rp_fail(error, -RP_E_EMPTY,
                   conversion->inputs->hidden ? "name hidden files, which directories leave out"
                                              : "check the inputs, --glob and --min-bytes",
                   "no document in %zu files (%" PRIu64 " binary, %" PRIu64 " not UTF-8, %" PRIu64
                   " too small, %" PRIu64 " unreadable)",
                   conversion->inputs->count, counts->binary, counts->not_utf8, counts->too_small,
                   counts->unreadable + conversion->inputs->unreadable);
}

/* Why the ids of the output are as wide as they are, where no vocabulary says it. */
static void print_reason(const struct rp_conversion *conversion, const struct rp_task_part *made)
{
    char count[RP_CMD_TEXT_BYTES];
    int64_t eos = appended_eos(conversion);
    bool is_eos = eos >= conversion->bos;
    if (made->token_max < RP_OUTPUT_IDS_NARROW && rp_ends_are_wide(conversion))
        printf("i32 because the %s is %" PRId64 "\n", is_eos ? "EOS" : "BOS",
               is_eos ? eos : conversion->bos);
    else
        printf("%s because the largest id is %s\n", made->wide ? "i32" : "u16",
               rp_cmd_count_text(made->token_max, count));
}

static void print_summary(const struct rp_conversion *conversion, const struct rp_task_part *made,
                          double seconds)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES], d[RP_CMD_TEXT_BYTES];
    const struct rp_counts *counts = &made->counts;
    const struct rp_inputs *inputs = conversion->inputs;
    printf("%s.bin: %s tokens (%s) in %s documents from %s files, %.1f s\n",
           conversion->options->output, rp_cmd_count_text(made->tokens, a),
           made->wide ? "i32" : "u16", rp_cmd_count_text(made->documents, b),
           rp_cmd_count_text(counts->files, c), seconds);
    if (conversion->vocab_size == 0)
        print_reason(conversion, made);
    uint64_t unreadable = counts->unreadable + inputs->unreadable;
    if (counts->binary + counts->not_utf8 + counts->too_small + unreadable > 0)
        printf("skipped: %s binary, %s not UTF-8, %s too small, %s unreadable\n",
               rp_cmd_count_text(counts->binary, a), rp_cmd_count_text(counts->not_utf8, b),
               rp_cmd_count_text(counts->too_small, c), rp_cmd_count_text(unreadable, d));
    if (counts->bad > 0)
        printf("left out: %s bad rows (--skip-bad)\n", rp_cmd_count_text(counts->bad, a));
    if (counts->special > 0)
        printf("special tokens: %s names of them in texts became %s\n",
               rp_cmd_count_text(counts->special, a),
               conversion->options->tokenizer.special_tokens
                   ? "tokens (--special-tokens)"
                   : "text; with --special-tokens they become tokens");
    if (inputs->links > 0)
        printf("left out: %s symbolic links in directories; name a link to read its file\n",
               rp_cmd_count_text(inputs->links, a));
    if (inputs->hidden > 0)
        printf("left out: %s hidden files and directories; name one to read it\n",
               rp_cmd_count_text(inputs->hidden, a));
    if (inputs->beside > 0)
        printf("left out: %s files of text next to files of records\n",
               rp_cmd_count_text(inputs->beside, a));
}

static void print_sides(const struct rp_convert_options *options)
{
    char type[RP_SIDE_TYPE_BYTES], *tokens = rp_asprintf("%s.bin", options->output);
    for (uint32_t i = 0; i < options->sides.count && tokens; i++) {
        struct rp_side_file file;
        if (rp_sidefile_open(&file, tokens, options->sides.columns[i].name, NULL) == 0) {
            rp_sidefile_type_text(&file.type, type);
            printf("%s: %s\n", file.path, type);
        }
        rp_sidefile_close(&file);
    }
    free(tokens);
}

/* All parts exist: write the output and its companion files. */
static int finish(struct rp_conversion *conversion, uint64_t started_ns, struct rp_error *error)
{
    struct rp_task_part made = conversion->tasks[0].made;
    int code = 0;
    if (conversion->folder)
        code = check_all_finished(conversion, error);
    if (code == 0 && conversion->folder)
        code = rp_parts_join(conversion, &made, error);
    if (code == 0)
        code = check_found(conversion, &made, error);
    conversion->joined = code == 0;
    if (code == 0 && conversion->folder)
        rp_parts_remove(conversion);
    if (code == 0 && made.counts.as_bytes > 0)
        fputs("ringpack: text became UTF-8 bytes, vocabulary 257, because no tokenizer was named\n"
              "  next: --tokenizer FOLDER of the model, or --tokenizer bytes if bytes are wanted\n",
              stderr);
    if (code == 0 && !conversion->options->quiet)
        print_summary(conversion, &made, (double)(rp_now_ns() - started_ns) / 1e9);
    if (code == 0 && !conversion->options->quiet)
        print_sides(conversion->options);
    return code;
}

static void print_part(const struct rp_conversion *conversion)
{
    const struct rp_convert_options *options = conversion->options;
    size_t mine = 0;
    for (size_t i = 0; i < conversion->task_count; i++)
        mine += conversion->tasks[i].mine;
    if (!options->quiet)
        printf("part %" PRIu32 "/%" PRIu32 ": %zu of %zu parts are finished in %s\n"
               "  next: when all machines are done, the same command with --merge, not --part\n",
               options->part, options->parts, mine, conversion->task_count, conversion->folder);
}

/* After a failure: name the finished parts, which the next call reuses. */
static void print_kept(const struct rp_conversion *conversion)
{
    size_t finished = 0;
    for (size_t i = 0; i < conversion->task_count; i++)
        finished += conversion->tasks[i].finished;
    if (!conversion->folder || conversion->options->merge)
        return;
    if (finished > 0)
        fprintf(
            stderr,
            "ringpack: %zu of %zu parts are finished and kept in %s; the same command continues "
            "from there\n",
            finished, conversion->task_count, conversion->folder);
}

/* For --merge: parts whose inputs have changed since are made again, if no other is missing. */
static int find_changed(struct rp_conversion *conversion, struct rp_error *error)
{
    size_t changed = 0;
    for (size_t i = 0; i < conversion->task_count; i++) {
        struct rp_task *task = &conversion->tasks[i];
        task->mine = task->changed && !task->finished;
        changed += task->mine;
    }
    int code = check_all_finished(conversion, error);
    if (code == 0 && changed > 0)
        fprintf(stderr,
                "ringpack: %zu of %zu parts in %s are made again: their inputs have changed\n",
                changed, conversion->task_count, conversion->folder);
    return code;
}

static int convert_all(struct rp_conversion *conversion, struct rp_convert *first,
                       uint64_t started_ns, struct rp_error *error)
{
    const struct rp_convert_options *options = conversion->options;
    int code = options->parts == 0 ? refuse_existing(options, error) : 0;
    if (code < 0)
        return code;
    find_finished(conversion);
    if (options->merge)
        code = find_changed(conversion, error);
    if (code == 0)
        code = rp_pool_run(conversion, first, error);
    if (code == 0 && options->parts > 0)
        print_part(conversion);
    else if (code == 0)
        code = finish(conversion, started_ns, error);
    if (code < 0)
        print_kept(conversion);
    return code;
}

/* True if the parts are joined, or if none is finished and --merge was not given. */
static bool is_unused(const struct rp_conversion *conversion)
{
    for (size_t i = 0; i < conversion->task_count && !conversion->joined; i++)
        if (conversion->tasks[i].finished || conversion->options->merge)
            return false;
    return true;
}

int rp_conversion_run(const struct rp_convert_options *options, const struct rp_inputs *inputs,
                      struct rp_error *error)
{
    struct rp_conversion conversion = {.options = options, .inputs = inputs, .lock = -1};
    struct rp_convert first;
    struct rp_tokenizer tokenizer;
    uint64_t started_ns = rp_now_ns();
    if (inputs->count == 0)
        return check_found(&conversion, &(struct rp_task_part){0}, error);
    int code = rp_convert_sides_check(&options->sides, inputs, error);
    if (code == 0)
        code = rp_tokenizer_open(&tokenizer, &options->tokenizer, 0, rp_convert_sink, &first,
                                 error);
    if (code < 0)
        return code;
    code = settle_tokens(&conversion, &tokenizer, error);
    first = rp_task_convert(&conversion);
    first.tokenizer = tokenizer;
    if (code == 0)
        code = rp_tasks_make(&conversion, error);
    if (code == 0)
        code = rp_parts_take(&conversion, error);
    if (code == 0)
        code = convert_all(&conversion, &first, started_ns, error);
    rp_parts_give_back(&conversion, is_unused(&conversion));
    rp_tokenizer_close(&first.tokenizer);
    free(conversion.tasks);
    free(conversion.pieces);
    free(conversion.folder);
    return code;
}
