/* SPDX-License-Identifier: Apache-2.0 */
/* tasks.c — where tasks begin, and how one is converted. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "convert/parts.h"
#include "corpus/staged_shard.h"
#include "corpus/corpus.h"
#include "corpus/spanfile.h"
#include "interrupt.h"

#define PIECE_BYTES_LEAST (1u << 20) /* small files stay whole, whatever --group-bytes says */

/* Megatron datasets are copied, not decoded: one task has all that follow each other. */
static bool belongs(const struct rp_task *task, const struct rp_input *input, uint64_t group_bytes)
{
    const struct rp_input *last = &task->inputs[task->count - 1];
    if (last->form->reading == RP_READ_MEGATRON && input->form->reading == RP_READ_MEGATRON)
        return true;
    return task->bytes + input->bytes <= group_bytes;
}

/* So many that workers of any number have something to do, so large that few parts are made. */
static uint64_t usual_group_bytes(uint64_t bytes)
{
    return rp_min_u64(rp_max_u64(bytes / 64, 16u << 20), 256u << 20);
}

int rp_tasks_make(struct rp_conversion *conversion, struct rp_error *error)
{
    const struct rp_convert_options *options = conversion->options;
    const struct rp_inputs *inputs = conversion->inputs;
    uint64_t group_bytes = options->group_bytes ? options->group_bytes
                                                : usual_group_bytes(inputs->bytes);
    uint64_t piece_bytes = rp_max_u64(group_bytes, PIECE_BYTES_LEAST);
    size_t count;
    conversion->pieces = rp_inputs_cut(inputs, options->tokenizer.skip_bad ? 0 : piece_bytes,
                                       &count);
    conversion->tasks = conversion->pieces ? rp_calloc(count, sizeof *conversion->tasks) : NULL;
    if (!conversion->tasks)
        return rp_fail(error, -ENOMEM, NULL, "no memory for %zu tasks", inputs->count);
    struct rp_task *task = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct rp_input *input = &conversion->pieces[i];
        if (!task || !belongs(task, input, group_bytes)) {
            task = &conversion->tasks[conversion->task_count++];
            task->inputs = input;
        }
        task->count++;
        task->bytes += input->bytes;
    }
    for (size_t i = 0; i < conversion->task_count; i++)
        conversion->tasks[i].mine = options->parts == 0 || i % options->parts == options->part;
    if (conversion->task_count <= 1 && options->parts == 0 && !options->merge)
        return 0;
    conversion->folder = rp_asprintf("%s.parts", options->output);
    return conversion->folder ? 0 : rp_fail(error, -ENOMEM, NULL, "no memory for a name");
}

bool rp_ends_are_wide(const struct rp_conversion *conversion)
{
    return (conversion->append_eos && conversion->eos >= RP_OUTPUT_IDS_NARROW) ||
           conversion->bos >= RP_OUTPUT_IDS_NARROW;
}

struct rp_convert rp_task_convert(struct rp_conversion *conversion)
{
    const struct rp_convert_options *options = conversion->options;
    return (struct rp_convert){
        .output.tokens.fd = -1,
        .tokenizer.worker.socket = -1,
        .vocab_size = conversion->vocab_size,
        .max_tokens = options->max_tokens ? options->max_tokens : UINT64_MAX,
        .min_bytes = options->min_bytes,
        .split_bytes = options->split_bytes,
        .column = options->column,
        .dtype = options->dtype,
        .eos = conversion->eos,
        .bos = conversion->bos,
        .append_eos = conversion->append_eos,
        .skip_bad = options->tokenizer.skip_bad,
        .text = conversion->text,
        .eos_declared = options->tokenizer.eos != NULL,
        .mask = options->mask,
        .sides = &options->sides,
        .prefix = options->output,
        .done_bytes = &conversion->done_bytes,
        .done_tokens = &conversion->done_tokens,
    };
}

