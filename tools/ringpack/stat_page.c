/* SPDX-License-Identifier: Apache-2.0 */
#include "stat_page.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "cmd.h"

/* A text for people of one value. */
struct word {
    char text[RP_CMD_TEXT_BYTES];
};

static const struct word missing = {"-"};

static struct word count_word(const json_t *object, const char *key)
{
    struct word word = missing;
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value))
        rp_cmd_count_text((uint64_t)json_integer_value(value), word.text);
    return word;
}

static struct word bytes_word(const json_t *object, const char *key)
{
    struct word word = missing;
    const json_t *value = json_object_get(object, key);
    if (json_is_number(value))
        rp_cmd_bytes_text((uint64_t)json_number_value(value), word.text);
    return word;
}

static struct word seconds_word(const json_t *object, const char *key)
{
    struct word word = missing;
    const json_t *value = json_object_get(object, key);
    if (json_is_number(value))
        rp_cmd_seconds_text(json_number_value(value), word.text);
    return word;
}

static struct word share_word(const json_t *object, const char *key)
{
    struct word word = missing;
    const json_t *value = json_object_get(object, key);
    if (json_is_number(value))
        snprintf(word.text, sizeof word.text, "%.2f %%", 100 * json_number_value(value));
    return word;
}

/* Small numbers are printed with their decimals. */
static struct word speed_word(const json_t *object, const char *key)
{
    struct word word = missing;
    const json_t *value = json_object_get(object, key);
    double number = json_number_value(value);
    if (json_is_number(value) && number < 100)
        snprintf(word.text, sizeof word.text, "%.2f", number);
    else if (json_is_number(value))
        rp_cmd_short_text(number, word.text);
    return word;
}

static uint64_t count_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "-";
}

/* ---- the parts of the page ------------------------------------------------------------------- */

static void print_head(const json_t *stat)
{
    printf("run %s, pid %lld, up %s%s\n", text_of(stat, "run"), (long long)count_of(stat, "pid"),
           seconds_word(stat, "up_seconds").text,
           json_is_true(json_object_get(stat, "ended")) ? ", the stream has ended" : "");
    printf("step %s, next row %s; since the start at row %s: %s steps, %s batches,\n"
           "%s tokens in %s rows, fill %s\n",
           count_word(stat, "step").text, count_word(stat, "next_row").text,
           count_word(stat, "start_row").text, count_word(stat, "steps").text,
           count_word(stat, "batches").text, count_word(stat, "tokens").text,
           count_word(stat, "rows").text, share_word(stat, "fill").text);
}

static void print_speed(const json_t *stat)
{
    static const char *const rows[][2] = {
        {"last second", "_1s"}, {"last minute", "_1min"}, {"since the start", ""}};
    printf("\n%-18s%14s%14s%14s\n", "speed", "tokens/s", "steps/s", "read/s");
    for (size_t i = 0; i < RP_ARRAY_COUNT(rows); i++) {
        char tokens[48], steps[48], bytes[48];
        snprintf(tokens, sizeof tokens, "tokens_per_second%s", rows[i][1]);
        snprintf(steps, sizeof steps, "steps_per_second%s", rows[i][1]);
        snprintf(bytes, sizeof bytes, "read_bytes_per_second%s", rows[i][1]);
        printf("%-18s%14s%14s%14s\n", rows[i][0], speed_word(stat, tokens).text,
               speed_word(stat, steps).text, bytes_word(stat, bytes).text);
    }
}

static struct word rank_word(const json_t *rank, bool has_replicas)
{
    struct word word;
    long long number = (long long)count_of(rank, "rank");
    if (has_replicas)
        snprintf(word.text, sizeof word.text, "%lld.%lld", number,
                 (long long)count_of(rank, "replica"));
    else
        snprintf(word.text, sizeof word.text, "%lld", number);
    return word;
}

/* The waits, if there was one. */
static struct word wait_word(const json_t *rank, const char *key)
{
    return count_of(rank, "waits") ? seconds_word(rank, key) : missing;
}

static void print_rank(const json_t *rank, bool has_replicas)
{
    char ready[RP_CMD_TEXT_BYTES];
    snprintf(ready, sizeof ready, "%lld/%lld",
             (long long)(count_of(rank, "tail") - count_of(rank, "release")),
             (long long)count_of(rank, "slots"));
    printf("%-7s%-17s%9s%9s%10s%9s%9s%9s\n", rank_word(rank, has_replicas).text,
           text_of(rank, "state"), ready, count_word(rank, "behind_rows").text,
           count_word(rank, "waits").text, wait_word(rank, "wait_p50_seconds").text,
           wait_word(rank, "wait_p99_seconds").text, wait_word(rank, "wait_max_seconds").text);
}

