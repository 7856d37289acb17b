/* SPDX-License-Identifier: Apache-2.0 */
/* picture.c — the counts of a picture; see picture.h.
 *
 * Invariant: all columns but the last one in use have rows_per_column rows. */
#include "plan/picture.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"

int rp_picture_open(struct rp_picture *picture, const struct rp_config *config,
                    const struct rp_corpus *corpus, const struct rp_plan *plan,
                    struct rp_error *error)
{
    size_t cells = (size_t)RP_PICTURE_COLUMNS * config->source_count;
    *picture = (struct rp_picture){.config = config,
                                   .corpus = corpus,
                                   .steps = rp_steps_of(config, rp_plan_row(plan)),
                                   .first_row = rp_plan_row(plan),
                                   .calendar = rp_plan_calendar(plan),
                                   .least_seq_len = rp_plan_seq_len(plan),
                                   .most_seq_len = rp_plan_seq_len(plan),
                                   .rows_per_column = 1};
    picture->source_tokens = rp_calloc(cells, sizeof *picture->source_tokens);
    picture->ranks = rp_calloc(picture->steps.ranks, sizeof *picture->ranks);
    return picture->source_tokens && picture->ranks
               ? 0
               : rp_fail(error, -ENOMEM, NULL, "out of memory for a picture");
}

void rp_picture_close(struct rp_picture *picture)
{
    free(picture->source_tokens);
    free(picture->ranks);
}

/* Join columns two by two, so that half of them are free. */
static void join_columns(struct rp_picture *picture)
{
    size_t sources = picture->config->source_count;
    for (size_t to = 0; to < RP_PICTURE_COLUMNS / 2; to++) {
        const struct rp_picture_column *left = &picture->columns[2 * to], *right = left + 1;
        const uint64_t *from = picture->source_tokens + 2 * to * sources;
        picture->columns[to] = (struct rp_picture_column){
            left->rows + right->rows, left->tokens + right->tokens, left->padding + right->padding};
        for (size_t s = 0; s < sources; s++)
            picture->source_tokens[to * sources + s] = from[s] + from[sources + s];
    }
    size_t half = RP_PICTURE_COLUMNS / 2;
    memset(picture->columns + half, 0, half * sizeof *picture->columns);
    memset(picture->source_tokens + half * sources, 0,
           half * sources * sizeof *picture->source_tokens);
    picture->rows_per_column *= 2;
}

/* A document is counted in the row that has its first token. */
static void add_fragment(struct rp_picture *picture, const struct rp_fragment *fragment)
{
    if (fragment->offset != 0)
        return;
    const struct rp_source *source = rp_corpus_source(picture->corpus, fragment->source);
    uint64_t length = rp_source_length(source, fragment->document);
    int group = length ? 63 - __builtin_clzll(length) : 0;
    picture->documents_by_length[group]++;
    picture->tokens_by_length[group] += length;
}

static void end_step(struct rp_picture *picture)
{
    double sum = 0, most = 0;
    for (uint32_t r = 0; r < picture->steps.ranks; r++) {
        struct rp_picture_rank *rank = &picture->ranks[r];
        rank->tokens += rank->step_tokens;
        rank->squares += rank->step_squares;
        sum += rank->step_squares;
        most = rank->step_squares > most ? rank->step_squares : most;
        rank->step_tokens = rank->step_squares = 0;
    }
    picture->whole_steps++;
    picture->worst_sum += sum > 0 ? most * picture->steps.ranks / sum : 1;
}

void rp_picture_add(struct rp_picture *picture, const struct rp_row *row, uint32_t seq_len)
{
    size_t place = picture->rows / picture->rows_per_column;
    if (place == RP_PICTURE_COLUMNS) {
        join_columns(picture);
        place = RP_PICTURE_COLUMNS / 2;
    }
    struct rp_picture_column *column = &picture->columns[place];
    struct rp_picture_rank *rank = &picture->ranks[rp_steps_place(&picture->steps, row->row).rank];
    uint64_t *source_tokens = picture->source_tokens +
                              place * (size_t)picture->config->source_count;
    double squares = 0;
    for (uint32_t i = 0; i < row->count; i++) {
        double length = row->fragments[i].length;
        source_tokens[row->fragments[i].source] += row->fragments[i].length;
        squares += length * length;
        add_fragment(picture, &row->fragments[i]);
    }
    picture->least_seq_len = (uint32_t)rp_min_u64(picture->least_seq_len, seq_len);
    picture->most_seq_len = (uint32_t)rp_max_u64(picture->most_seq_len, seq_len);
    column->rows++;
    column->tokens += row->tokens;
    column->padding += row->count ? seq_len - row->tokens : 0;
    rank->step_tokens += row->tokens;
    rank->step_squares += squares;
    picture->rows++;
    if (row->row + 1 == rp_steps_end(&picture->steps, row->row))
        end_step(picture);
}

double rp_picture_asked_share(const struct rp_config *config, uint32_t source)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < config->source_count; i++)
        sum += config->sources[i].weight;
    return sum > 0 ? (double)config->sources[source].weight / (double)sum : 0;
}
