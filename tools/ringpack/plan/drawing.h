/* SPDX-License-Identifier: Apache-2.0 */
/* drawing.h — the panels of a picture, and what they share. */
#ifndef RP_TOOLS_DRAWING_H
#define RP_TOOLS_DRAWING_H

#include "plan/picture.h"

#define RP_PICTURE_WIDTH 1000.0
#define RP_PICTURE_BANDS 16 /* sources that are drawn; above that the smallest are one band */

/* axes.c */

/* Where a panel is, and what its axes show. */
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

/** A title above a panel, and below the title what `format` says of the panel. Texts of the program
 * only: nothing is escaped. */
void rp_panel_title(const struct rp_panel *panel, const char *title, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Choose the y axis for shares up to `most` > 0, and draw lines across with their percentages, at
 * most `parts_max` of them above 0. */
void rp_panel_shares(struct rp_panel *panel, double most, int parts_max);
/** Numbers of rows below the panel, whose x axis has rows, counted from first_row. */
void rp_panel_rows(const struct rp_panel *panel, uint64_t first_row);
/** A bar from `from` to `to` on the x axis. The caller writes what a reader is told of it who
 * points at it, then rp_panel_bar_end. */
void rp_panel_bar(const struct rp_panel *panel, const char *class, double from, double to,
                  double value);
void rp_panel_bar_end(const struct rp_panel *panel);

/* A source, or the last band of all: the sources that are not drawn. */
struct rp_band {
    uint32_t source;
    uint64_t tokens;
    double asked; /* share of the tokens */
};
/* The sources that are drawn, the largest first. */
struct rp_bands {
    struct rp_band bands[RP_PICTURE_BANDS];
    uint32_t count; /* of `bands` */
    uint32_t rest;  /* how many sources are the last band; 0 = each band is a source */
};

static inline bool rp_band_is_rest(const struct rp_bands *bands, uint32_t band)
{
    return bands->rest > 0 && band + 1 == bands->count;
}

/* mixture.c */

/** Choose the sources that are drawn. -ENOMEM. */
RP_MUST_CHECK int rp_bands_choose(struct rp_bands *bands, const struct rp_picture *picture,
                                  struct rp_error *error);
double rp_mixture_height(const struct rp_bands *bands);
void rp_draw_mixture(FILE *out, const struct rp_picture *picture, const struct rp_bands *bands,
                     double top);

/* panels.c */

#define RP_PADDING_HEIGHT 190.0
void rp_draw_padding(FILE *out, const struct rp_picture *picture,
                     const struct rp_plan_counts *counts, double top);
#define RP_LENGTHS_HEIGHT 300.0
void rp_draw_lengths(FILE *out, const struct rp_picture *picture, double top);
void rp_draw_ranks(FILE *out, const struct rp_picture *picture, double top);

#endif
