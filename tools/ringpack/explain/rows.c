/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c — from a planned row to the provenance of its fragments. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "explain/explain.h"
#include "flow/ticket.h"
#include "plan/stages.h"

static void free_texts(struct rp_row_maker *maker)
{
    for (uint32_t i = 0; i < maker->part_count; i++) {
        free(maker->parts[i].text);
        free(maker->parts[i].ids);
    }
    maker->part_count = 0;
}

void rp_explain_free(struct rp_row_maker *maker)
{
    free_texts(maker);
    free(maker->parts);
    maker->parts = NULL;
    rp_last_step_free(&maker->last);
}

static int make_room(struct rp_row_maker *maker, uint32_t count, struct rp_error *error)
{
    free_texts(maker);
    if (!RP_GROW(maker->parts, maker->capacity, count))
        return rp_fail(error, -ENOMEM, NULL, "no memory for a row of %" PRIu32 " fragments", count);
    return 0;
}

/* The side columns of the fragment, whose first own token is `first_own` tokens into `extent`. */
static int find_columns(const struct rp_row_maker *maker, struct rp_explained *part,
                        const struct rp_extent *extent, uint64_t first_own, struct rp_error *error)
{
    const struct rp_corpus *corpus = maker->walk->corpus;
    const struct rp_sides *sides = rp_corpus_sides(corpus);
    int code = 0;
    for (uint32_t c = 0; c < sides->all && code == 0; c++) {
        struct rp_explained_entries *column = &part->columns[part->column_count++];
        struct rp_extent entries;
        uint64_t word = 0;
        *column = (struct rp_explained_entries){.name = sides->columns[c].name};
        if (c < sides->count) {
            code = rp_sides_extent(corpus, c, extent, &entries, error);
            if (code < 0)
                continue;
            column->file = rp_corpus_shard(corpus, entries.shard)->path;
            column->bytes = entries.width;
            if (rp_ids_know_tokenizer(&sides->columns[c].tokenizer))
                column->tokenizer = &sides->columns[c].tokenizer;
            column->byte_offset = entries.byte_offset + first_own * entries.width;
            continue;
        }
        code = rp_sides_number(corpus, c, part->fragment.source, part->fragment.document, &word,
                               error);
        column->is_real = sides->columns[c].type.dtype == RP_DTYPE_F64;
        memcpy(&column->integer, &word, sizeof word);
        memcpy(&column->real, &word, sizeof word);
    }
    return code;
}

/* The origin of the fragment. */
static int find_place(const struct rp_row_maker *maker, struct rp_explained *part,
                      struct rp_error *error)
{
    const struct rp_fragment *fragment = &part->fragment;
    const struct rp_source *source = rp_corpus_source(maker->walk->corpus, fragment->source);
    struct rp_extent extent;
    int code = rp_source_extent(source, fragment->document, &extent, error);
    part->source = rp_source_name(source);
    part->file = rp_source_provenance(source, fragment->document, &part->file_row);
    uint64_t first_own = rp_fragment_first_own(fragment,
                                               rp_plan_row_form(maker->walk->plan).has_bos);
    if (code == 0)
        part->byte_offset = extent.byte_offset + first_own * extent.width;
    return code == 0 ? find_columns(maker, part, &extent, first_own, error) : code;
}

/* Cut a text to the limit. */
static void take_text(struct rp_explained *part, char *text, uint64_t limit)
{
    char *end = (char *)rp_words_after(text, limit);
    part->is_cut = *end != '\0';
    *end = '\0';
    part->text = text;
}

/* The ids and the text of a fragment, and whether it has the text that is wanted. */
static int add_text(const struct rp_row_maker *maker, struct rp_explained *part,
                    struct rp_error *error)
{
    struct rp_texts *texts = maker->texts;
    char *text = NULL;
    int code = rp_texts_read(texts, &part->fragment, error);
    part->matches = part->matches && (code > 0 || !maker->wanted);
    if (code <= 0)
        return code;
    part->id_count = (uint32_t)rp_min_u64(maker->limit, part->fragment.length);
    part->ids = calloc(part->id_count + 1, sizeof *part->ids);
    if (!part->ids)
        return rp_fail(error, -ENOMEM, NULL, "no memory for %" PRIu32 " ids", part->id_count);
    memcpy(part->ids, texts->ids, part->id_count * sizeof *part->ids);
    code = rp_texts_text(texts, part->fragment.length, &text, error);
    if (code <= 0 && maker->wanted)
        return code < 0 ? code
                        : rp_fail(error, -RP_E_USAGE, "give --tokenizer FILE, or `bytes`",
                                  "%s: its tokenizer is not known, so it cannot be searched",
                                  part->file);
    if (code > 0) {
        part->matches = part->matches && (!maker->wanted || strstr(text, maker->wanted));
        take_text(part, text, maker->limit);
    }
    return code < 0 ? code : 0;
}

static bool is_of(const struct rp_draw *draw, const struct rp_explained *part)
{
    return part->fragment.source == draw->source && part->fragment.document == draw->document &&
           part->epoch == draw->epoch;
}

static int explain_part(const struct rp_row_maker *maker, const struct rp_row *row, uint32_t number,
                        struct rp_explained *part, struct rp_error *error)
{
    part->fragment = row->fragments[number];
    part->number = number;
    part->epoch = rp_plan_epoch(maker->walk->plan, row, number);
    int code = find_place(maker, part, error);
    part->matches = !maker->draw || is_of(maker->draw, part);
    if (code == 0 && maker->texts)
        code = add_text(maker, part, error);
    return code;
}

int rp_explain_row(struct rp_row_maker *maker, const struct rp_row *row,
                   struct rp_explained_row *out, struct rp_error *error)
{
    int code = make_room(maker, row->count, error);
    uint32_t matches = 0, place = 0;
    for (uint32_t i = 0; code == 0 && i < row->count; i++) {
        struct rp_explained *part = &maker->parts[maker->part_count++];
        *part = (struct rp_explained){.place = place};
        code = explain_part(maker, row, i, part, error);
        place += rp_places(row->fragments[i].length, row->align);
        matches += part->matches;
    }
    const struct rp_origin *origin = maker->origin;
    int dropped = code < 0 ? code
                           : rp_last_step_drops(&maker->last, maker->walk, maker->steps, row->row,
                                                error);
    code = dropped < 0 ? dropped : code;
    *out = (struct rp_explained_row){
        .row = row->row,
        .place = dropped ? (struct rp_step_place){.is_known = false}
                         : rp_steps_place(maker->steps, row->row),
        .has_position = origin->has_position,
        .is_past = origin->has_position && row->row < origin->position && !dropped,
        .is_dropped = dropped > 0,
        .is_withheld = row->skipped,
        .has_stage = rp_plan_calendar(maker->walk->plan) != NULL,
        .stage = rp_plan_stage_of(maker->walk->plan, row->row),
        .seq_len = rp_plan_places_of(maker->walk->plan, row->row),
        .tokens = row->tokens,
        .count = row->count,
        .parts = maker->parts,
    };
    return code < 0 ? code : (int)matches;
}
