/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_index.c — `ringpack index PATH...`: build the sidecar of each token file. With `-c CONFIG`,
 * one manifest of all its sources instead (index_manifest.c). */
#include <stdio.h>

#include "base/clock.h"
#include "cmd.h"
#include "declared.h"
#include "index_manifest.h"
#include "inspection.h"

static const char help[] =
    "Usage: ringpack index [options] PATH...\n"
    "  or:  ringpack index -c CONFIG [-o FILE] [--workers N]\n\n"
    "Read every token file once and leave PATH.rpx beside it: where its documents begin, its\n"
    "largest token id, and a hash of every 4 KiB block. Runs then start without a scan, know\n"
    "their corpus by its full fingerprint, and notice and locate a changed token. A sidecar is\n"
    "replaced whole or not at all. A directory stands for its files. Objects of stores are\n"
    "fetched into --index-dir, one at a time, and their sidecars stay there.\n"
    "With -c, all sources of a config get one manifest instead; `ringpack index -c x --help` has\n"
    "the options.\n\n" RP_DECLARED_HELP;

static int index_one(const char *path, const char *name, const struct rp_declared *declared,
                     json_t *list)
{
    struct rp_inspection inspection;
    struct rp_error error;
    struct rp_cmd_progress progress;
    char label[256], bytes_text[RP_CMD_TEXT_BYTES], count_text[RP_CMD_TEXT_BYTES];
    snprintf(label, sizeof label, "indexing %.200s", name);
    rp_cmd_progress_begin(&progress, label, true);
    progress.shown &= !declared->quiet;
    uint64_t started_ns = rp_now_ns();
    int code = rp_index_build(path, &declared->hints, declared->index_dir, rp_cmd_progress,
                              &progress, &error);
    double seconds = (double)(rp_now_ns() - started_ns) / 1e9;
    rp_cmd_progress_end(&progress);
    if (code == 0)
        code = rp_inspect(path, &declared->hints, declared->index_dir, false, NULL, NULL,
                          &inspection, &error);
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
    }
    return RP_EXIT_FINE;
}

int rp_cmd_index(int argc, char **argv)
{
    static const struct option options[] = {RP_DECLARED_OPTIONS, {0}};
    static const struct rp_declared_verb verb = {"index", help, options, index_one};
    return rp_cmd_index_has_config(argc, argv) ? rp_cmd_index_manifest(argc, argv)
                                               : rp_declared_run(&verb, argc, argv);
}
