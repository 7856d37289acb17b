/* SPDX-License-Identifier: Apache-2.0 */
/* chart.c — lines as SVG, in the colours of the page. */
#include "cmd.h"
#include "report/report.h"

#define WIDTH 1000.0
#define HEIGHT 150.0

struct range {
    double least, most;
};

static struct range range_of(const double *values, size_t count)
{
    struct range range = {values[0], values[0]};
    for (size_t i = 1; i < count; i++) {
        range.least = values[i] < range.least ? values[i] : range.least;
        range.most = values[i] > range.most ? values[i] : range.most;
    }
    return range;
}

static double place(double value, struct range range, double size)
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

void rp_chart_line(FILE *out, const char *title, const double *x, const double *y, size_t count,
                   const char *unit)
{
    char least[RP_CMD_TEXT_BYTES], most[RP_CMD_TEXT_BYTES];
    if (count < 2)
        return;
    struct range across = range_of(x, count), up = range_of(y, count);
    if (up.least > 0 && up.least < 0.5 * up.most)
        up.least = 0;
    fprintf(out, "<h3>%s</h3>\n<p class=\"meta\">from %s to %s %s</p>\n", title,
            label(up.least, least), label(up.most, most), unit);
    fprintf(out,
            "<svg viewBox=\"0 0 %.0f %.0f\" preserveAspectRatio=\"none\" role=\"img\" "
            "aria-label=\"%s\"><path d=\"",
            WIDTH, HEIGHT, title);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%c%.1f,%.1f", i ? 'L' : 'M', place(x[i], across, WIDTH),
                HEIGHT - 4 - place(y[i], up, HEIGHT - 8));
    fputs("\"/></svg>\n", out);
}
