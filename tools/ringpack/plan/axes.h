/* SPDX-License-Identifier: Apache-2.0 */
/* axes.h — the place of a panel in a picture, its titles, axes and bars. */
#ifndef RP_TOOLS_AXES_H
#define RP_TOOLS_AXES_H

#include <stdint.h>
#include <stdio.h>

#define RP_PICTURE_WIDTH 1000.0

/* The place of a panel, and its axes. */
struct rp_panel {
    FILE *out;
    double left, top, width, height;
    double x_end, y_end; /* values at the right and at the top; 0 at the left and at the bottom */
};

static inline double rp_panel_x(const struct rp_panel *panel, double value)
{
    return panel->left + panel->width * value / panel->x_end;
}

static inline double rp_panel_y(const struct rp_panel *panel, double value)
{
    return panel->top + panel->height * (1 - value / panel->y_end);
}

static inline double rp_larger(double a, double b)
{
    return a > b ? a : b;
}

/** A title above a panel, and below the title a line about the panel. Texts of the program
 * only: they are not escaped. */
void rp_panel_title(const struct rp_panel *panel, const char *title, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Choose the y axis for shares up to `most` > 0, and draw lines across with their percentages, at
 * most `parts_max` of them above 0. */
void rp_panel_shares(struct rp_panel *panel, double most, int parts_max);
/** Numbers of rows below the panel, whose x axis has rows, counted from first_row. */
void rp_panel_rows(const struct rp_panel *panel, uint64_t first_row);
/** A bar from `from` to `to` on the x axis. The caller writes the text that a reader who points at
 * it sees, then rp_panel_bar_end. */
void rp_panel_bar(const struct rp_panel *panel, const char *class, double from, double to,
                  double value);
void rp_panel_bar_end(const struct rp_panel *panel);

#endif
