/* SPDX-License-Identifier: Apache-2.0 */
/* One band for each source, on top of each other. */
#include "plan/mixture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "explain/explain.h"
#include "plan/axes.h"

#define LEGEND_COLUMNS 3
#define LEGEND_WIDTH 304.0
#define LEGEND_LINE 20.0
#define NAME_WIDTH 106.0
#define PLOT_HEIGHT 180.0
#define TITLE_HEIGHT 52.0
#define AXIS_HEIGHT 36.0

static int by_size(const void *a, const void *b)
{
    const struct rp_band *left = a, *right = b;
    if (left->tokens != right->tokens)
        return left->tokens < right->tokens ? 1 : -1;
    return left->source > right->source ? 1 : -1;
}

int rp_bands_choose(struct rp_bands *bands, const struct rp_picture *picture,
                    struct rp_error *error)
{
    uint32_t sources = picture->config->source_count;
    struct rp_band *all = rp_calloc(sources, sizeof *all);
    if (!all)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a picture");
    for (uint32_t s = 0; s < sources; s++) {
        all[s] = (struct rp_band){.source = s, .asked = rp_picture_asked_share(picture->config, s)};
        for (size_t i = 0; i < RP_PICTURE_COLUMNS; i++)
            all[s].tokens += picture->source_tokens[i * sources + s];
    }
    qsort(all, sources, sizeof *all, by_size);
    *bands = (struct rp_bands){.count = (uint32_t)rp_min_u64(sources, RP_PICTURE_BANDS)};
    memcpy(bands->bands, all, bands->count * sizeof *all);
    for (uint32_t i = RP_PICTURE_BANDS; i < sources; i++) {
        struct rp_band *last = &bands->bands[RP_PICTURE_BANDS - 1];
        last->tokens += all[i].tokens;
        last->asked += all[i].asked;
        bands->rest = i - RP_PICTURE_BANDS + 2;
    }
    free(all);
    return 0;
}

