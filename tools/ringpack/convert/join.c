/* SPDX-License-Identifier: Apache-2.0 */
/* join.c — the parts become the output. Their order is the order of the tasks, and so of the
 * inputs. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "convert/parts.h"
#include "interrupt.h"

#define LENGTHS_OFFSET 34u
#define STEP_IDS (16u << 20) /* between two looks for Ctrl-C */

/* How many of its documents belong to the output: the one that reaches `wanted` is the last. */
static size_t documents_taken(const int32_t *lengths, uint64_t documents, uint64_t wanted,
                              uint64_t *tokens)
{
    size_t taken = 0;
    for (*tokens = 0; taken < documents && *tokens < wanted; taken++)
        *tokens += (uint64_t)lengths[taken];
    return taken;
}

/* The index has passed the check of its hash; yet it is a file that anything may have changed
 * since, and the tokens are read by it. */
static int check_lengths(const struct rp_task_part *made, const int32_t *lengths,
                         struct rp_error *error)
{
    uint64_t tokens = 0;
    bool fits = true;
    for (size_t i = 0; i < made->documents; i++) {
        fits = fits && lengths[i] >= 0;
        tokens += (uint64_t)lengths[i];
    }
    if (fits && tokens == made->tokens && tokens * (made->wide ? 4 : 2) == made->token_bytes)
        return 0;
    return rp_fail(error, -RP_E_CHANGED, "type the same command again: it makes the part again",
                   "the index of a part: expected %" PRIu64 " tokens, found %" PRIu64, made->tokens,
                   tokens);
}

/* In steps, so that Ctrl-C does not wait for terabytes; all lengths come with the first. */
static int append_part(struct rp_output *output, const struct rp_map *tokens,
                       const struct rp_map *index, const struct rp_task_part *made, uint64_t wanted,
                       struct rp_error *error)
{
    int32_t *lengths = calloc((size_t)made->documents + 1, sizeof *lengths);
    if (!lengths)
        return rp_fail(error, -ENOMEM, NULL, "no memory for an index of %" PRIu64 " documents",
                       made->documents);
    memcpy(lengths, index->data + LENGTHS_OFFSET, (size_t)made->documents * sizeof *lengths);
    uint64_t left;
    size_t documents = documents_taken(lengths, made->documents, wanted, &left);
    struct rp_ids ids = {.at = tokens->data, .width = made->wide ? 4 : 2};
    int code = check_lengths(made, lengths, error);
    while (code == 0 && (documents > 0 || left > 0)) {
        ids.count = (size_t)rp_min_u64(left, STEP_IDS);
        code = rp_interrupt_check(RP_CONVERT_IS_SAFE, error);
        if (code == 0)
            code = rp_output_append(output, lengths, documents, &ids, error);
        ids.at = (const uint8_t *)ids.at + ids.count * ids.width;
        left -= ids.count;
        documents = 0;
    }
    free(lengths);
    return code;
}

/* The spans of the documents of a part; documents from `first` on are in the output. */
static int append_spans(struct rp_output *output, struct rp_spanfile *file, size_t first,
                        struct rp_error *error)
{
    int code = 0;
    for (size_t d = first; d < output->documents && code == 0; d++) {
        const struct rp_span *spans;
        uint32_t count;
        code = rp_spanfile_next(file, (uint64_t)output->lengths[d], &spans, &count, error);
        if (code == 0)
            code = rp_output_mask(output, d, &file->origin, spans, count, error);
    }
    return code;
}

static int join_spans(struct rp_conversion *conversion, struct rp_output *output,
                      const struct rp_task *task, size_t first, struct rp_error *error)
{
    struct rp_spanfile file;
    char *path = rp_part_path(conversion, task, "spans");
    if (task->made.spans.bytes == 0 || !path) {
        free(path);
        return path || task->made.spans.bytes == 0
                   ? 0
                   : rp_fail(error, -RP_E_RESOURCE, NULL, "no memory for a name");
    }
    int code = rp_spanfile_open(&file, path, error);
    if (code == 0)
        code = rp_fail(error, -RP_E_CHANGED, "type the same command again: it makes the part again",
                       "%s: it is gone", path);
    if (code == 1)
        code = append_spans(output, &file, first, error);
    rp_spanfile_close(&file);
    free(path);
    return code < 0 ? rp_fail_context(error, code, "%s", task->inputs->path) : 0;
}

/* The entries of its first `tokens` tokens. */
static int append_side(struct rp_output *output, uint32_t i, const struct rp_side_file *file,
                       uint64_t tokens, struct rp_error *error)
{
    struct rp_entries entries = {.type = file->type, .at = file->map.data + RP_SIDE_DATA_OFFSET};
    int code = 0;
    do {
        entries.count = rp_min_u64(tokens, STEP_IDS);
        code = rp_interrupt_check(RP_CONVERT_IS_SAFE, error);
        if (code == 0)
            code = rp_output_side_append(output, i, &entries, error);
        entries.at += entries.count * entries.type.bytes;
        tokens -= entries.count;
    } while (tokens > 0 && code == 0);
    return code;
}

