/* SPDX-License-Identifier: Apache-2.0 */
/* chart.c — charts as SVG, in the colours of the page. The drawing is stretched to the width of the
 * page, so the numbers at its axes are text around it, of one size on every screen. */
#include <math.h>
#include <time.h>

#include "cmd.h"
#include "page_file.h"
#include "report/report.h"

#define WIDTH 1000.0
#define HEIGHT 150.0
#define TICKS_MAX 12 /* a range has at most 5 steps, so at most 6 ticks */

static double place(double value, struct rp_chart_range range, double size)
{
    return range.most > range.least ? size * (value - range.least) / (range.most - range.least)
                                    : size / 2;
}

/* Small values with their digits: 99.92, not 100. */
static const char *label(double value, char text[RP_CMD_TEXT_BYTES])
{
    if (value >= 1000)
        return rp_cmd_short_text(value, text);
    snprintf(text, RP_CMD_TEXT_BYTES, "%.5g", value);
    return text;
}

static const char *label_on(enum rp_axis axis, double value, char text[RP_CMD_TEXT_BYTES])
{
    struct tm utc;
    time_t at = (time_t)value;
    if (axis == RP_AXIS_SECONDS)
        return rp_cmd_seconds_text(value, text);
    if (axis == RP_AXIS_NUMBERS)
        return label(value, text);
    gmtime_r(&at, &utc);
    strftime(text, RP_CMD_TEXT_BYTES, "%Y-%m-%d %H:%M:%S", &utc);
    return text;
}

/* Round numbers in a range from 0 or above: multiples of 1, 2 or 5 times a power of ten. */
static size_t ticks_of(struct rp_chart_range range, double ticks[TICKS_MAX])
{
    double across = range.most - range.least;
    size_t count = 0;
    if (!isfinite(across))
        return 0;
    if (across <= 0) {
        ticks[0] = range.least;
        return 1;
    }
    double step = rp_page_round_up(across / 5);
    uint64_t multiple = (uint64_t)(range.least / step);
    if ((double)multiple * step < range.least)
        multiple++;
    for (; count < TICKS_MAX && (double)multiple * step <= range.most; multiple++)
        ticks[count++] = (double)multiple * step;
    return count;
}

/* From the top of a chart, in percent of its height. */
static double depth_of(double value, struct rp_chart_range up)
{
    return 100 * (1 - place(value, up, 1));
}

void rp_chart_begin(FILE *out, const char *title, const char *unit, struct rp_chart_range up)
{
    char text[RP_CMD_TEXT_BYTES];
    double ticks[TICKS_MAX];
    size_t count = ticks_of(up, ticks);
    fputs("<div class=\"chart\"><div class=\"up\">", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "<span style=\"top:%.2f%%\">%s%s</span>", depth_of(ticks[i], up),
                label(ticks[i], text), unit);
    fprintf(out,
            "</div><svg viewBox=\"0 0 %.0f %.0f\" preserveAspectRatio=\"none\" role=\"img\" "
            "aria-label=\"%s\"><path class=\"grid\" d=\"",
            WIDTH, HEIGHT, title);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "M0,%.2fh%.0f", HEIGHT * depth_of(ticks[i], up) / 100, WIDTH);
    fputs("\"/>", out);
}

void rp_chart_end(FILE *out, enum rp_axis axis, const char *unit, struct rp_chart_range across)
{
    char text[RP_CMD_TEXT_BYTES];
    fputs("</svg>", out);
    rp_chart_across(out, label_on(axis, across.least, text),
                    label_on(axis, (across.least + across.most) / 2, (char[RP_CMD_TEXT_BYTES]){0}),
                    label_on(axis, across.most, (char[RP_CMD_TEXT_BYTES]){0}), unit);
}

void rp_chart_across(FILE *out, const char *left, const char *middle, const char *right,
                     const char *unit)
{
    fprintf(out,
            "<div class=\"across\"><span>%s</span><span>%s</span><span>%s</span></div>"
            "<p class=\"unit\">%s</p></div>\n",
            left, middle, right, unit);
}

static struct rp_chart_range range_of(const double *values, size_t count)
{
    struct rp_chart_range range = {values[0], values[0]};
    for (size_t i = 1; i < count; i++) {
        range.least = values[i] < range.least ? values[i] : range.least;
        range.most = values[i] > range.most ? values[i] : range.most;
    }
    return range;
}

void rp_chart_line(FILE *out, const struct rp_chart *chart, const double *x, const double *y,
                   size_t count)
{
    char least[RP_CMD_TEXT_BYTES], most[RP_CMD_TEXT_BYTES];
    if (count < 2)
        return;
    struct rp_chart_range across = range_of(x, count), up = range_of(y, count);
    fprintf(out, "<h3>%s</h3>\n<p class=\"meta\">%s, from %s to %s</p>\n", chart->title,
            chart->up_unit, label(up.least, least), label(up.most, most));
    if (up.least > 0 && up.least < 0.5 * up.most)
        up.least = 0;
    rp_chart_begin(out, chart->title, "", up);
    fputs("<path d=\"", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%c%.1f,%.1f", i ? 'L' : 'M', place(x[i], across, WIDTH),
                HEIGHT - place(y[i], up, HEIGHT));
    fputs("\"/>", out);
    rp_chart_end(out, chart->across, chart->across_unit, across);
}
