/* SPDX-License-Identifier: Apache-2.0 */
/* page.c — writes the report as one page. Every text of a run is written by rp_words_html, which
 * escapes it. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "cmd.h"
#include "explain/explain.h"
#include "page_file.h"
#include "report/report.h"

static const char style[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n<style>\n"
    ":root{--bg:#fff;--fg:#1c1c1c;--dim:#5c5c5c;--line:#ddd;--ink:#2c7fb8;--ill:#b3261e;--l:78%;"
    "--s:70%}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#16181b;--fg:#e6e6e6;--dim:#a0a0a0;--line:#333;"
    "--ink:#4aa3df;--ill:#ff8a80;--l:34%;--s:50%}}\n"
    "body{background:var(--bg);color:var(--fg);font:14px/1.45 system-ui,sans-serif;margin:1.5rem "
    "auto;max-width:1100px;padding:0 1rem}\n"
    "h1{font-size:1.3rem;margin:0}h2{font-size:1.1rem;margin:1.6rem 0 .3rem}h3{font-size:1rem;"
    "margin:1rem 0 0}p{margin:.2rem 0}.meta{color:var(--dim)}.ill{color:var(--ill)}\n"
    "body{overflow-wrap:anywhere}.wide{overflow-x:auto}.wide table{overflow-wrap:normal}"
    ".wide td{white-space:nowrap}.wide td:first-child{min-width:7em}.wide td:first-child,"
    ".wide td:nth-child(2):last-child{white-space:normal;overflow-wrap:anywhere}\n"
    "table{border-collapse:collapse;width:100%;font-size:13px;margin:.4rem 0}"
    "td,th{text-align:right;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--line);"
    "font-variant-numeric:tabular-nums}td:first-child,th:first-child{text-align:left}"
    "\nsvg{width:100%;height:150px;display:block;border-bottom:1px solid var(--line)}"
    "path{fill:none;stroke:var(--ink);stroke-width:2;vector-effect:non-scaling-stroke}\n"
    "path.grid{stroke:var(--line);stroke-width:1}\n"
    ".chart,.save{display:grid;grid-template-columns:4.5rem minmax(0,1fr);color:var(--dim);"
    "font-size:12px;font-variant-numeric:tabular-nums}.chart{margin:.6rem 0}.up{position:relative}"
    ".up span{position:absolute;right:.5rem;transform:translateY(-50%);line-height:1}"
    ".save span{text-align:right;padding-right:.5rem}.across,.unit{grid-column:2}"
    ".across{display:grid;grid-template-columns:repeat(3,1fr)}.across :nth-child(2),.unit{"
    "text-align:center}.across :last-child{text-align:right}\n"
    "rect{fill:hsl(var(--h) var(--s) var(--l))}"
    ".bar{display:flex;height:16px;margin:1px 0;border-radius:2px;overflow:hidden}"
    ".bar i,.legend i{background:hsl(var(--h) var(--s) var(--l))}.bar i{flex:none}"
    ".legend i{display:inline-block;width:.9em;height:.9em;border-radius:2px;margin:0 .35em 0 "
    "1em;vertical-align:-1px}\n</style>\n<title>";

static void cell(FILE *out, const char *text)
{
    fputs("<td>", out);
    rp_words_html(out, text);
    fputs("</td>", out);
}

static void heads(FILE *out, const char *const *texts)
{
    fputs("<div class=\"wide\" tabindex=\"0\"><table><tr>", out);
    for (; *texts; texts++)
        fprintf(out, "<th>%s</th>", *texts);
    fputs("</tr>\n", out);
}

/* ---- the engine's answer --------------------------------------------------------------------- */

/* A value as `stat` prints it in a table: its unit follows from the end of its key. */
static const char *value_text(const char *key, const json_t *value, char text[RP_CMD_TEXT_BYTES])
{
    double number = json_number_value(value);
    size_t length = strlen(key);
    snprintf(text, RP_CMD_TEXT_BYTES, "-");
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_boolean(value))
        return json_is_true(value) ? "yes" : "no";
    if (!json_is_number(value) || number < 0)
        return text;
    if (length > 7 && !strcmp(key + length - 7, "seconds"))
        return rp_cmd_seconds_text(number, text);
    if (length > 5 && !strcmp(key + length - 5, "bytes"))
        return rp_cmd_bytes_text((uint64_t)number, text);
    if (!strcmp(key, "fill") || (length > 5 && !strcmp(key + length - 5, "share")))
        snprintf(text, RP_CMD_TEXT_BYTES, "%.3f %%", 100 * number);
    else if (length > 9 && !strcmp(key + length - 9, "imbalance"))
        snprintf(text, RP_CMD_TEXT_BYTES, "%.3f", number);
    else if (json_is_real(value))
        return rp_cmd_short_text(number, text);
    else
        return rp_cmd_count_text((uint64_t)number, text);
    return text;
}

struct column {
    const char *key, *head;
};