static int convert_local(struct rp_convert *convert, const struct rp_input *input,
                         struct rp_error *error)
{
    switch (input->form->reading) {
    case RP_READ_TEXT:
        return rp_convert_text(convert, input, error);
    case RP_READ_JSONL:
    case RP_READ_JSON:
        return rp_convert_jsonl(convert, input, error);
    case RP_READ_MEGATRON:
        return rp_convert_megatron(convert, input, error);
    case RP_READ_WORKER:
        return rp_convert_documents(convert, input, error);
    case RP_READ_REFUSED:
        break;
    }
    return rp_fail(error, -RP_E_FORMAT, input->form->refusal, "%s: a `%s` file is not read",
                   input->path, input->form->name);
}

/* The mask of a copy of a Megatron data set is read from a sidecar, which is written next to it. */
static int index_mask(const char *tokens, struct rp_error *error)
{
    char *spans = rp_spanfile_path(tokens);
    bool is_there = spans && access(spans, F_OK) == 0;
    free(spans);
    return is_there ? rp_sidecar_build(tokens, NULL, error) : 0;
}

/* An object of a store is on this machine only while it is read. */
static int convert_file(struct rp_convert *convert, const struct rp_input *input,
                        struct rp_error *error)
{
    if (!input->url)
        return convert_local(convert, input, error);
    if (input->bytes == 0 && !input->named) { /* in a folder, the mark of a job that has ended */
        convert->counts.too_small++;
        return 0;
    }
    struct rp_staged_shard staged;
    char *place = rp_path_directory(convert->prefix);
    int code = place ? rp_staged_shard_open(&staged, input->url, NULL, place, NULL, error)
                     : rp_fail(error, -ENOMEM, NULL, "no memory for a name");
    free(place);
    if (code < 0)
        return code;
    struct rp_input local = *input;
    local.path = staged.path;
    if (local.form->reading == RP_READ_MEGATRON)
        code = index_mask(local.path, error);
    if (code == 0)
        code = convert_local(convert, &local, error);
    if (code == 0) /* the texts in the tokenizer are of this object, and messages name it */
        code = rp_tokenizer_flush(&convert->tokenizer, error);
    if (code < 0)
        code = rp_fail_context(error, code, "%s", input->path);
    convert->path = input->path;
    rp_staged_shard_close(&staged);
    return code;
}

static int convert_files(struct rp_convert *convert, const struct rp_task *task,
                         struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; i < task->count && code == 0; i++) {
        convert->told_bytes = 0;
        code = convert_file(convert, &task->inputs[i], error);
        if (code == 0)
            rp_convert_tell(convert, task->inputs[i].bytes);
        if (code == 0)
            code = rp_interrupt_check(RP_CONVERT_IS_SAFE, error);
    }
    if (code == 0)
        code = rp_tokenizer_flush(&convert->tokenizer, error);
    return code == RP_CONVERT_ENOUGH ? 0 : code;
}

static struct rp_task_part made_part(const struct rp_convert *convert)
{
    const struct rp_output *output = &convert->output;
    struct rp_counts counts = convert->counts;
    counts.special += convert->tokenizer.special;
    counts.bad += convert->tokenizer.bad;
    return (struct rp_task_part){
        .documents = output->documents,
        .tokens = output->token_count,
        .token_max = output->token_max,
        .wide = output->wide,
        .token_bytes = output->token_count * (output->wide ? 4 : 2),
        .index_bytes = RP_OUTPUT_INDEX_BYTES(output->documents),
        .counts = counts,
    };
}

/* Its spans and side columns. */
static int take_files(const struct rp_output *output, struct rp_task_part *made,
                      struct rp_error *error)
{
    int code = output->has_spans ? rp_hash_file(output->span_path, &made->spans, error) : 0;
    for (uint32_t i = 0; i < output->wanted->count && made->documents > 0 && code == 0; i++) {
        char *path = rp_sidefile_path(output->token_path, output->wanted->columns[i].name);
        code = path ? rp_hash_file(path, &made->sides[i], error)
                    : rp_fail(error, -ENOMEM, NULL, "no memory for a name");
        free(path);
    }
    return code;
}

