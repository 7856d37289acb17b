/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/axes.h"

#include <stdarg.h>

#include "cmd.h"
#include "page_file.h"

void rp_panel_title(const struct rp_panel *panel, const char *title, const char *format, ...)
{
    va_list arguments;
    fprintf(panel->out,
            "<text class=\"t\" x=\"%.1f\" y=\"%.1f\">%s</text>\n<text class=\"d\" x=\"%.1f\" "
            "y=\"%.1f\">",
            panel->left, panel->top - 30, title, panel->left, panel->top - 12);
    va_start(arguments, format);
    vfprintf(panel->out, format, arguments);
    va_end(arguments);
    fputs("</text>\n", panel->out);
}

void rp_panel_shares(struct rp_panel *panel, double most, int parts_max)
{
    double step = rp_page_round_up(most / parts_max);
    int parts = 1;
    while (parts < parts_max && parts * step < most)
        parts++;
    panel->y_end = parts * step;
    for (int i = 0; i <= parts; i++) {
        double y = rp_panel_y(panel, i * step);
        fprintf(panel->out,
                "<path class=\"g\" d=\"M%.1f,%.1fh%.1f\"/><text class=\"d e\" x=\"%.1f\" "
                "y=\"%.1f\">%.3g %%</text>\n",
                panel->left, y, panel->width, panel->left - 6, y + 4, 100 * i * step);
    }
}

/* Rows after a start in the middle of a stream are numbered from there: a short text of a large
 * number could not distinguish them. */
void rp_panel_rows(const struct rp_panel *panel, uint64_t first_row)
{
    char text[RP_CMD_TEXT_BYTES];
    uint64_t step = (uint64_t)rp_page_round_up(rp_larger(panel->x_end / 8, 1));
    for (uint64_t row = 0; (double)row <= panel->x_end; row += step)
        fprintf(panel->out, "<text class=\"d m\" x=\"%.1f\" y=\"%.1f\">%s%s</text>\n",
                rp_panel_x(panel, (double)row), panel->top + panel->height + 16,
                row == 0    ? "row "
                : first_row ? "+"
                            : "",
                row == 0 && first_row ? rp_cmd_count_text(first_row, text)
                                      : rp_cmd_short_text((double)row, text));
}

void rp_panel_bar(const struct rp_panel *panel, const char *class, double from, double to,
                  double value)
{
    double left = rp_panel_x(panel, from), top = rp_panel_y(panel, value);
    fprintf(panel->out,
            "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
            class, left, top, rp_panel_x(panel, to) - left, panel->top + panel->height - top);
}

void rp_panel_bar_end(const struct rp_panel *panel)
{
    fputs("</title></rect>\n", panel->out);
}
