/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_index.c — `ringpack index PATH...`: build the sidecar of each token file. With `-c CONFIG`,
 * the sidecars of all its sources, or one index of all of them, if the config names it
 * (index_corpus.c).
 *
 * A sync takes longer than indexing a small shard, so sidecars that are built within 200 ms are
 * published together. A shard is reported when its sidecar is on the disk. Each unpublished sidecar
 * is an open file: they take at most a quarter of those that the process may have. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/new_files.h"
#include "cmd.h"
#include "cmd_config.h"
#include "declared.h"
#include "index_corpus.h"
#include "inspection.h"
#include "interrupt.h"

#define TOGETHER_NS 200000000u

/* Sidecars that are built and not yet published. */
struct built {
    uint64_t first_ns; /* when the first of them was built */
    uint32_t most;     /* that are published together */
    struct rp_new_files sidecars;
    struct {
        char *path, *name;
        double seconds;
        struct rp_source_spec hints; /* shards of several sources are published together */
    } shards[RP_NEW_FILES_MAX];
};

/* Report an indexed shard. */
static int report(const char *path, const char *name, double seconds,
                  const struct rp_source_spec *hints, const struct rp_declared *declared,
                  json_t *list)
{
    struct rp_inspection inspection;
    struct rp_error error;
    char bytes_text[RP_CMD_TEXT_BYTES], count_text[RP_CMD_TEXT_BYTES];
    const struct rp_inspect_options options = {.hints = hints, .index_dir = declared->index_dir};
    int code = rp_inspect(path, &options, &inspection, &error);
    if (code < 0)
        return rp_cmd_report(&error);
    double rate = (double)inspection.bytes / 1e9 / seconds;
    if (declared->json) {
        json_t *entry = rp_inspection_json(name, &inspection);
        json_object_set_new(entry, "seconds", json_real(seconds));
        json_object_set_new(entry, "gb_per_second", json_real(rate));
        json_array_append_new(list, entry);
    } else {
        printf("%s: %s documents, %s at %.2f GB/s\n", name,
               rp_cmd_count_text(inspection.documents, count_text),
               rp_cmd_bytes_text(inspection.bytes, bytes_text), rate);
        rp_inspection_doubt(name, &inspection);
    }
    return RP_EXIT_FINE;
}

static int publish(const struct rp_declared *declared, json_t *list)
{
    struct built *built = declared->state;
    uint32_t count = built->sidecars.count;
    int status = RP_EXIT_FINE;
    rp_new_files_publish(&built->sidecars);
    for (uint32_t i = 0; i < count; i++) {
        int one = built->sidecars.codes[i] < 0
                      ? rp_cmd_report(&built->sidecars.errors[i])
                      : report(built->shards[i].path, built->shards[i].name,
                               built->shards[i].seconds, &built->shards[i].hints, declared, list);
        status = one == RP_EXIT_FINE ? status : one;
        free(built->shards[i].path);
        free(built->shards[i].name);
    }
    return status;
}

/* Keep the names of a shard, whose sidecar is the last of files. */
static int add(struct built *built, const char *path, const char *name, double seconds,
               const struct rp_source_spec *hints, struct rp_error *error)
{
    uint32_t at = built->sidecars.count;
    built->shards[at].path = strdup(path);
    built->shards[at].name = strdup(name);
    built->shards[at].seconds = seconds;
    built->shards[at].hints = *hints;
    if (built->shards[at].path && built->shards[at].name) {
        built->sidecars.count++;
        return 0;
    }
    free(built->shards[at].path);
    free(built->shards[at].name);
    rp_new_file_discard(&built->sidecars.files[at]);
    return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its name", name);
}

static int index_one(const char *path, const char *name, const struct rp_declared *declared,
                     json_t *list)
{
    struct built *built = declared->state;
    struct rp_error error;
    struct rp_cmd_progress progress;
    char label[256];
    snprintf(label, sizeof label, "indexing %.200s", name);
    rp_cmd_progress_begin(&progress, label, true);
    progress.shown &= !declared->quiet;
    uint64_t started_ns = rp_now_ns();
    const struct rp_progress report = {rp_cmd_progress, &progress};
    const struct rp_sidecar_build_options options = {
        .hints = &declared->hints,
        .index_dir = declared->index_dir,
        .unpublished = &built->sidecars.files[built->sidecars.count],
        .progress = &report};
    int code = rp_sidecar_build(path, &options, &error);
    uint64_t now_ns = rp_now_ns();
    rp_cmd_progress_end(&progress);
    if (code == 0)
        code = add(built, path, name, (double)(now_ns - started_ns) / 1e9, &declared->hints,
                   &error);
    if (built->sidecars.count == 1)
        built->first_ns = started_ns;
    int status = RP_EXIT_FINE;
    if (code < 0 || built->sidecars.count == built->most || now_ns - built->first_ns >= TOGETHER_NS)
        status = publish(declared, list);
    return code < 0 ? rp_cmd_report(&error) : status;
}