/* The wait of a rank, as a phrase after "for". */
static struct word cause_word(const json_t *rank, bool has_replicas)
{
    static const char *const phrases[][2] = {
        {"disk", "the disk"},     {"network", "the object store"}, {"plan", "planning"},
        {"pack", "packing"},      {"trainer", "the trainer of"},   {"save", "a save"},
        {"engine", "the engine"},
    };
    const char *cause = text_of(rank, "cause");
    struct word word;
    snprintf(word.text, sizeof word.text, "%.20s", cause);
    for (size_t i = 0; i < RP_ARRAY_COUNT(phrases); i++)
        if (!strcmp(cause, phrases[i][0]))
            snprintf(word.text, sizeof word.text, "%s", phrases[i][1]);
    const json_t *holder = json_object_get(rank, "cause_rank");
    size_t used = strlen(word.text);
    if (json_is_integer(holder))
        snprintf(word.text + used, sizeof word.text - used, " rank %lld",
                 (long long)json_integer_value(holder));
    used = strlen(word.text);
    if (json_is_integer(holder) && has_replicas)
        snprintf(word.text + used, sizeof word.text - used, ".%lld",
                 (long long)count_of(rank, "cause_replica"));
    return word;
}

/* Its waits since the start, as far as they were seen. */
static void print_causes(const json_t *rank, const char *name)
{
    json_t *causes = json_object_get(rank, "cause_seconds");
    const char *separator = "";
    for (void *i = json_object_iter(causes); i; i = json_object_iter_next(causes, i)) {
        if (json_number_value(json_object_iter_value(i)) <= 0)
            continue;
        if (!*separator)
            printf("rank %s has waited for: ", name);
        printf("%s%.20s %s", separator, json_object_iter_key(i),
               seconds_word(causes, json_object_iter_key(i)).text);
        separator = ", ";
    }
    if (*separator)
        putchar('\n');
}

/* The problems of a rank, in sentences below the table. */
static void print_remarks(const json_t *rank, bool has_replicas)
{
    struct word name = rank_word(rank, has_replicas);
    print_causes(rank, name.text);
    if (json_number_value(json_object_get(rank, "waiting_seconds")) > 0)
        printf("rank %s now waits for %s, since %s\n", name.text,
               cause_word(rank, has_replicas).text, seconds_word(rank, "waiting_seconds").text);
    if (json_is_true(json_object_get(rank, "holds")))
        printf("rank %s holds the others: its ring is full, and they wait for the next batch\n",
               name.text);
    if (json_is_true(json_object_get(rank, "quarantined")))
        printf("rank %s broke the protocol: it gets no batches until it attaches again\n",
               name.text);
}

static void print_ranks(const json_t *stat)
{
    const json_t *ranks = json_object_get(stat, "ranks");
    bool has_replicas = count_of(stat, "replicas") > 1;
    printf("\n%-7s%-17s%9s%9s%10s%9s%9s%9s\n", "rank", "", "in ring", "behind", "waits", "p50",
           "p99", "longest");
    for (size_t i = 0; i < json_array_size(ranks); i++)
        print_rank(json_array_get(ranks, i), has_replicas);
    for (size_t i = 0; i < json_array_size(ranks); i++)
        print_remarks(json_array_get(ranks, i), has_replicas);
    if (count_of(stat, "skew_rows") > 0)
        printf("the last rank is %s rows behind the first\n", count_word(stat, "skew_rows").text);
    const json_t *waiting = json_object_get(stat, "micro_step_imbalance");
    if (json_is_real(waiting))
        printf("cost of the costliest rank by the mean one: %.3f in all, %.3f with a barrier for "
               "each micro-step\n",
               json_number_value(json_object_get(stat, "cost_imbalance")),
               json_number_value(waiting));
}

static void print_ledger(const json_t *stat)
{
    const json_t *ledger = json_object_get(stat, "ledger");
    if (count_of(stat, "ledger_row") != count_of(stat, "next_row"))
        printf("\nsources as they were at row %s", count_word(stat, "ledger_row").text);
    printf("\n%-20s%20s%10s%10s%12s%8s\n", "sources", "tokens", "share", "weight", "documents",
           "epochs");
    for (size_t i = 0; i < json_array_size(ledger); i++) {
        const json_t *source = json_array_get(ledger, i);
        printf("%-20.30s%20s%10s%10s%12s%8s\n", text_of(source, "source"),
               count_word(source, "tokens").text, share_word(source, "token_share").text,
               share_word(source, "weight_share").text, count_word(source, "documents").text,
               speed_word(source, "epochs").text);
    }
    if (!json_is_integer(json_object_get(json_array_get(ledger, 0), "planned")))
        return; /* stream version 1 */
    printf("%-20s%20s%13s%13s%13s\n", "tokens", "planned", "delivered", "waiting", "withheld");
    for (size_t i = 0; i < json_array_size(ledger); i++) {
        const json_t *source = json_array_get(ledger, i);
        printf("%-20.30s%20s%13s%13s%13s\n", text_of(source, "source"),
               count_word(source, "planned").text, count_word(source, "delivered").text,
               count_word(source, "waiting").text, count_word(source, "withheld").text);
    }
}