static void objects(FILE *out, const char *title, const json_t *array, const struct column *columns)
{
    char text[RP_CMD_TEXT_BYTES];
    if (json_array_size(array) == 0)
        return;
    fprintf(out, "<h2>%s</h2>\n<div class=\"wide\" tabindex=\"0\"><table><tr>", title);
    for (const struct column *c = columns; c->key; c++)
        fprintf(out, "<th>%s</th>", c->head);
    fputs("</tr>\n", out);
    for (size_t i = 0; i < json_array_size(array); i++) {
        fputs("<tr>", out);
        for (const struct column *c = columns; c->key; c++)
            cell(out, value_text(c->key, json_object_get(json_array_get(array, i), c->key), text));
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void single_values(FILE *out, const json_t *stat)
{
    static const struct column shown[] = {
        {"up_seconds", "up"},
        {"version", "ringpack"},
        {"world", "ranks of the run"},
        {"next_row", "next row"},
        {"step", "step"},
        {"start_row", "started at row"},
        {"tokens", "tokens"},
        {"fill", "fill"},
        {"tokens_per_second", "tokens/s since the start"},
        {"tokens_per_second_1min", "tokens/s in the last minute"},
        {"steps_per_second_1min", "steps/s in the last minute"},
        {"skew_rows", "rows between the first and the last rank"},
        {"cost_imbalance", "cost of the costliest rank, by the mean one"},
        {"micro_step_imbalance", "the same with a barrier for each micro-step"},
        {"io", "reads by"},
        {"read_bytes", "read"},
        {"read_retries", "reads tried again"},
        {"packers_replaced", "packers replaced"},
        {"resident_bytes", "memory"},
        {"saves", "saves"},
        {"save_failures", "saves that failed"},
        {"save_age_seconds", "since the last save"},
        {"save_seconds", "time that it took"},
        {"save_bytes", "its size"},
        {"save_error", "why the last save failed"},
        {"unsaved_rows", "rows that a crash would repeat"},
        {"copies", "copies of checkpoints"},
        {"copy_failures", "copies that failed"},
        {"unverified_share", "tokens that no hash verifies"},
        {"ended", "the stream has ended"},
    };
    char text[RP_CMD_TEXT_BYTES];
    fputs("<h2>The engine</h2>\n<table class=\"pairs\">\n", out);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const json_t *value = json_object_get(stat, shown[i].key);
        if (!value || json_is_null(value))
            continue;
        fprintf(out, "<tr><td>%s</td>", shown[i].head);
        cell(out, value_text(shown[i].key, value, text));
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

static void engine(FILE *out, const json_t *stat)
{
    static const struct column ranks[] = {{"rank", "rank"},
                                          {"replica", "replica"},
                                          {"state", "state"},
                                          {"release", "batches released"},
                                          {"waits", "waits"},
                                          {"wait_seconds", "in all"},
                                          {"wait_p50_seconds", "half of them in"},
                                          {"wait_p99_seconds", "99 % in"},
                                          {"wait_max_seconds", "the longest"},
                                          {"behind_rows", "rows behind"},
                                          {"cost", "cost of its batches"},
                                          {NULL, NULL}};
    static const struct column ledger[] = {{"source", "source"},     {"tokens", "tokens"},
                                           {"token_share", "share"}, {"weight_share", "by weight"},
                                           {"epochs", "epochs"},     {NULL, NULL}};
    static const struct column masks[] = {
        {"source", "source"},       {"labels", "labels"},
        {"documents", "documents"}, {"untrained", "nothing trained"},
        {"cut_off", "cut off"},     {NULL, NULL}};
    single_values(out, stat);
    objects(out, "Waits of trainers", json_object_get(stat, "ranks"), ranks);
    rp_report_waits(out, stat);
    objects(out, "Sources", json_object_get(stat, "ledger"), ledger);
    objects(out, "Labels", json_object_get(stat, "masks"), masks);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static double fill_of(const struct rp_report_point *point)
{
    double places = (double)point->emitted + (double)point->padding; /* rows differ in seq_len */
    return places > 0 ? (double)point->emitted / places : 0;
}

/* The share of each source in the tokens since the checkpoint before, one bar for each. */
static void mixture(FILE *out, const struct rp_report *report)
{
    const struct rp_report_point *last = &report->points[report->point_count - 1];
    char row[RP_CMD_TEXT_BYTES];
    fputs("<h3>Mixture, from save to save</h3>\n<p class=\"legend\">", out);
    for (uint32_t s = 0; s < last->source_count; s++) {
        fprintf(out, "<i style=\"--h:%" PRIu64 "\"></i>", RP_PAGE_HUE(s));
        rp_words_html(out, last->names[s] ? last->names[s] : "");
        fprintf(out, ", epoch %" PRIu64, last->sources[s].begun_epoch);
    }
    fputs("</p>\n<p class=\"meta\">next row of the save</p>\n", out);
    for (size_t i = 0; i < report->point_count; i++) {
        const struct rp_report_point *point = &report->points[i], *before = point - 1;
        bool continues = i > 0 && before->source_count == point->source_count;
        double all = 0, parts[256] = {0};
        uint32_t count = point->source_count < 256 ? point->source_count : 256;
        for (uint32_t s = 0; s < count; s++) {
            uint64_t old = continues ? before->sources[s].tokens : 0,
                     now = point->sources[s].tokens;
            parts[s] = (double)(now >= old ? now - old : now); /* weights were changed: from 0 on */
            all += parts[s];
        }
        fprintf(out, "<div class=\"save\"><span>%s</span><div class=\"bar\">",
                rp_cmd_short_text((double)point->info.next_row, row));
        for (uint32_t s = 0; s < count && all > 0; s++)
            fprintf(out, "<i style=\"--h:%" PRIu64 ";width:%.3f%%\"></i>", RP_PAGE_HUE(s),
                    100 * parts[s] / all);
        fputs("</div></div>\n", out);
    }
    fputs("<div class=\"chart\">", out);
    rp_chart_across(out, "0 %", "50 %", "100 %", "of the tokens since the save before");
}

static void charts(FILE *out, const struct rp_report *report)
{
    static const char time_unit[] = "time of the save (UTC)";
    static const struct rp_chart position = {"Position over time", "rows", time_unit,
                                             RP_AXIS_TIMES},
                                 fill = {"Fill over rows", "% of the tokens of all rows", "rows",
                                         RP_AXIS_NUMBERS},
                                 throughput = {"Throughput from save to save", "tokens/s",
                                               time_unit, RP_AXIS_TIMES};
    size_t count = report->point_count;
    double *x = rp_calloc(3 * count, sizeof *x);
    if (!x)
        return;
    double *rows = x + count, *other = rows + count;
    for (size_t i = 0; i < count; i++) {
        x[i] = report->points[i].at;
        rows[i] = (double)report->points[i].info.next_row;
        other[i] = 100 * fill_of(&report->points[i]);
    }
    rp_chart_line(out, &position, x, rows, count);
    rp_chart_line(out, &fill, rows, other, count);
    for (size_t i = 1; i < count; i++) {
        double seconds = x[i] - x[i - 1];
        double tokens = (double)report->points[i].emitted - (double)report->points[i - 1].emitted;
        other[i - 1] = seconds > 0 && tokens > 0 ? tokens / seconds : 0;
    }
    if (count > 2)
        rp_chart_line(out, &throughput, x + 1, other, count - 1);
    free(x);
}

static void point_line(FILE *out, const struct rp_report_point *point, bool is_moved)
{
    char date[32], row[RP_CMD_TEXT_BYTES], tokens[RP_CMD_TEXT_BYTES], bytes[RP_CMD_TEXT_BYTES];
    time_t at = (time_t)point->at;
    struct tm utc;
    gmtime_r(&at, &utc);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &utc);
    fprintf(out, "<tr><td>%s</td><td>%" PRIu64 "</td><td>%s</td><td>%s</td><td>%.3f %%</td>", date,
            point->info.sequence, rp_cmd_count_text(point->info.next_row, row),
            rp_cmd_short_text((double)point->emitted, tokens), 100 * fill_of(point));
    fprintf(out, "<td>%s</td><td>%" PRIu32 " × %" PRIu32 "%s</td>",
            rp_cmd_bytes_text(point->bytes, bytes), point->info.dp_world_size,
            point->info.batch_size, is_moved ? ", changed" : "");
    cell(out, point->info.version);
    fputs("</tr>\n", out);
}

static void checkpoints(FILE *out, const struct rp_report *report)
{
    static const char *const columns[] = {"written (UTC)", "sequence", "next row",
                                          "tokens",        "fill",     "size",
                                          "ranks × rows",  "ringpack", NULL};
    fputs("<h2>Checkpoints</h2>\n<p class=\"meta\">", out);
    rp_words_html(out, report->path);
    fprintf(out, ": %zu that verify, %zu damaged, %zu rewound, %zu set aside by fresh starts</p>\n",
            report->point_count, report->damaged, report->rewound, report->set_aside);
    if (report->point_count == 0)
        return;
    charts(out, report);
    mixture(out, report);
    heads(out, columns);
    for (size_t i = 0; i < report->point_count; i++) {
        const struct rp_report_point *point = &report->points[i], *before = point - 1;
        bool is_moved = i > 0 && (before->info.dp_world_size != point->info.dp_world_size ||
                                  before->info.batch_size != point->info.batch_size);
        point_line(out, point, is_moved);
    }
    fputs("</table></div>\n", out);
}

void rp_report_page(FILE *out, const struct rp_report *report)
{
    static const struct column contract[] = {{"field", "field"}, {"value", "value"}, {NULL, NULL}};
    char date[64];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &utc);
    fputs(style, out);
    rp_words_html(out, report->title);
    fputs(" - ringpack</title>\n</head>\n<body>\n<h1>", out);
    rp_words_html(out, report->title);
    fprintf(out, "</h1>\n<p class=\"meta\">%s, ringpack %s</p>\n", date, RP_VERSION);
    if (report->stat)
        engine(out, report->stat);
    if (report->path)
        checkpoints(out, report);
    objects(out, "The contract", json_object_get(report->stat, "contract"), contract);
    fputs("</body>\n</html>\n", out);
}