static int join_sides(struct rp_conversion *conversion, struct rp_output *output,
                      const struct rp_task *task, uint64_t tokens, struct rp_error *error)
{
    char *path = rp_part_path(conversion, task, "bin");
    int code = path ? 0 : rp_fail(error, -RP_E_RESOURCE, NULL, "no memory for a name");
    for (uint32_t i = 0; i < output->wanted->count && code == 0; i++) {
        struct rp_side_file file;
        code = rp_sidefile_open(&file, path, output->wanted->columns[i].name, error);
        if (code == 0 && file.entries != task->made.tokens)
            code = rp_fail(error, -RP_E_CHANGED,
                           "type the same command again: it makes the part again",
                           "%s: expected %" PRIu64 " entries, found %" PRIu64, file.path,
                           task->made.tokens, file.entries);
        if (code == 0)
            code = append_side(output, i, &file, tokens, error);
        rp_sidefile_close(&file);
    }
    free(path);
    return code < 0 ? rp_fail_context(error, code, "%s", task->inputs->path) : 0;
}

static int join_part(struct rp_conversion *conversion, struct rp_output *output,
                     const struct rp_task *task, uint64_t wanted, struct rp_error *error)
{
    struct rp_map tokens = {0}, index = {0};
    size_t first = output->documents;
    uint64_t before = output->token_count;
    char *token_path = rp_part_path(conversion, task, "bin");
    char *index_path = rp_part_path(conversion, task, "idx");
    int code = token_path && index_path
                   ? 0
                   : rp_fail(error, -RP_E_RESOURCE, NULL, "no memory for a name");
    if (code == 0)
        code = rp_map_open(&tokens, token_path, error);
    if (code == 0)
        code = rp_map_open(&index, index_path, error);
    if (code == 0 &&
        (tokens.bytes != task->made.token_bytes || index.bytes != task->made.index_bytes))
        code = rp_fail(error, -RP_E_CHANGED, "type the same command again: it makes the part again",
                       "%s: it changed while it was in use", token_path);
    if (code == 0)
        code = append_part(output, &tokens, &index, &task->made, wanted, error);
    if (code == -RP_E_CHANGED)
        code = rp_fail_context(error, code, "%s", index_path);
    if (code == 0)
        code = join_spans(conversion, output, task, first, error);
    if (code == 0)
        code = join_sides(conversion, output, task, output->token_count - before, error);
    rp_map_close(&tokens);
    rp_map_close(&index);
    free(token_path);
    free(index_path);
    return code;
}

static void add_counts(struct rp_counts *sum, const struct rp_counts *counts)
{
    uint64_t all[RP_COUNTS], more[RP_COUNTS];
    memcpy(all, sum, sizeof all);
    memcpy(more, counts, sizeof more);
    for (size_t i = 0; i < RP_COUNTS; i++)
        all[i] += more[i];
    memcpy(sum, all, sizeof all);
}

/* The type of the output follows from all ids, those that are put around documents among them, so
 * that it does not depend on who met the first that is too large for u16. */
static void sum_up(const struct rp_conversion *conversion, struct rp_task_part *joined)
{
    *joined = (struct rp_task_part){0};
    for (size_t i = 0; i < conversion->task_count && conversion->tasks[i].finished; i++) {
        const struct rp_task_part *made = &conversion->tasks[i].made;
        joined->documents += made->documents;
        joined->token_max = rp_max_u64(joined->token_max, made->token_max);
        add_counts(&joined->counts, &made->counts);
    }
    joined->wide = conversion->vocab_size
                       ? conversion->vocab_size > RP_OUTPUT_IDS_NARROW
                       : joined->token_max >= RP_OUTPUT_IDS_NARROW || rp_ends_are_wide(conversion);
}

int rp_parts_join(struct rp_conversion *conversion, struct rp_task_part *joined,
                  struct rp_error *error)
{
    const struct rp_convert_options *options = conversion->options;
    uint64_t wanted = options->max_tokens ? options->max_tokens : UINT64_MAX;
    struct rp_output output;
    sum_up(conversion, joined);
    if (joined->documents == 0)
        return 0;
    if (joined->counts.paired > 0 && joined->counts.paired != joined->documents)
        return rp_convert_fail_mixed(options->output, error);
    int code = rp_output_open(&output, options->output, joined->wide, options->force,
                              &options->sides, error);
    if (code == 0)
        code = rp_origin_add(conversion, &joined->counts, &output, error);
    for (size_t i = 0; i < conversion->task_count && code == 0; i++) {
        const struct rp_task *task = &conversion->tasks[i];
        if (output.token_count >= wanted)
            break;
        if (task->made.documents > 0)
            code = join_part(conversion, &output, task, wanted - output.token_count, error);
    }
    if (code == 0)
        code = rp_output_publish(&output, error);
    joined->documents = output.documents;
    joined->tokens = output.token_count;
    rp_output_discard(&output);
    return code;
}