static uint32_t most_together(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return 1;
    return (uint32_t)rp_max_u64(1, rp_min_u64(RP_NEW_FILES_MAX, files.rlim_cur / 4));
}

/* With a config, its sources are indexed. */
static bool has_config(const struct rp_cmd_line *line)
{
    return line->path || line->setting_count > 0;
}

static int check(void *argument)
{
    struct rp_declared *declared = argument;
    struct rp_cmd_line *line = &declared->line;
    const struct rp_source_spec *hints = &declared->hints;
    bool declares = hints->format || hints->type || hints->eos != RP_EOS_NONE || hints->column ||
                    hints->mask.name || hints->mask.value || hints->mask.of;
    if (has_config(line) && line->count > 0)
        return rp_cmd_misuse("index", "`%s`: expected paths or a config, found both",
                             line->words[0]);
    if (has_config(line) && declares)
        return rp_cmd_misuse("index", "with -c, the sources of the config declare their files");
    if (!has_config(line) && (declared->output || declared->workers))
        return rp_cmd_misuse("index", "--output and --workers need -c CONFIG");
    if (!has_config(line) && line->count == 0)
        return rp_cmd_misuse("index", "expected at least one path, or -c CONFIG");
    if (has_config(line) && declared->index_dir && line->setting_count < RP_CMD_SETTINGS_MAX)
        line->settings[line->setting_count++] = (struct rp_cmd_setting){"index_dir",
                                                                        declared->index_dir};
    return RP_EXIT_FINE;
}

/* Every shard is listed, whatever the index says. */
static int finish(struct rp_cmd_line *line)
{
    line->config->ignores_index = true;
    return has_config(line) ? rp_cmd_config_finish(line) : RP_EXIT_FINE;
}

static int run(void *argument, const struct rp_config *config)
{
    static struct built built;
    static const struct rp_declared_verb walk = {index_one, publish, &built};
    struct rp_declared *declared = argument;
    built.most = most_together();
    return has_config(&declared->line) ? rp_cmd_index_config(&walk, declared, config)
                                       : rp_declared_run(&walk, declared);
}

static const struct rp_option options[] = {
    RP_DECLARED_OPTIONS,
    {RP_LOCAL("output", "FILE", struct rp_declared, output), .letter = 'o',
     .help = "with -c: one index of all sources (default: `index:`)"},
    {RP_COUNT("workers", "N", struct rp_declared, workers), .least = 1,
     .most = RP_INDEX_WORKERS_MAX, .help = "with -c: threads (default: the CPUs that it may use)"},
    {0}};

int rp_cmd_index(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "index",
        .usage = "PATH...\n-c CONFIG [-o FILE]",
        .help =
            "Read every token file once and write its sidecar PATH.rpi: the beginnings of its "
            "documents, its largest token id, and a hash of every 4 KiB block. Runs then start "
            "without a scan, know their corpus by its full fingerprint, and notice and locate a "
            "changed token.",
        .notes =
            "A sidecar is replaced whole or not at all. A directory stands for its files. Objects "
            "of stores are fetched into --index-dir, one at a time, and their sidecars stay "
            "there.\n\n"
            "With -c, the files of a config are indexed as their sources declare them: each gets "
            "its sidecar, or, if the config names one index for all of them (index: NAME.rpi), "
            "that is written. A run with it opens no shard at its start, so that it starts as fast "
            "with a million shards as with one. Only new shards are read: the older index or a "
            "sidecar is used if the shard has not been written to since. New shards that come "
            "after the others are appended. The same command continues after a kill.",
        .options = options,
        .takes = RP_TAKES_CONFIG,
        .words_most = SIZE_MAX,
        .check = check,
        .run = run,
        .finish = finish};
    struct rp_declared declared = {.hints = {.eos = RP_EOS_NONE}};
    rp_interrupt_catch_once();
    return rp_cmd_config_run(&verb, &declared, argc, argv);
}
