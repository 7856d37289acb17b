/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_inspect.c — `ringpack inspect PATH...`: the format of each path, the reason for it, and the
 * content. */

#include "checkpoint/checkpoint.h"
#include "checkpoint_show.h"
#include "cmd.h"
#include "cmd_state.h"
#include "column_inspection.h"
#include "declared.h"
#include "corpus/index/index.h"
#include "corpus/side_file.h"
#include "object/url.h"
#include "index_inspection.h"
#include "inspection.h"
#include "interrupt.h"

/* A checkpoint, or a file with a state token. */
static int inspect_state(const char *path, bool json, json_t *list)
{
    json_t *value = NULL;
    int status = rp_show_path(path, json ? &value : NULL);
    if (value)
        json_array_append_new(list, value);
    return status;
}

static int inspect_one(const char *path, const char *name, const struct rp_declared *declared,
                       json_t *list)
{
    struct rp_inspection inspection;
    struct rp_error error;
    struct rp_cmd_progress progress;
    if (rp_index_is_file(path) || (rp_url_is(path) && rp_url_has_suffix(path, RP_INDEX_SUFFIX)))
        return rp_cmd_inspect_index(path, declared->scan, declared->json, declared->quiet, list);
    if (rp_sidefile_is_file(path))
        return rp_cmd_inspect_column(path, declared->scan, declared->json, list);
    if (rp_checkpoint_is_file(path) || rp_cmd_is_state(path))
        return inspect_state(path, declared->json, list);
    rp_cmd_progress_begin(&progress, name, true);
    progress.shown &= !declared->quiet;
    const struct rp_progress report = {rp_cmd_progress, &progress};
    const struct rp_inspect_options options = {.hints = &declared->hints,
                                               .index_dir = declared->index_dir,
                                               .scan_tokens = declared->scan,
                                               .progress = &report};
    int code = rp_inspect(path, &options, &inspection, &error);
    rp_cmd_progress_end(&progress);
    if (code < 0)
        return rp_cmd_report(&error);
    if (declared->json)
        json_array_append_new(list, rp_inspection_json(name, &inspection));
    else
        rp_inspection_print(name, &inspection);
    return RP_EXIT_FINE;
}

static const struct rp_option options[] = {
    {RP_FLAG("scan", struct rp_declared, scan),
     .help = "read every token, to find the largest id without an index; of an index or a side "
             "column, compare every block with its hash"},
    RP_DECLARED_OPTIONS,
    {0}};

int rp_cmd_inspect(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "inspect",
        .usage = "PATH...",
        .help = "Print the format of token files and the reason for it, the number and lengths of "
                "their documents, their largest token id, and their fingerprint.",
        .notes = "A Megatron dataset may be named by prefix, .bin or .idx; a directory stands for "
                 "its files. For an index or a side column, its contents are printed; for a "
                 "checkpoint, or a file with a state token, the output of `ringpack checkpoint "
                 "show`.",
        .options = options,
        .words_least = 1,
        .words_most = SIZE_MAX,
        .expected = "at least one path"};
    static const struct rp_declared_verb walk = {.one = inspect_one};
    struct rp_declared declared = {.hints = {.eos = RP_EOS_NONE}};
    rp_interrupt_catch_once();
    if (rp_cmd_parse(&verb, argc, argv, &declared) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    return rp_declared_run(&walk, &declared);
}
