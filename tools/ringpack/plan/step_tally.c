/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/step_tally.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "cmd.h"
#include "plan/plan.h"
#include "plan/v2/spec.h"

#define FILLED_SHARE 0.02 /* share of steps filled by one document: a warning if more */

static uint64_t step_rows_max(const struct rp_config *config)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < config->batches.count; i++)
        most = rp_max_u64(most, config->batches.stages[i].step_rows);
    return most;
}

int rp_step_tally_open(struct rp_step_tally *tally, const struct rp_config *config,
                       const struct rp_corpus *corpus, const struct rp_plan *plan,
                       struct rp_error *error)
{
    uint32_t count = config->plan_partitions;
    if (config->stream_version == 2)
        for (count = 2; count < 2 * step_rows_max(config); count *= 2)
            continue;
    *tally = (struct rp_step_tally){.config = config,
                                    .corpus = corpus,
                                    .plan = plan,
                                    .document_count = count,
                                    .documents = rp_calloc(count, sizeof *tally->documents)};
    if (!tally->documents)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for the counts");
    return rp_numbering_open(&tally->numbering, config->batches.stages, config->batches.count,
                             error);
}

void rp_step_tally_close(struct rp_step_tally *tally)
{
    free(tally->documents);
    rp_numbering_close(&tally->numbering);
    tally->documents = NULL;
}

/* Version 2: the pool gives rows of many documents in turn. At most two fragments of a row have
 * half of its tokens, so the table has room for all rows of a step. */
static struct rp_step_document *place_of(const struct rp_step_tally *tally,
                                         const struct rp_fragment *fragment)
{
    uint64_t key[2] = {fragment->document, fragment->source};
    uint32_t last = tally->document_count - 1, at = (uint32_t)rp_hash64(key, sizeof key) & last;
    for (;; at = (at + 1) & last) {
        struct rp_step_document *place = &tally->documents[at];
        if (place->tokens == 0 ||
            (place->document == fragment->document && place->source == fragment->source))
            return place;
    }
}

/* A lane cuts one document after another, so its rows of one document follow each other. A document
 * that fits a row cannot fill a step. */
static void add_long(struct rp_step_tally *tally, const struct rp_row *row, uint32_t seq_len)
{
    bool is_version_1 = tally->config->stream_version == 1;
    for (uint32_t i = 0; i < row->count; i++) {
        const struct rp_fragment *fragment = &row->fragments[i];
        if (fragment->length < row->tokens - fragment->length)
            continue;
        struct rp_step_document *current =
            is_version_1 ? &tally->documents[row->row % tally->config->plan_partitions]
                         : place_of(tally, fragment);
        bool is_same = current->tokens > 0 && current->document == fragment->document &&
                       current->source == fragment->source;
        if (!is_same)
            *current = (struct rp_step_document){.document = fragment->document,
                                                 .source = fragment->source};
        current->tokens += fragment->length;
        if (current->tokens > seq_len)
            tally->largest = rp_max_u64(tally->largest, current->tokens);
    }
}

static void end_batch(struct rp_step_tally *tally)
{
    tally->step_unlabelled.batches += tally->batch_tokens > 0 && tally->batch_labels == 0;
    tally->batch_tokens = tally->batch_labels = 0;
}

/* is_run: the run makes this step. */
static void end_step(struct rp_step_tally *tally, bool is_run)
{
    if (is_run && tally->step_tokens > 0) {
        tally->steps++;
        tally->filled += 2 * tally->largest > tally->step_tokens;
        tally->largest_share += (double)tally->largest / (double)tally->step_tokens;
        tally->unlabelled.rows += tally->step_unlabelled.rows;
        tally->unlabelled.batches += tally->step_unlabelled.batches;
    }
    tally->step_unlabelled = (struct rp_step_counts){0};
    tally->step_tokens = tally->largest = 0;
    memset(tally->documents, 0, tally->document_count * sizeof *tally->documents);
}

static const struct rp_numbering_part *part_of(const struct rp_step_tally *tally, uint64_t row)
{
    return rp_numbering_of_row(&tally->numbering, row);
}

static uint64_t rows_of_rank(const struct rp_step_tally *tally,
                             const struct rp_numbering_part *part)
{
    return part->batch_rows / tally->config->dp_world_size;
}

/* A step begins at `row`. */
static void begin_step(struct rp_step_tally *tally, uint64_t row)
{
    const struct rp_numbering_part *part = part_of(tally, row);
    tally->step_end = row + part->step_rows;
    tally->batch_end = row + rows_of_rank(tally, part);
}

/* The step that begins at `row`. As flow/dispatch.c skips a step. */
static void count_run(struct rp_step_tally *tally, uint64_t row)
{
    const struct rp_numbering_part *part = part_of(tally, row);
    tally->run_steps++;
    if (rp_plan_skips(tally->plan, row, part->step_rows))
        tally->skipped_steps++;
    else
        tally->run_batches += rp_numbering_step_batches(part);
}

