/* SPDX-License-Identifier: Apache-2.0 */
#include "top/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "cmd.h"

#define COLUMNS_LEAST 60
#define LINES_LEAST 8
#define BAR_LEAST 10
#define BAR_MOST 40

static const char *const order_words[] = {"name", "speed", "state"};

/* ---- order ----------------------------------------------------------------------------------- */

struct entry {
    const struct rp_watched *run;
};

struct sorted {
    struct entry entries[RP_WATCHED_MAX];
    size_t count;
};

static double speed_of(const struct rp_watched *run)
{
    bool runs = run->state == RP_WATCH_RUNNING;
    return runs ? rp_watch_number(run->stat, "tokens_per_second_1s") : -1;
}

static int by_name(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    return strcmp(left->run->run, right->run->run);
}

static int by_speed(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    double l = speed_of(left->run), r = speed_of(right->run);
    return l > r ? -1 : l < r ? 1 : by_name(a, b);
}

static int by_state(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    int apart = (int)left->run->state - (int)right->run->state;
    return apart ? apart : by_name(a, b);
}

static struct sorted sort(const struct rp_view *view, const struct rp_watch *watch)
{
    static int (*const compares[])(const void *, const void *) = {by_name, by_speed, by_state};
    struct sorted sorted = {.count = watch->count};
    for (size_t i = 0; i < watch->count; i++)
        sorted.entries[i].run = &watch->runs[i];
    qsort(sorted.entries, sorted.count, sizeof(struct entry), compares[view->order]);
    return sorted;
}

/* The place of the chosen run; 0 if it is not there any more. */
static size_t place_of(const struct rp_view *view, const struct sorted *sorted)
{
    for (size_t i = 0; i < sorted->count; i++)
        if (!strcmp(sorted->entries[i].run->run, view->chosen))
            return i;
    return 0;
}

