/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/origin.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "cmd.h"
#include "cmd_run.h"
#include "cmd_state.h"
#include "plan/plan.h"

/* ---- a checkpoint ---------------------------------------------------------------------------- */

static int take_position(struct rp_origin *origin, struct rp_error *error)
{
    struct rp_state_info info;
    int code = rp_state_info(origin->token, origin->token_bytes, &info, error);
    if (code < 0)
        return rp_fail_context(error, code, "%s", origin->path);
    origin->position = origin->base_known = info.next_row;
    origin->has_position = true;
    return 0;
}

/* A trainer's state token has no config, and it may be from within a step. */
static int take_state_file(struct rp_origin *origin, struct rp_error *error)
{
    int code = rp_cmd_read_state(origin->path, &origin->token, &origin->token_bytes, error);
    if (code == 0)
        code = take_position(origin, error);
    origin->base_known = 0;
    return code;
}

/* The steps of the run that saved the checkpoint, if its config is whole without the keys that are
 * not kept. */
static void note_kept_steps(struct rp_origin *origin, const char *path)
{
    struct rp_config kept;
    struct rp_error reason;
    rp_config_init(&kept);
    if (rp_cmd_config_read_file(&kept, path, &reason) >= 0 && rp_config_finish(&kept, &reason) >= 0)
        origin->kept = rp_steps_of(&kept, 0);
    rp_config_free(&kept);
}

static int take_checkpoint(struct rp_origin *origin, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint = NULL;
    int code = rp_cmd_open_checkpoint(&checkpoint, origin->path, error);
    if (code < 0)
        return code;
    code = rp_cmd_copy_section(checkpoint, RP_CHECKPOINT_STATE, &origin->token,
                               &origin->token_bytes, error);
    if (code == 0)
        code = take_position(origin, error);
    if (code == 0)
        code = rp_cmd_copy_section(checkpoint, RP_CHECKPOINT_CONTRACT, &origin->contract,
                                   &origin->contract_bytes, error);
    if (code == 0 && !origin->line.path)
        code = rp_cmd_config_read_file(origin->line.config, rp_checkpoint_path(checkpoint), error);
    else if (code == 0)
        note_kept_steps(origin, rp_checkpoint_path(checkpoint));
    origin->checkpoint = rp_origin_absolute(rp_checkpoint_path(checkpoint));
    rp_checkpoint_close(checkpoint);
    return code;
}

static int take_path(struct rp_origin *origin, struct rp_error *error)
{
    if (!rp_cmd_is_state(origin->path))
        return take_checkpoint(origin, error);
    if (!origin->line.path && !rp_cmd_config_given(&origin->line, "sources"))
        return rp_fail(error, -RP_E_USAGE, "give it: `-c CONFIG`",
                       "%s is a state token, which has no config", origin->path);
    return take_state_file(origin, error);
}

/* Whether a file reads as a config. */
static bool is_config(const char *path)
{
    struct rp_config config;
    struct rp_error reason;
    rp_config_init(&config);
    bool is_one = rp_config_read(&config, path, &reason) >= 0;
    rp_config_free(&config);
    return is_one;
}

/* A running engine, and which of its streams. */
static int take_engine(struct rp_origin *origin, const char *run, const char *run_dir,
                       struct rp_error *error)
{
    const char *stream = rp_cmd_config_given(&origin->line, "stream");
    int code = stream ? rp_cmd_run_stream(run_dir, &run, stream, error) : 0;
    return code < 0 ? code : rp_origin_of_engine(origin, run, run_dir, error);
}

/* The word of the command line: a path, or the name of a run where no such path is. */
static int take_word(struct rp_origin *origin, const char *run_dir, struct rp_error *error)
{
    struct stat info;
    const char *word = origin->path;
    if (!origin->line.path && rp_cmd_is_run(word)) {
        int code = take_engine(origin, word, run_dir, error);
        return code != -RP_E_GONE
                   ? code
                   : rp_fail(error, code, "give a checkpoint, a directory of them, or a run",
                             "%s: no file has that name, and no engine of that name answers", word);
    }
    bool is_file = stat(word, &info) == 0 && S_ISREG(info.st_mode);
    if (is_file && !rp_checkpoint_is_file(word) && !rp_cmd_is_state(word) && is_config(word))
        return rp_fail(error, -RP_E_USAGE, "give it as one: `-c CONFIG`",
                       "%s is a config; expected a checkpoint, a state token or a run", word);
    return take_path(origin, error);
}

/* ---- all of them ----------------------------------------------------------------------------- */

