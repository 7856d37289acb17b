/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/panels.h"

#include <inttypes.h>

#include "base/bits.h"
#include "cmd.h"
#include "plan/axes.h"

#define BARS_MAX 256u /* if ranks are more, a bar is the largest of several ranks */

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* ---- padding over the rows ------------------------------------------------------------------- */

static double padding_in(const struct rp_picture *picture, size_t place)
{
    const struct rp_picture_column *column = &picture->columns[place];
    return share((double)column->padding, (double)(column->tokens + column->padding));
}

void rp_draw_padding(FILE *out, const struct rp_picture *picture,
                     const struct rp_plan_counts *counts, double top)
{
    char padding[RP_CMD_TEXT_BYTES];
    double most = 0;
    for (size_t i = 0; i < RP_PICTURE_COLUMNS; i++)
        most = rp_larger(most, padding_in(picture, i));
    struct rp_panel panel = {
        .out = out,
        .left = 64,
        .top = top + 56,
        .width = RP_PICTURE_WIDTH - 64 - 24,
        .height = 90,
        .x_end = (double)picture->rows,
    };
    rp_panel_title(&panel, "Padding over the rows",
                   "%s tokens of padding in all: the rows are filled to %.3f %%",
                   rp_cmd_count_text(counts->padding, padding),
                   100 *
                       share((double)counts->emitted, (double)(counts->emitted + counts->padding)));
    rp_panel_shares(&panel, rp_larger(most, 1e-4), 3);
    for (size_t i = 0; i < RP_PICTURE_COLUMNS && picture->columns[i].rows > 0; i++) {
        uint64_t first = i * picture->rows_per_column, rows = picture->columns[i].rows;
        rp_panel_bar(&panel, "a", (double)first, (double)(first + rows), padding_in(picture, i));
        fprintf(out, "rows %" PRIu64 " to %" PRIu64 ": %" PRIu64 " tokens of padding, %.3f %%",
                picture->first_row + first, picture->first_row + first + rows - 1,
                picture->columns[i].padding, 100 * padding_in(picture, i));
        rp_panel_bar_end(&panel);
    }
    rp_panel_rows(&panel, picture->first_row);
}

/* ---- lengths of documents -------------------------------------------------------------------- */

/* 2^power as 512, 1 Ki, 2 Ki. */
static void power_text(FILE *out, int power)
{
    static const char *const units[] = {"", " Ki", " Mi", " Gi", " Ti", " Pi", " Ei"};
    fprintf(out, "%u%s", 1u << power % 10, units[power / 10]);
}

/* Documents and tokens of each group of lengths. */
struct lengths {
    int first, end; /* the groups that have documents; all are empty: equal */
    double documents, tokens;
    double most; /* the largest share of documents or of tokens */
};

static struct lengths sum_lengths(const struct rp_picture *picture)
{
    struct lengths sum = {0};
    for (int i = 0; i < RP_PICTURE_LENGTHS; i++) {
        if (picture->documents_by_length[i] == 0)
            continue;
        if (sum.end == 0)
            sum.first = i;
        sum.end = i + 1;
        sum.documents += (double)picture->documents_by_length[i];
        sum.tokens += (double)picture->tokens_by_length[i];
    }
    for (int i = sum.first; i < sum.end; i++) {
        sum.most = rp_larger(sum.most,
                             share((double)picture->documents_by_length[i], sum.documents));
        sum.most = rp_larger(sum.most, share((double)picture->tokens_by_length[i], sum.tokens));
    }
    return sum;
}