void rp_view_press(struct rp_view *view, enum rp_key key, const struct rp_watch *watch)
{
    struct sorted sorted = sort(view, watch);
    size_t place = place_of(view, &sorted);
    if (key == RP_KEY_SORT)
        view->order = (view->order + 1) % RP_VIEW_ORDERS;
    if (key == RP_KEY_DETAIL)
        view->is_detailed = !view->is_detailed;
    if (key == RP_KEY_UP && place > 0)
        place--;
    if (key == RP_KEY_DOWN && place + 1 < sorted.count)
        place++;
    if (sorted.count > 0)
        snprintf(view->chosen, sizeof view->chosen, "%s", sorted.entries[place].run->run);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static const char *seconds_of(const json_t *object, const char *key, char text[RP_CMD_TEXT_BYTES])
{
    double seconds = rp_watch_number(object, key);
    return seconds < 0 ? "-" : rp_cmd_seconds_text(seconds, text);
}

static const char *count_of(const json_t *object, const char *key, char text[RP_CMD_TEXT_BYTES])
{
    double count = rp_watch_number(object, key);
    return count < 0 ? "-" : rp_cmd_count_text((uint64_t)count, text);
}

static const char *short_of(const json_t *object, const char *key, char text[RP_CMD_TEXT_BYTES])
{
    double value = rp_watch_number(object, key);
    return value < 0 ? "-" : rp_cmd_short_text(value, text);
}

/* In full as long as the digits and their commas fit into a column of 12, with a space. */
static const char *row_of(const json_t *stat, char text[RP_CMD_TEXT_BYTES])
{
    bool is_long = rp_watch_number(stat, "next_row") >= 1e9;
    return is_long ? short_of(stat, "next_row", text) : count_of(stat, "next_row", text);
}

static const char *bytes_of(const json_t *object, const char *key, char text[RP_CMD_TEXT_BYTES])
{
    double bytes = rp_watch_number(object, key);
    return bytes < 0 ? "-" : rp_cmd_bytes_text((uint64_t)bytes, text);
}

static enum rp_ink ink_of(const struct rp_watched *run)
{
    return run->state == RP_WATCH_RUNNING    ? RP_INK_WELL
           : run->state == RP_WATCH_FINISHED ? RP_INK_DIM
                                             : RP_INK_ILL;
}

/* How tokens were taken recently, in percent of their bytes. */
struct ways {
    bool is_known;
    double mapped, buffered, direct;
};

static struct ways ways_of(const json_t *stat)
{
    double mapped = rp_watch_number(stat, "mapped_share");
    return (struct ways){.is_known = mapped >= 0,
                         .mapped = 100 * mapped,
                         .buffered = 100 * rp_watch_number(stat, "buffered_share"),
                         .direct = 100 * rp_watch_number(stat, "direct_share")};
}

static const char *short_ways_of(const json_t *stat, char text[RP_CMD_TEXT_BYTES])
{
    struct ways ways = ways_of(stat);
    if (!ways.is_known)
        return "-";
    snprintf(text, RP_CMD_TEXT_BYTES, "%.0f/%.0f/%.0f", ways.mapped, ways.buffered, ways.direct);
    return text;
}

/* ---- one line for each engine ---------------------------------------------------------------- */

static void draw_engine(struct rp_screen *screen, int line, const struct rp_watched *run,
                        bool is_chosen)
{
    char row[RP_CMD_TEXT_BYTES], speed[RP_CMD_TEXT_BYTES], unsaved[RP_CMD_TEXT_BYTES],
        ways[RP_CMD_TEXT_BYTES];
    enum rp_ink ink = is_chosen ? RP_INK_CHOSEN : RP_INK_PLAIN;
    if (run->state != RP_WATCH_RUNNING) {
        rp_screen_put(screen, line, 0, ink, "%-16.16s ", run->run);
        rp_screen_put(screen, line, 17, ink_of(run), "%s", run->why);
        return;
    }
    rp_screen_put(screen, line, 0, ink, "%-16.16s %-8s%12s%9s%6.1f %%%6zu/%-2zu%8s%9s", run->run,
                  rp_watch_state_word(run->state), row_of(run->stat, row),
                  short_of(run->stat, "tokens_per_second_1s", speed),
                  100 * rp_watch_number(run->stat, "fill"), rp_watch_attached(run->stat),
                  json_array_size(json_object_get(run->stat, "ranks")),
                  short_of(run->stat, "unsaved_rows", unsaved), short_ways_of(run->stat, ways));
    if (!is_chosen)
        rp_screen_put(screen, line, 17, RP_INK_WELL, "%s", rp_watch_state_word(run->state));
}

/* ---- all of one engine ----------------------------------------------------------------------- */

/* The present wait of the rank and its length, or the cause of most of its waits. */
static const char *trouble_of(const json_t *rank, char text[80])
{
    char seconds[RP_CMD_TEXT_BYTES];
    if (json_is_true(json_object_get(rank, "quarantined")))
        return "quarantined: its trainer broke the protocol";
    if (json_is_true(json_object_get(rank, "holds")))
        return "others wait for it";
    if (!json_is_true(json_object_get(rank, "attached")))
        return "no trainer";
    const char *cause = json_string_value(json_object_get(rank, "cause"));
    bool waits = rp_watch_number(rank, "waiting_seconds") > 0 && cause;
    const char *most = rp_watch_most_cause(rank);
    if (waits && json_is_integer(json_object_get(rank, "cause_rank")))
        snprintf(text, 80, "%.16s %.0f, %s", cause, rp_watch_number(rank, "cause_rank"),
                 seconds_of(rank, "waiting_seconds", seconds));
    else if (waits)
        snprintf(text, 80, "%.16s, %s", cause, seconds_of(rank, "waiting_seconds", seconds));
    else
        snprintf(text, 80, "%s%.16s", most ? "mostly " : "", most ? most : "");
    return text;
}

static void draw_rank(struct rp_screen *screen, int line, int bar, const json_t *rank)
{
    char number[32], p99[RP_CMD_TEXT_BYTES], waits[RP_CMD_TEXT_BYTES], behind[RP_CMD_TEXT_BYTES],
        cells[BAR_MOST + 1], trouble[80];
    double slots = rp_watch_number(rank, "slots"), tail = rp_watch_number(rank, "tail");
    double ready = tail - rp_watch_number(rank, "release");
    int full = slots > 0 && ready > 0 ? (int)(bar * (ready < slots ? ready / slots : 1)) : 0;
    for (int i = 0; i < bar; i++)
        cells[i] = i < full ? '#' : '.';
    cells[bar] = '\0';
    snprintf(number, sizeof number, "%.0f/%.0f", rp_watch_number(rank, "rank"),
             rp_watch_number(rank, "replica"));
    rp_screen_put(screen, line, 2, RP_INK_PLAIN, "%-8s[%s]%4.0f/%-4.0f%9s%9s%9s  %s", number, cells,
                  ready, slots, short_of(rank, "waits", waits),
                  seconds_of(rank, "wait_p99_seconds", p99), short_of(rank, "behind_rows", behind),
                  trouble_of(rank, trouble));
}

static int draw_ranks(struct rp_screen *screen, int line, const json_t *stat)
{
    const json_t *ranks = json_object_get(stat, "ranks");
    int room = rp_screen_columns(screen) - 65;
    int bar = room < BAR_LEAST ? BAR_LEAST : room > BAR_MOST ? BAR_MOST : room;
    rp_screen_put(screen, line++, 2, RP_INK_DIM, "%-8s%-*s%9s%9s%9s%9s  %s", "rank", bar + 2,
                  "ring", "ready", "waits", "99 % in", "behind", "waits for");
    for (size_t i = 0; i < json_array_size(ranks); i++)
        draw_rank(screen, line++, bar, json_array_get(ranks, i));
    return line;
}

static int draw_alerts(struct rp_screen *screen, int line, const json_t *stat)
{
    const json_t *alerts = json_object_get(stat, "alerts");
    char since[RP_CMD_TEXT_BYTES];
    for (size_t i = 0; i < json_array_size(alerts); i++) {
        const json_t *alert = json_array_get(alerts, i);
        const char *name = json_string_value(json_object_get(alert, "alert"));
        const char *message = json_string_value(json_object_get(alert, "message"));
        if (name && message && json_is_true(json_object_get(alert, "raised")))
            rp_screen_put(screen, line++, 2, RP_INK_ILL, "alert %s, %s: %s", name,
                          seconds_of(alert, "age_seconds", since), message);
    }
    return line;
}

static int draw_saves(struct rp_screen *screen, int line, const json_t *stat)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES], d[RP_CMD_TEXT_BYTES];
    const char *error = json_string_value(json_object_get(stat, "save_error"));
    bool is_ill = rp_watch_number(stat, "save_failures") > 0;
    rp_screen_put(screen, line++, 2, is_ill ? RP_INK_ILL : RP_INK_PLAIN,
                  "saves %s, %s failed; the last one %s ago, %s in %s", count_of(stat, "saves", a),
                  count_of(stat, "save_failures", b), seconds_of(stat, "save_age_seconds", c),
                  bytes_of(stat, "save_bytes", d),
                  seconds_of(stat, "save_seconds", (char[RP_CMD_TEXT_BYTES]){0}));
    if (error)
        rp_screen_put(screen, line++, 2, RP_INK_ILL, "%s", error);
    return line;
}