/* Publish a part, or the output if it has a document. */
static int publish(struct rp_conversion *conversion, struct rp_convert *convert,
                   struct rp_task *task, struct rp_error *error)
{
    struct rp_hash128 content = task->made.content;
    task->made = made_part(convert);
    task->made.content = content;
    if (!conversion->folder && task->made.documents == 0)
        return 0;
    int code = rp_output_publish(&convert->output, error);
    task->made.token_hash = convert->output.token_hash;
    task->made.index_hash = convert->output.index_hash;
    if (code == 0 && conversion->folder)
        code = take_files(&convert->output, &task->made, error);
    if (code == 0 && conversion->folder)
        code = rp_part_save(conversion, task, error);
    task->finished = code == 0;
    return code;
}

static int run_once(struct rp_conversion *conversion, struct rp_convert *convert,
                    struct rp_task *task, const char *prefix, struct rp_error *error)
{
    convert->counts = (struct rp_counts){0};
    convert->told_tokens = 0;
    rp_tokenizer_forget(&convert->tokenizer);
    convert->queue.begin = convert->queue.end = 0;
    convert->tokenizer.special = convert->tokenizer.bad = 0;
    int code = rp_output_open(&convert->output, prefix, conversion->wide,
                              conversion->folder || conversion->options->force,
                              &conversion->options->sides, error);
    struct rp_hash128 content = {0};
    if (code == 0 && conversion->folder && rp_part_hash_inputs(task, &content, NULL) < 0)
        content = (struct rp_hash128){0}; /* reading it will report the error */
    if (code == 0)
        code = convert_files(convert, task, error);
    if (code == 0 && !conversion->folder)
        code = rp_origin_add(conversion, &convert->counts, &convert->output, error);
    if (code == 0)
        task->made.content = content;
    if (code == 0)
        code = publish(conversion, convert, task, error);
    rp_output_discard(&convert->output);
    return code;
}

/* Something is wrong in a piece of a file: say so again, with the numbers of lines in the file. */
static int run_with_lines(struct rp_conversion *conversion, struct rp_convert *convert,
                          struct rp_task *task, const char *prefix, int code,
                          struct rp_error *error)
{
    bool is_of_line = code == -RP_E_FORMAT || code == -RP_E_VOCABULARY || code == -RP_E_USAGE;
    struct rp_error again;
    if (!is_of_line || task->inputs->form->reading == RP_READ_WORKER ||
        rp_inputs_lines_before(task->inputs, &convert->line_base, &again) < 0)
        return code;
    int repeated = run_once(conversion, convert, task, prefix, &again);
    if (repeated >= 0)
        return rp_fail(error, -RP_E_CHANGED, "type the same command again",
                       "%s: it changed while it was read", task->inputs->path);
    *error = again;
    return repeated;
}

int rp_task_run(struct rp_conversion *conversion, struct rp_convert *convert, struct rp_task *task,
                struct rp_error *error)
{
    char *prefix = conversion->folder ? rp_part_path(conversion, task, NULL)
                                      : strdup(conversion->options->output);
    if (!prefix)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a name");
    int code = run_once(conversion, convert, task, prefix, error);
    if (code == RP_CONVERT_WIDER) {
        conversion->wide = true;
        code = run_once(conversion, convert, task, prefix, error);
    }
    RP_ASSERT(code <= 0);
    if (code < 0 && task->inputs->begin > 0 && !rp_interrupted())
        code = run_with_lines(conversion, convert, task, prefix, code, error);
    convert->line_base = 0;
    free(prefix);
    return code;
}

bool rp_tasks_enough(const struct rp_conversion *conversion)
{
    uint64_t tokens = 0, wanted = conversion->options->max_tokens;
    if (wanted == 0)
        return false;
    for (size_t i = 0; i < conversion->task_count && conversion->tasks[i].finished; i++)
        tokens += conversion->tasks[i].made.tokens;
    return tokens >= wanted;
}