static void length_group(const struct rp_panel *panel, const struct rp_picture *picture,
                         const struct lengths *sum, int group)
{
    char documents[RP_CMD_TEXT_BYTES], tokens[RP_CMD_TEXT_BYTES];
    double at = group - sum->first;
    double parts[2] = {share((double)picture->documents_by_length[group], sum->documents),
                       share((double)picture->tokens_by_length[group], sum->tokens)};
    uint64_t least = UINT64_C(1) << group;
    for (int i = 0; i < 2; i++) {
        rp_panel_bar(panel, i ? "b" : "a", at + (i ? 0.5 : 0.1), at + (i ? 0.9 : 0.5), parts[i]);
        fprintf(panel->out, "%" PRIu64 " to %" PRIu64 " tokens: %s documents, %s tokens", least,
                2 * (least - 1) + 1,
                rp_cmd_count_text(picture->documents_by_length[group], documents),
                rp_cmd_count_text(picture->tokens_by_length[group], tokens));
        rp_panel_bar_end(panel);
    }
}

/* Where documents are as long as a row. */
static void mark_seq_len(const struct rp_panel *panel, uint32_t seq_len, const struct lengths *sum)
{
    int group = 31 - __builtin_clz(seq_len);
    double at = group - sum->first + seq_len / (double)(UINT64_C(1) << group) - 1;
    bool is_left = at < panel->x_end / 2;
    if (at < 0 || at > panel->x_end)
        return;
    double x = rp_panel_x(panel, at);
    fprintf(panel->out,
            "<path class=\"l\" d=\"M%.1f,%.1fv%.1f\"/><text class=\"d%s\" x=\"%.1f\" "
            "y=\"%.1f\">seq_len</text>\n",
            x, panel->top, panel->height, is_left ? "" : " e", is_left ? x + 5 : x - 5,
            panel->top + 11);
}

void rp_draw_lengths(FILE *out, const struct rp_picture *picture, double top)
{
    struct lengths sum = sum_lengths(picture);
    char documents[RP_CMD_TEXT_BYTES], tokens[RP_CMD_TEXT_BYTES];
    struct rp_panel panel = {
        .out = out,
        .left = 64,
        .top = top + 56,
        .width = 420,
        .height = 180,
        .x_end = sum.end - sum.first,
    };
    rp_panel_title(&panel, "Lengths of documents", "%s documents begin in these rows: %s tokens",
                   rp_cmd_count_text((uint64_t)sum.documents, documents),
                   rp_cmd_count_text((uint64_t)sum.tokens, tokens));
    if (sum.documents <= 0)
        return;
    rp_panel_shares(&panel, sum.most, 5);
    int every = (sum.end - sum.first + 9) / 10;
    for (int i = sum.first; i < sum.end; i++) {
        length_group(&panel, picture, &sum, i);
        if ((i - sum.first) % every)
            continue;
        fprintf(out, "<text class=\"d m\" x=\"%.1f\" y=\"%.1f\">",
                rp_panel_x(&panel, i - sum.first), panel.top + panel.height + 16);
        power_text(out, i);
        fputs("</text>\n", out);
    }
    mark_seq_len(&panel, picture->least_seq_len, &sum);
    if (picture->most_seq_len > picture->least_seq_len)
        mark_seq_len(&panel, picture->most_seq_len, &sum);
    double y = panel.top + panel.height + 38;
    fprintf(out,
            "<rect class=\"a\" x=\"64\" y=\"%.1f\" width=\"11\" height=\"11\"/><text class=\"d\" "
            "x=\"81\" y=\"%.1f\">of the documents</text><rect class=\"b\" x=\"200\" y=\"%.1f\" "
            "width=\"11\" height=\"11\"/><text class=\"d\" x=\"217\" y=\"%.1f\">of the tokens, "
            "by length in tokens</text>\n",
            y - 10, y, y - 10, y);
}

/* ---- cost by rank ---------------------------------------------------------------------------- */

static double cost_of(const struct rp_picture_rank *rank, bool is_squares)
{
    return is_squares ? rank->squares : rank->tokens;
}