void rp_step_tally_add(struct rp_step_tally *tally, const struct rp_row *row, uint32_t seq_len,
                       uint64_t labels)
{
    if (tally->rows == 0) {
        rp_numbering_begin(&tally->numbering, row->row);
        begin_step(tally, row->row);
    }
    tally->step_unlabelled.rows += row->count > 0 && labels == 0;
    tally->batch_tokens += row->tokens;
    tally->batch_labels += labels;
    tally->step_tokens += row->tokens;
    add_long(tally, row, seq_len);
    tally->rows++;
    tally->next_row = row->row + 1;
    if (tally->next_row == tally->batch_end) {
        end_batch(tally);
        tally->batch_end += rows_of_rank(tally, part_of(tally, row->row));
    }
    if (tally->next_row == tally->step_end) {
        end_step(tally, true);
        count_run(tally, tally->step_end - part_of(tally, row->row)->step_rows);
        begin_step(tally, tally->next_row);
    }
}

void rp_step_tally_end(struct rp_step_tally *tally, bool is_complete)
{
    const struct rp_numbering_part *part = part_of(tally, tally->next_row);
    uint64_t begin = tally->step_end - part->step_rows, rest = tally->next_row - begin;
    bool is_run = !is_complete || !tally->config->drop_last;
    if (tally->rows == 0 || rest == 0)
        return;
    end_batch(tally);
    end_step(tally, is_run);
    if (is_run)
        count_run(tally, begin);
    if (is_complete && is_run && !rp_plan_skips(tally->plan, begin, part->step_rows))
        tally->padding_batches = (part->step_rows - rest) / rows_of_rank(tally, part);
}

/* As many lanes as a step has rows, and as every source has documents or blocks for. In version 2,
 * as much spread as a step has rows. */
static uint64_t spread_advised(const struct rp_step_tally *tally)
{
    const struct rp_config *config = tally->config;
    bool is_version_1 = config->stream_version == 1;
    RP_STATIC_ASSERT(RP_LANES_MAX == RP_SPREAD_MAX, "one bound for both versions");
    uint64_t lanes = rp_min_u64(step_rows_max(config), RP_LANES_MAX);
    for (uint32_t i = 0; i < config->source_count && is_version_1; i++) {
        uint64_t units = rp_source_documents(rp_corpus_source(tally->corpus, i));
        if (config->shuffle == RP_SHUFFLE_BLOCK)
            units = rp_div_up(units, config->block_documents);
        lanes = rp_min_u64(lanes, units);
    }
    return lanes;
}

static uint32_t spread_of(const struct rp_config *config)
{
    return config->stream_version == 1 ? config->plan_partitions : config->spread;
}

static bool are_filled(const struct rp_step_tally *tally)
{
    return (double)tally->filled > FILLED_SHARE * (double)tally->steps &&
           spread_advised(tally) > spread_of(tally->config);
}

static void print_filled(const struct rp_step_tally *tally)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES];
    printf("  warning: in %s of %s steps one document has more than half of the tokens (on "
           "average the largest has %.0f %%):\n           a document longer than a row fills "
           "rows that follow each other. ",
           rp_cmd_count_text(tally->filled, a), rp_cmd_count_text(tally->steps, b),
           100 * tally->largest_share / (double)tally->steps);
    if (tally->config->stream_version == 1)
        printf("`plan_partitions: %" PRIu64
               "` puts such rows\n           into different steps; it is "
               "fixed when a run begins (see mixtures.md)\n",
               spread_advised(tally));
    else
        printf("`spread: %" PRIu64 "` lets more such\n           documents alternate; a stage may "
               "set it (see stages.md)\n",
               spread_advised(tally));
}

void rp_step_tally_print(const struct rp_step_tally *tally)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES];
    if (tally->unlabelled.rows)
        printf("  %-20s%s rows and %s micro-batches without a label: nothing is trained in them\n",
               "no label", rp_cmd_count_text(tally->unlabelled.rows, a),
               rp_cmd_count_text(tally->unlabelled.batches, b));
    if (tally->unlabelled.batches)
        puts("  warning: the mean of the loss of a micro-batch without a label is 0/0: guard it "
             "(`tokens_loss` counts the labels)");
    if (tally->skipped_steps)
        printf("  %-20s%s steps: all their rows are left out, and no batch is delivered (skip)\n",
               "skipped", rp_cmd_count_text(tally->skipped_steps, a));
    if (tally->padding_batches)
        printf("  warning: %s micro-batches of the last step have no label: they are all padding, "
               "after the end of the stream; guard the\n           mean of the loss, or leave that "
               "step out with `drop_last: true`\n",
               rp_cmd_count_text(tally->padding_batches, a));
    if (are_filled(tally))
        print_filled(tally);
}

void rp_step_tally_json(const struct rp_step_tally *tally, json_t *report)
{
    double mean = tally->steps ? tally->largest_share / (double)tally->steps : 0;
    json_t *fields = json_pack(
        "{sI sI sI sI sI sI sf sI}", "batches", (json_int_t)tally->run_batches, "steps_skipped",
        (json_int_t)tally->skipped_steps, "rows_without_label", (json_int_t)tally->unlabelled.rows,
        "batches_without_label", (json_int_t)tally->unlabelled.batches, "padding_batches",
        (json_int_t)tally->padding_batches, "steps_of_one_document", (json_int_t)tally->filled,
        "largest_document_share", mean,
        tally->config->stream_version == 1 ? "lanes_advised" : "spread_advised",
        (json_int_t)(are_filled(tally) ? spread_advised(tally) : spread_of(tally->config)));
    json_object_update(report, fields);
    json_decref(fields);
}