static void draw_sources(struct rp_screen *screen, int line, const json_t *stat)
{
    const json_t *ledger = json_object_get(stat, "ledger");
    char tokens[RP_CMD_TEXT_BYTES];
    if (json_array_size(ledger) == 0)
        return;
    rp_screen_put(screen, line++, 2, RP_INK_DIM, "%-20s%12s%10s%10s%12s", "source", "tokens",
                  "share", "weight", "epochs");
    for (size_t i = 0; i < json_array_size(ledger); i++) {
        const json_t *source = json_array_get(ledger, i);
        const char *name = json_string_value(json_object_get(source, "source"));
        rp_screen_put(
            screen, line++, 2, RP_INK_PLAIN, "%-20.20s%12s%8.2f %%%8.2f %%%12.3f", name ? name : "",
            short_of(source, "tokens", tokens), 100 * rp_watch_number(source, "token_share"),
            100 * rp_watch_number(source, "weight_share"), rp_watch_number(source, "epochs"));
    }
}

static int draw_ways(struct rp_screen *screen, int line, const json_t *stat)
{
    struct ways ways = ways_of(stat);
    if (ways.is_known)
        rp_screen_put(
            screen, line++, 2, RP_INK_PLAIN,
            "reads %.0f %% mapped, %.0f %% buffered, %.0f %% direct (past the page cache)",
            ways.mapped, ways.buffered, ways.direct);
    return line;
}