static void rank_bars(const struct rp_panel *panel, const struct rp_picture *picture,
                      bool is_squares, double mean)
{
    uint64_t ranks = picture->steps.ranks, bars = rp_min_u64(ranks, BARS_MAX);
    double gap = bars > 64 ? 0 : 0.1;
    for (uint64_t i = 0; i < bars; i++) {
        uint64_t first = i * ranks / bars, end = (i + 1) * ranks / bars;
        double most = 0;
        for (uint64_t r = first; r < end; r++)
            most = rp_larger(most, cost_of(&picture->ranks[r], is_squares));
        rp_panel_bar(panel, is_squares ? "b" : "a", (double)i + gap, (double)(i + 1) - gap,
                     share(most, mean));
        if (end - first == 1)
            fprintf(panel->out, "rank %" PRIu64 ": ", first);
        else
            fprintf(panel->out, "most of ranks %" PRIu64 " to %" PRIu64 ": ", first, end - 1);
        fprintf(panel->out, "%.0f, %.4f × the mean", most, share(most, mean));
        rp_panel_bar_end(panel);
    }
    fprintf(panel->out,
            "<path class=\"l\" d=\"M%.1f,%.1fh%.1f\"/><text class=\"d e\" x=\"%.1f\" "
            "y=\"%.1f\">mean</text><path class=\"g\" d=\"M%.1f,%.1fh%.1f\"/>\n",
            panel->left, rp_panel_y(panel, 1), panel->width, panel->left - 6,
            rp_panel_y(panel, 1) + 4, panel->left, rp_panel_y(panel, 0), panel->width);
}

/* Bars of all ranks below a line with the largest divided by the smallest. */
static void draw_cost(struct rp_panel panel, const struct rp_picture *picture, bool is_squares)
{
    double least = cost_of(&picture->ranks[0], is_squares), most = 0, sum = 0;
    for (uint32_t r = 0; r < picture->steps.ranks; r++) {
        double cost = cost_of(&picture->ranks[r], is_squares);
        least = cost < least ? cost : least;
        most = rp_larger(most, cost);
        sum += cost;
    }
    double mean = sum / picture->steps.ranks;
    panel.x_end = (double)rp_min_u64(picture->steps.ranks, BARS_MAX);
    panel.y_end = rp_larger(share(most, mean), 1);
    fprintf(panel.out, "<text class=\"d\" x=\"%.1f\" y=\"%.1f\">%s", panel.left, panel.top - 6,
            is_squares ? "squared lengths of fragments, as attention costs" : "tokens");
    if (least > 0)
        fprintf(panel.out, ": max/min %.4f</text>\n", most / least);
    else
        fputs(": a rank has none</text>\n", panel.out);
    rank_bars(&panel, picture, is_squares, mean);
}

void rp_draw_ranks(FILE *out, const struct rp_picture *picture, double top)
{
    char steps[RP_CMD_TEXT_BYTES];
    struct rp_panel panel = {
        .out = out, .left = 556, .top = top + 56, .width = 420, .height = 74, .x_end = 1};
    if (picture->whole_steps == 0) {
        rp_panel_title(&panel, "Cost by rank", "these rows are less than a step");
        return;
    }
    rp_panel_title(&panel, "Cost by rank",
                   "%s whole step%s; the costliest rank has on average %.4f × the mean",
                   rp_cmd_count_text(picture->whole_steps, steps),
                   picture->whole_steps == 1 ? "" : "s",
                   picture->worst_sum / (double)picture->whole_steps);
    panel.top += 20;
    draw_cost(panel, picture, true);
    panel.top += 104;
    draw_cost(panel, picture, false);
    fprintf(out, "<text class=\"d\" x=\"%.1f\" y=\"%.1f\">rank 0", panel.left,
            panel.top + panel.height + 18);
    if (picture->steps.ranks > 1)
        fprintf(out, "</text><text class=\"d e\" x=\"%.1f\" y=\"%.1f\">rank %" PRIu32,
                panel.left + panel.width, panel.top + panel.height + 18, picture->steps.ranks - 1);
    if (picture->steps.ranks > BARS_MAX)
        fprintf(out,
                "</text><text class=\"d m\" x=\"%.1f\" y=\"%.1f\">a bar is the costliest of "
                "several ranks",
                panel.left + panel.width / 2, panel.top + panel.height + 18);
    fputs("</text>\n", out);
}