int rp_origin_finish(struct rp_cmd_line *arguments)
{
    struct rp_origin *origin = (struct rp_origin *)arguments;
    struct rp_error error = {0};
    const char *run = rp_cmd_config_given(arguments, "run");
    bool describes = arguments->path || rp_cmd_config_given(arguments, "sources");
    int code = 0;
    const char *run_dir = rp_cmd_config_given(arguments, "run_dir");
    origin->path = arguments->words[0];
    /* A config says which stream of a state is meant; a checkpoint and a run give the config. */
    bool reads_first = arguments->path ||
                       (describes && origin->path && rp_cmd_is_state(origin->path));
    if (reads_first)
        code = rp_cmd_config_read(arguments, &error);
    if (code == 0 && origin->path)
        code = take_word(origin, run_dir, &error);
    else if (code == 0 && !describes && run)
        code = take_engine(origin, run, run_dir, &error);
    else if (code == 0 && !describes)
        code = rp_fail(&error, -RP_E_USAGE, "give `-c CONFIG`, a checkpoint, or the name of a run",
                       "no stream was named");
    if (code == 0 && !reads_first)
        code = rp_cmd_config_read(arguments, &error);
    return code < 0 ? rp_cmd_report(&error)
                    : rp_cmd_config_end_at(arguments, origin->token, origin->token_bytes);
}

void rp_origin_free(struct rp_origin *origin)
{
    free(origin->checkpoint);
    free(origin->token);
    free(origin->contract);
    origin->checkpoint = origin->token = origin->contract = NULL;
}

char *rp_origin_absolute(const char *path)
{
    char directory[PATH_MAX];
    if (path[0] == '/' || !getcwd(directory, sizeof directory))
        return strdup(path);
    return rp_asprintf("%s/%s", directory, path);
}

static int find_steps(const struct rp_origin *origin, const struct rp_config *config, bool by_step,
                      struct rp_steps *steps, struct rp_error *error)
{
    *steps = rp_steps_of(config, origin->base_row);
    uint64_t known = origin->base_known;
    const struct rp_steps *kept = &origin->kept;
    const struct rp_steps from_0 = rp_steps_of(config, 0);
    bool is_kept = !kept->rows || rp_steps_are_equal(kept, steps);
    bool begins = rp_steps_begin(&from_0, known) &&
                  (!origin->has_step ||
                   rp_steps_place(&from_0, origin->position).step == origin->step);
    steps->is_counted = origin->base_row_given || (begins && is_kept);
    if (!steps->is_counted && by_step && !is_kept)
        return rp_fail(error, -RP_E_USAGE,
                       "leave -c out: the checkpoint keeps its config. Or give --base-row ROW, the "
                       "row at which the steps of the config begin",
                       "the run that saved %s has steps of %" PRIu64 " rows, %" PRIu32
                       " ranks and batches of %" PRIu32 ", and the config has %" PRIu64 ", %" PRIu32
                       " and %" PRIu32 ": which one is step N?",
                       origin->checkpoint, kept->rows, kept->ranks, kept->batch_rows, steps->rows,
                       steps->ranks, steps->batch_rows);
    if (steps->is_counted || !by_step)
        return 0;
    return rp_fail(error, -RP_E_USAGE,
                   "give --base-row ROW, a row at which a step begins: steps are counted from "
                   "there. Or ask by --row",
                   "a step begins at row %" PRIu64 ", which is no multiple of the global batch, "
                   "%" PRIu64 " rows: so steps are not counted from row 0",
                   known, steps->rows);
}

static int compare_stream(const struct rp_origin *origin, const struct rp_walk *walk,
                          struct rp_error *error)
{
    char hex[RP_HASH_HEX_BYTES];
    if (!origin->stream[0] || !strcmp(rp_hash128_hex(walk->identity, hex), origin->stream))
        return 0;
    return rp_fail(
        error, -RP_E_MISMATCH,
        "give a checkpoint of the engine, which also has weights that were declared with "
        "`ringpack weights`; or the config that it was started with",
        "the engine serves the stream %s, and its config now gives stream %s: the "
        "config, the corpus or the weights were changed since it was started",
        origin->stream, hex);
}

int rp_origin_open(const struct rp_origin *origin, const struct rp_config *config, bool by_step,
                   struct rp_walk *walk, struct rp_steps *steps, struct rp_error *error)
{
    struct rp_row row;
    struct rp_contract contract;
    bool is_known = origin->contract && rp_contract_open(&contract, origin->contract,
                                                         origin->contract_bytes, NULL) == 0;
    int code = rp_walk_open(walk, config, origin->token, origin->token_bytes,
                            is_known ? &contract.stream : NULL, error);
    if (code < 0)
        return code;
    /* The end of the stream need not be the end of a step. */
    bool is_end = origin->token && rp_plan_next(walk->plan, &row, NULL) == 0;
    code = find_steps(origin, config, by_step && !is_end, steps, error);
    steps->is_counted = steps->is_counted || is_end;
    if (code == 0)
        code = compare_stream(origin, walk, error);
    if (code < 0)
        rp_walk_close(walk);
    return code;
}