static void draw_detail(struct rp_screen *screen, int line, const struct rp_watched *run)
{
    char uptime[RP_CMD_TEXT_BYTES], minute[RP_CMD_TEXT_BYTES], read[RP_CMD_TEXT_BYTES],
        memory[RP_CMD_TEXT_BYTES];
    rp_screen_put(screen, line, 0, RP_INK_TITLE, "%s", run->run);
    rp_screen_put(screen, line++, (int)strlen(run->run) + 2, ink_of(run), "%s", run->why);
    if (run->state != RP_WATCH_RUNNING)
        return;
    rp_screen_put(screen, line++, 2, RP_INK_PLAIN,
                  "up %s, step %.0f, %s tokens/s in the last minute, reads %s/s, memory %s",
                  seconds_of(run->stat, "up_seconds", uptime), rp_watch_number(run->stat, "step"),
                  short_of(run->stat, "tokens_per_second_1min", minute),
                  bytes_of(run->stat, "read_bytes_per_second_1s", read),
                  bytes_of(run->stat, "resident_bytes", memory));
    line = draw_ways(screen, line, run->stat);
    line = draw_alerts(screen, line, run->stat);
    line = draw_saves(screen, line, run->stat);
    line = draw_ranks(screen, line, run->stat);
    draw_sources(screen, line + 1, run->stat);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void draw_refusal(struct rp_screen *screen)
{
    rp_screen_put(screen, 0, 0, RP_INK_ILL, "ringpack top");
    rp_screen_put(screen, 1, 0, RP_INK_PLAIN, "needs %d x %d", COLUMNS_LEAST, LINES_LEAST);
    rp_screen_put(screen, 2, 0, RP_INK_PLAIN, "this is %d x %d", rp_screen_columns(screen),
                  rp_screen_lines(screen));
    rp_screen_put(screen, 3, 0, RP_INK_PLAIN, "q quits");
}

static void draw_head(struct rp_screen *screen, const struct rp_view *view, size_t count)
{
    char clock[16];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(clock, sizeof clock, "%H:%M:%S", &local);
    rp_screen_put(screen, 0, 0, RP_INK_TITLE, "ringpack top  %s  %zu engine%s, by %s", clock, count,
                  count == 1 ? "" : "s", order_words[view->order]);
    rp_screen_put(screen, rp_screen_lines(screen) - 1, 0, RP_INK_DIM,
                  "q quit   s sort   d detail   up/down choose");
    if (view->trouble[0])
        rp_screen_put(screen, 1, 0, RP_INK_ILL, "%s", view->trouble);
    else if (count == 0)
        rp_screen_put(screen, 1, 0, RP_INK_DIM, "no engine is running");
    else
        rp_screen_put(screen, 1, 0, RP_INK_DIM, "%-16s %-8s%12s%9s%8s%9s%8s%9s", "run", "state",
                      "next row", "tokens/s", "fill", "trainers", "unsaved", "m/b/d %");
}

void rp_view_draw(struct rp_view *view, struct rp_screen *screen, const struct rp_watch *watch)
{
    rp_screen_begin(screen);
    int lines = rp_screen_lines(screen);
    struct sorted sorted = sort(view, watch);
    size_t place = place_of(view, &sorted);
    if (rp_screen_columns(screen) < COLUMNS_LEAST || lines < LINES_LEAST) {
        draw_refusal(screen);
        rp_screen_show(screen);
        return;
    }
    /* the lines of the engines, so that the chosen one is among them */
    size_t room = (size_t)(lines - 3);
    if (view->is_detailed)
        room = rp_min_u64(room, 1 + (size_t)lines / 6);
    size_t shown = rp_min_u64(room, sorted.count), first = place < shown ? 0 : place - shown + 1;
    for (size_t i = 0; i < shown; i++)
        draw_engine(screen, 2 + (int)i, sorted.entries[first + i].run, first + i == place);
    if (view->is_detailed && sorted.count > 0)
        draw_detail(screen, 3 + (int)shown, sorted.entries[place].run);
    draw_head(screen, view, sorted.count);
    rp_screen_show(screen);
}
