/* SPDX-License-Identifier: Apache-2.0 */
/* waits.c — the waits of the trainers of a node, over the life of its engine: the periods of
 * `wait_history`, one column each, with a part for each cause. The names of causes are the names in
 * the engine's answer. */
#include <inttypes.h>

#include "cmd.h"
#include "explain/explain.h"
#include "page_file.h"
#include "report/report.h"
#include "watch/watch.h"

#define WIDTH 1000.0
#define HEIGHT 150.0

static double seconds_of(json_t *causes)
{
    double sum = 0;
    for (void *i = json_object_iter(causes); i; i = json_object_iter_next(causes, i))
        sum += json_number_value(json_object_iter_value(i));
    return sum;
}

static double longest_of(const json_t *periods)
{
    double longest = 0;
    for (size_t i = 0; i < json_array_size(periods); i++) {
        double seconds = seconds_of(json_array_get(periods, i));
        longest = seconds > longest ? seconds : longest;
    }
    return longest;
}

/* Each cause, in the colour of its number, with its sum. */
static void legend(FILE *out, const json_t *periods)
{
    char text[RP_CMD_TEXT_BYTES];
    json_t *first = json_array_get(periods, 0);
    size_t number = 0;
    fputs("<p class=\"legend\">", out);
    for (void *i = json_object_iter(first); i; i = json_object_iter_next(first, i), number++) {
        const char *cause = json_object_iter_key(i);
        double seconds = 0;
        for (size_t p = 0; p < json_array_size(periods); p++)
            seconds += json_number_value(json_object_get(json_array_get(periods, p), cause));
        fprintf(out, "<i style=\"--h:%" PRIu64 "\"></i>", RP_PAGE_HUE(number));
        rp_words_html(out, cause);
        fprintf(out, " %s", rp_cmd_seconds_text(seconds, text));
    }
    fputs("</p>\n", out);
}

static void column(FILE *out, const json_t *periods, size_t place, double most)
{
    json_t *first = json_array_get(periods, 0);
    const json_t *period = json_array_get(periods, place);
    double width = WIDTH / (double)json_array_size(periods), top = HEIGHT;
    size_t number = 0;
    for (void *i = json_object_iter(first); i; i = json_object_iter_next(first, i), number++) {
        double seconds = json_number_value(json_object_get(period, json_object_iter_key(i)));
        double height = seconds > 0 ? HEIGHT * seconds / most : 0;
        top -= height;
        if (height > 0)
            fprintf(out,
                    "<rect style=\"--h:%" PRIu64 "\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                    "height=\"%.2f\"/>",
                    RP_PAGE_HUE(number), width * (double)place, top, width, height);
    }
}

void rp_report_waits(FILE *out, const json_t *stat)
{
    const json_t *periods = json_object_get(stat, "wait_history");
    double period = rp_watch_number(stat, "wait_history_seconds"), most = longest_of(periods);
    size_t ranks = json_array_size(json_object_get(stat, "ranks"));
    char each[RP_CMD_TEXT_BYTES];
    if (most <= 0 || period <= 0 || ranks == 0)
        return;
    double percent = 100 * most / (period * (double)ranks);
    fprintf(out,
            "<h3>What trainers waited for, over time</h3>\n<p class=\"meta\">at most %.3g %% of "
            "the time of all trainers of this node; each column is %s</p>\n",
            percent, rp_cmd_seconds_text(period, each));
    legend(out, periods);
    rp_chart_begin(out, "Waits by cause over time", " %", (struct rp_chart_range){0, percent});
    for (size_t i = 0; i < json_array_size(periods); i++)
        column(out, periods, i, most);
    rp_chart_end(out, RP_AXIS_SECONDS, "time since the engine started",
                 (struct rp_chart_range){0, period * (double)json_array_size(periods)});
}