/* Saves, or the copies of them. */
struct saves {
    const char *label, *count, *age, *row, *bytes, *seconds, *failures, *error;
};
static const struct saves saves_keys = {"saves",         "saves",      "save_age_seconds",
                                        "save_row",      "save_bytes", "save_seconds",
                                        "save_failures", "save_error"};
static const struct saves copies_keys = {"copies",        "copies",     "copy_age_seconds",
                                         "copy_row",      "copy_bytes", "copy_seconds",
                                         "copy_failures", "copy_error"};

static void print_saves(const json_t *stat, const struct saves *keys)
{
    printf("%-10s%s", keys->label, count_word(stat, keys->count).text);
    if (json_is_number(json_object_get(stat, keys->age)))
        printf(", the last one %s ago: row %s, %s in %s", seconds_word(stat, keys->age).text,
               count_word(stat, keys->row).text, bytes_word(stat, keys->bytes).text,
               seconds_word(stat, keys->seconds).text);
    putchar('\n');
    if (count_of(stat, keys->failures) > 0)
        printf("%10s%s failed; the last try: %s\n", "", count_word(stat, keys->failures).text,
               json_is_null(json_object_get(stat, keys->error)) ? "succeeded"
                                                                : text_of(stat, keys->error));
}

/* Alerts that are raised now. */
static void print_alerts(const json_t *stat)
{
    const json_t *alerts = json_object_get(stat, "alerts");
    for (size_t i = 0; i < json_array_size(alerts); i++) {
        const json_t *alert = json_array_get(alerts, i);
        if (json_is_true(json_object_get(alert, "raised")))
            printf("%-10s%s, for %s: %s\n", "alert", text_of(alert, "alert"),
                   seconds_word(alert, "age_seconds").text, text_of(alert, "message"));
    }
}

/* How tokens were taken recently, and why: in lines of their own, because 80 columns have room for
 * one of them. */
static void print_ways(const json_t *stat)
{
    if (!json_is_number(json_object_get(stat, "mapped_share")))
        return;
    printf("%-10s%.0f %% mapped, %.0f %% through the page cache, %.0f %% past it\n", "",
           100 * json_number_value(json_object_get(stat, "mapped_share")),
           100 * json_number_value(json_object_get(stat, "buffered_share")),
           100 * json_number_value(json_object_get(stat, "direct_share")));
    if (json_is_number(json_object_get(stat, "page_cache_bytes")))
        printf("%-10sthe page cache holds %s of the corpus, has room for %s\n", "",
               bytes_word(stat, "page_cache_bytes").text,
               bytes_word(stat, "page_cache_room_bytes").text);
    else
        printf("%-10s%s\n", "", text_of(stat, "io_reason"));
}

static void print_safety(const json_t *stat)
{
    putchar('\n');
    print_alerts(stat);
    print_saves(stat, &saves_keys);
    if (count_of(stat, "copies") + count_of(stat, "copy_failures") > 0)
        print_saves(stat, &copies_keys);
    printf("%-10s%s rows\n", "not saved", count_word(stat, "unsaved_rows").text);
    printf("%-10s%s; %s read; %s of the corpus is verified as it is read\n", "reading",
           text_of(stat, "io"), bytes_word(stat, "read_bytes").text,
           json_number_value(json_object_get(stat, "unverified_share")) > 0 ? "a part" : "all");
    print_ways(stat);
    if (json_object_get(stat, "cache_bytes_max"))
        printf("%-10s%s of at most %s; %s hits, %s misses, %s evicted\n", "cache",
               bytes_word(stat, "cache_held_bytes").text, bytes_word(stat, "cache_bytes_max").text,
               count_word(stat, "cache_hits").text, count_word(stat, "cache_misses").text,
               bytes_word(stat, "cache_evicted_bytes").text);
    printf("%-10s%s: %s of its own, %s shared, %s of files\n", "memory",
           bytes_word(stat, "resident_bytes").text, bytes_word(stat, "resident_private_bytes").text,
           bytes_word(stat, "resident_shared_bytes").text,
           bytes_word(stat, "resident_file_bytes").text);
}

void rp_status_page(const json_t *stat)
{
    print_head(stat);
    print_speed(stat);
    print_ranks(stat);
    print_ledger(stat);
    print_safety(stat);
    printf("\n`ringpack stat --json` has all that is known\n");
}
