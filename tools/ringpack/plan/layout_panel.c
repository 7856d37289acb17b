/* SPDX-License-Identifier: Apache-2.0 */
/* layout_panel.c — the time that ranks of a layout wait, by window of deal; see layout_tally.h. */
#include "plan/axes.h"
#include "plan/panels.h"

static void pair_of_bars(const struct rp_panel *panel, const struct rp_layout_choice *choice,
                         double at)
{
    double lost[2] = {choice->step - 1, choice->micro_step - 1};
    for (int i = 0; i < 2; i++) {
        rp_panel_bar(panel, i ? "b" : "a", at + (i ? 0.5 : 0.2), at + (i ? 0.8 : 0.5), lost[i]);
        fprintf(panel->out, "%u steps: a barrier for each %s takes %.4f × the time of equal ranks",
                choice->steps, i ? "micro-step" : "step", 1 + lost[i]);
        rp_panel_bar_end(panel);
    }
    fprintf(panel->out, "<text class=\"d m\" x=\"%.1f\" y=\"%.1f\">", rp_panel_x(panel, at + 0.5),
            panel->top + panel->height + 16);
    if (choice->steps == 0)
        fputs("no deal</text>\n", panel->out);
    else
        fprintf(panel->out, "%u step%s</text>\n", choice->steps, choice->steps == 1 ? "" : "s");
}

void rp_draw_layout(FILE *out, const struct rp_layout_tally *tally, double top)
{
    double most = 0.01, y = top + 56 + 110 + 38;
    for (uint32_t i = 0; i < tally->choice_count; i++)
        most = rp_larger(most, tally->choices[i].micro_step - 1);
    struct rp_panel panel = {.out = out,
                             .left = 64,
                             .top = top + 56,
                             .width = RP_PICTURE_WIDTH - 64 - 24,
                             .height = 110,
                             .x_end = tally->choice_count};
    const struct rp_balance_shape *first = &tally->step_list[0].part->shape;
    rp_panel_title(&panel, "Time that ranks wait for each other, by window of deal",
                   "%u ranks, micro-batches of %u rows, steps of %u rows: the first %u steps",
                   tally->layout.dp, first->bundle, first->step, tally->steps);
    rp_panel_shares(&panel, most, 4);
    for (uint32_t i = 0; i < tally->choice_count; i++)
        pair_of_bars(&panel, &tally->choices[i], i);
    fprintf(out,
            "<rect class=\"a\" x=\"64\" y=\"%.1f\" width=\"11\" height=\"11\"/><text class=\"d\" "
            "x=\"81\" y=\"%.1f\">a barrier for each step</text><rect class=\"b\" x=\"240\" "
            "y=\"%.1f\" width=\"11\" height=\"11\"/><text class=\"d\" x=\"257\" y=\"%.1f\">a "
            "barrier for each micro-step</text>\n",
            y - 10, y, y - 10, y);
}