static double legend_height(const struct rp_bands *bands)
{
    uint32_t lines = (bands->count + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS;
    return LEGEND_LINE * lines;
}

double rp_mixture_height(const struct rp_bands *bands)
{
    return TITLE_HEIGHT + legend_height(bands) + PLOT_HEIGHT + AXIS_HEIGHT;
}

static void band_name(FILE *out, const struct rp_config *config, const struct rp_bands *bands,
                      uint32_t band)
{
    if (rp_band_is_rest(bands, band))
        fprintf(out, "%" PRIu32 " other sources", bands->rest);
    else
        rp_words_html(out, config->sources[bands->bands[band].source].name);
}

/* The box of a name cuts a longer one; the whole name is its title. */
static void legend(FILE *out, const struct rp_picture *picture, const struct rp_bands *bands,
                   const struct rp_panel *panel)
{
    double first = panel->top - 16 - legend_height(bands), all = 0;
    for (uint32_t band = 0; band < bands->count; band++)
        all += (double)bands->bands[band].tokens;
    for (uint32_t band = 0; band < bands->count; band++) {
        uint32_t line = band / LEGEND_COLUMNS;
        double x = panel->left + LEGEND_WIDTH * (band % LEGEND_COLUMNS);
        double y = first + LEGEND_LINE * line;
        double realised = all > 0 ? (double)bands->bands[band].tokens / all : 0;
        fprintf(out,
                "<rect class=\"s%" PRIu32
                "\" x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\"/><svg x=\"%.1f\" y=\"%.1f\" "
                "width=\"%.0f\" height=\"18\"><title>",
                band, x, y + 4, x + 17, y, NAME_WIDTH);
        band_name(out, picture->config, bands, band);
        fputs("</title><text y=\"14\">", out);
        band_name(out, picture->config, bands, band);
        fprintf(out, "</text></svg><text class=\"d\" x=\"%.1f\" y=\"%.1f\">%.3f %%",
                x + 23 + NAME_WIDTH, y + 14, 100 * realised);
        if (!picture->calendar) /* else each stage has its own */
            fprintf(out, ", asked %.3f %%", 100 * bands->bands[band].asked);
        fputs("</text>\n", out);
    }
}

static double share_in(const struct rp_picture *picture, const struct rp_bands *bands,
                       uint32_t band, size_t place)
{
    const uint64_t *tokens = picture->source_tokens + place * picture->config->source_count;
    uint64_t all = picture->columns[place].tokens, own = all;
    if (!rp_band_is_rest(bands, band))
        own = tokens[bands->bands[band].source];
    else
        for (uint32_t i = 0; i < band; i++)
            own -= tokens[bands->bands[i].source];
    return all > 0 ? (double)own / (double)all : 0;
}

/* From the left along the upper edge of the band, and back along the lower edge. */
static void draw_band(const struct rp_panel *panel, const struct rp_picture *picture,
                      const struct rp_bands *bands, uint32_t band, double *lower)
{
    size_t count = (picture->rows + picture->rows_per_column - 1) / picture->rows_per_column;
    double upper[RP_PICTURE_COLUMNS] = {0}, x[RP_PICTURE_COLUMNS + 1];
    for (size_t i = 0; i < count; i++) {
        upper[i] = lower[i] + share_in(picture, bands, band, i);
        x[i] = rp_panel_x(panel, (double)(i * picture->rows_per_column));
    }
    x[count] = rp_panel_x(panel, (double)picture->rows);
    fprintf(panel->out, "<path class=\"s%" PRIu32 "\" d=\"M%.1f,%.1f", band, x[0],
            rp_panel_y(panel, lower[0]));
    for (size_t i = 0; i < count; i++)
        fprintf(panel->out, "V%.1fH%.1f", rp_panel_y(panel, upper[i]), x[i + 1]);
    for (size_t i = count; i-- > 0;) {
        fprintf(panel->out, "V%.1fH%.1f", rp_panel_y(panel, lower[i]), x[i]);
        lower[i] = upper[i];
    }
    fputs("Z\"><title>", panel->out);
    band_name(panel->out, picture->config, bands, band);
    fputs("</title></path>\n", panel->out);
}

/* The text that a reader sees who points at a column. */
static void tell_column(const struct rp_panel *panel, const struct rp_picture *picture,
                        const struct rp_bands *bands, size_t place)
{
    uint64_t first = place * picture->rows_per_column, rows = picture->columns[place].rows;
    rp_panel_bar(panel, "o", (double)first, (double)(first + rows), panel->y_end);
    fprintf(panel->out, "rows %" PRIu64 " to %" PRIu64, picture->first_row + first,
            picture->first_row + first + rows - 1);
    for (uint32_t band = 0; band < bands->count; band++) {
        fputs("\n", panel->out);
        band_name(panel->out, picture->config, bands, band);
        fprintf(panel->out, ": %.3f %%", 100 * share_in(picture, bands, band, place));
    }
    rp_panel_bar_end(panel);
}

/* A line at the first row of each stage and record that is drawn, with its number among the
 * declared stages. */
static void draw_stages(const struct rp_panel *panel, const struct rp_picture *picture)
{
    const struct rp_calendar *calendar = picture->calendar;
    uint64_t first = picture->first_row, end = first + picture->rows;
    uint32_t declared = 0;
    for (uint64_t row = 0; calendar && row < end; row = rp_calendar_next(calendar, row)) {
        bool is_declared = rp_calendar_at(calendar, row)->is_declared;
        double x = row < first ? 0 : rp_panel_x(panel, (double)(row - first));
        declared += is_declared;
        if (row < first || row == 0)
            continue;
        fprintf(panel->out,
                "<path class=\"l\" d=\"M%.1f,%.1fv%.1f\"/><text class=\"d\" x=\"%.1f\" "
                "y=\"%.1f\">",
                x, panel->top, panel->height, x + 4, panel->top + 12);
        if (is_declared)
            fprintf(panel->out, "stage %" PRIu32 "</text>\n", declared - 1);
        else
            fputs("record</text>\n", panel->out);
    }
}

void rp_draw_mixture(FILE *out, const struct rp_picture *picture, const struct rp_bands *bands,
                     double top)
{
    struct rp_panel panel = {
        .out = out,
        .left = 64,
        .top = top + TITLE_HEIGHT + legend_height(bands),
        .width = RP_PICTURE_WIDTH - 64 - 24,
        .height = PLOT_HEIGHT,
        .x_end = (double)picture->rows,
    };
    double lower[RP_PICTURE_COLUMNS] = {0};
    fprintf(out, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\">Mixture over the rows</text>\n",
            panel.left, top + 22);
    legend(out, picture, bands, &panel);
    rp_panel_shares(&panel, 1, 5);
    for (uint32_t band = 0; band < bands->count; band++)
        draw_band(&panel, picture, bands, band, lower);
    for (size_t i = 0; i < RP_PICTURE_COLUMNS && picture->columns[i].rows > 0; i++)
        tell_column(&panel, picture, bands, i);
    draw_stages(&panel, picture);
    rp_panel_rows(&panel, picture->first_row);
}
