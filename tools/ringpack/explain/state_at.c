/* SPDX-License-Identifier: Apache-2.0 */
/* state_at.c — `ringpack state`: the state token of any row or step. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "base/file.h"
#include "cmd.h"
#include "explain/origin.h"
#include "explain/walk.h"
#include "interrupt.h"

struct arguments {
    struct rp_origin origin;
    const char *output;
    char *output_path; /* the same, absolute */
    struct rp_steps_wanted wanted;
    bool json;
};

static const struct rp_option own_options[] = {
    RP_STEPS_OPTION(step, struct arguments, wanted, "the token with which step N begins"),
    RP_STEPS_OPTION(row, struct arguments, wanted, "the token with which row N begins"),
    {RP_LOCAL("output", "FILE", struct arguments, output), .letter = 'o',
     .help = "the file of the token"},
    {RP_FLAG("json", struct arguments, json), .help = "print JSON"},
    RP_ORIGIN_BASE_ROW_OPTION(struct arguments, origin),
    {0},
};

static int check(void *argument)
{
    struct arguments *arguments = argument;
    if (arguments->wanted.step_given == arguments->wanted.row_given)
        return rp_cmd_misuse("state", "expected --step N or --row N");
    if (!arguments->output)
        return rp_cmd_misuse("state", "expected -o FILE");
    arguments->output_path = rp_origin_absolute(arguments->output);
    return RP_EXIT_FINE;
}

static void report(const struct arguments *arguments, const struct rp_walk *walk,
                   const struct rp_steps *steps)
{
    char hex[RP_HASH_HEX_BYTES], plan[RP_HASH_HEX_BYTES], row[RP_CMD_TEXT_BYTES];
    struct rp_hash128 digest = rp_plan_digest(walk->plan);
    bool has_digest = rp_hash128_is_known(digest);
    rp_hash128_hex(digest, plan);
    uint64_t at = rp_plan_row(walk->plan);
    struct rp_numbering_part part = rp_steps_part(steps, at);
    uint64_t part_end = rp_steps_part_end(steps, at);
    if (arguments->json)
        rp_cmd_print_json(json_pack(
            "{s:o, s:o, s:I, s:I, s:s, s:o, s:I, s:I, s:I, s:I, s:o}", "checkpoint",
            arguments->origin.checkpoint ? rp_cmd_json_text(arguments->origin.checkpoint)
                                         : json_null(),
            "path", rp_cmd_json_text(arguments->output_path), "row", (json_int_t)at, "bytes",
            (json_int_t)walk->near.bytes, "stream", rp_hash128_hex(walk->identity, hex),
            "plan_digest", has_digest ? json_string(plan) : json_null(), "step_rows",
            (json_int_t)part.step_rows, "batch_size", (json_int_t)(part.batch_rows / steps->ranks),
            "dp_world_size", (json_int_t)steps->ranks, "micro_batches",
            (json_int_t)rp_numbering_step_batches(&part), "part_end",
            part_end == UINT64_MAX ? json_null() : json_integer((json_int_t)part_end)));
    else
        printf("%s: the state token of row %s, %zu bytes, plan digest %s\n", arguments->output,
               rp_cmd_count_text(at, row), walk->near.bytes,
               has_digest ? plan : "not known (the state that was given has none)");
}

static int state_at(struct arguments *arguments, const struct rp_config *config,
                    struct rp_error *error)
{
    struct rp_walk walk;
    struct rp_steps steps;
    int code = rp_origin_open(&arguments->origin, config, arguments->wanted.step_given, &walk,
                              &steps, error);
    if (code < 0)
        return code;
    code = arguments->wanted.step_given
               ? rp_walk_to_step(&walk, &steps, arguments->wanted.step, error)
               : rp_walk_to_row(&walk, &steps, arguments->wanted.row, 0, error);
    if (code == 0)
        code = rp_file_replace(arguments->output_path, walk.near.token, walk.near.bytes, error);
    if (code == 0)
        report(arguments, &walk, &steps);
    rp_walk_close(&walk);
    return code;
}

static int run(void *argument, const struct rp_config *config)
{
    struct arguments *arguments = argument;
    struct rp_error error = {0};
    rp_interrupt_catch();
    int code = state_at(arguments, config, &error);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_state(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "state",
        .usage = RP_ORIGIN_USAGE,
        .help = "Write the state token with which a step or a row begins.",
        .notes = "The stream is given by `-c CONFIG`, by a checkpoint (which keeps its config), or "
                 "by the engine of RUN. `serve --state FILE` starts there; so does a trainer that "
                 "is given the token. The run itself is not changed.",
        .options = own_options,
        .takes = RP_TAKES_CONFIG,
        .words_most = 1,
        .check = check,
        .run = run,
        .finish = rp_origin_finish,
    };
    struct arguments arguments = {0};
    int status = rp_cmd_config_run(&verb, &arguments, argc, argv);
    free(arguments.output_path);
    rp_origin_free(&arguments.origin);
    return status;
}
