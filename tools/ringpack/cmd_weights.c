/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_weights.c — `ringpack weights`: other weights from a step on, in a running engine. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "client/question.h"
#include "cmd.h"
#include "options.h"

#define WORDS_MOST 4097 /* a run, and as many sources as a stream can have */
/* An engine that writes a checkpoint is busy. */
#define TRIES_MAX 600
#define TRY_NS 100000000u

struct arguments {
    struct rp_cmd_line line;
    uint64_t step;
    bool step_given;
};

static const struct rp_option options[] = {
    {RP_COUNT("at-step", "STEP", struct arguments, step),
     .given = offsetof(struct arguments, step_given), .expected = "a step number",
     .help = "the first step with these weights; no rank may have begun it"},
    {0},
};

/* Add `NAME=WEIGHT`. The name may have `=`. */
static int add_weight(json_t *weights, const char *word, struct rp_error *error)
{
    const char *equals = strrchr(word, '=');
    uint64_t millionths;
    if (!equals || equals == word)
        return rp_cmd_mistake(error, "weights", "expected SOURCE=WEIGHT, found `%s`", word);
    if (rp_text_decimal(equals + 1, 6, &millionths) != RP_DECIMAL_FINE)
        return rp_cmd_mistake(error, "weights",
                              "%.*s: expected a weight with at most 6 decimals, found `%s`",
                              (int)(equals - word), word, equals + 1);
    if (json_object_getn(weights, word, (size_t)(equals - word)))
        return rp_cmd_mistake(error, "weights", "%.*s is given twice", (int)(equals - word), word);
    if (json_object_setn_new(weights, word, (size_t)(equals - word), json_string(equals + 1)) < 0)
        return rp_cmd_mistake(error, "weights", "`%s` is no UTF-8", word);
    return 0;
}

/* The request as JSON, which the caller frees. */
static int write_request(const struct arguments *arguments, size_t first, char **text,
                         struct rp_error *error)
{
    const struct rp_cmd_line *line = &arguments->line;
    json_t *weights = json_object();
    int code = 0;
    *text = NULL;
    if (!arguments->step_given)
        code = rp_cmd_mistake(error, "weights", "expected --at-step STEP");
    else if (arguments->step > INT64_MAX)
        code = rp_cmd_mistake(error, "weights", "--at-step: expected a step below 2^63");
    for (size_t i = first; i < line->count && code == 0; i++)
        code = add_weight(weights, line->words[i], error);
    if (code == 0 && json_object_size(weights) == 0)
        code = rp_cmd_mistake(error, "weights", "expected SOURCE=WEIGHT");
    json_t *request = json_pack("{s:I, s:O}", "step", (json_int_t)arguments->step, "weights",
                                weights);
    json_decref(weights);
    if (code == 0 && !(*text = json_dumps(request, JSON_COMPACT)))
        code = rp_fail(error, -ENOMEM, NULL, "no memory for a request");
    json_decref(request);
    return code;
}

static int send(const struct rp_cmd_line *line, const char *run, const char *request, char **answer,
                struct rp_error *error)
{
    int code = -RP_E_BUSY;
    for (unsigned tries = 0; tries < TRIES_MAX && code == -RP_E_BUSY; tries++) {
        if (tries > 0)
            rp_sleep_ns(TRY_NS);
        code = rp_question_weights(line->run_dir, run, request, answer, error);
    }
    return code;
}

static int set_weights(const struct arguments *arguments)
{
    struct rp_error error;
    const struct rp_cmd_line *line = &arguments->line;
    bool has_run = line->count > 0 && (line->run || line->path || !strchr(line->words[0], '='));
    char *request, *answer = NULL;
    int code = write_request(arguments, has_run, &request, &error);
    if (code == 0)
        code = send(line, has_run ? line->words[0] : NULL, request, &answer, &error);
    if (code == 0)
        puts(answer);
    free(answer);
    free(request);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_weights(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "weights",
        .usage = "[RUN] SOURCE=WEIGHT... --at-step STEP",
        .help = "Set the weights of the sources from a step on, in a running engine.",
        .notes = "A source without a weight gets 0. The engine runs a stream of version 2 with "
                 "--accept-weights, and has a checkpoint_dir: the weights hold once they are in "
                 "its run journal, and a restart has them at the same step. Give the command to "
                 "the engine of each node. A step that a rank has begun is refused.",
        .options = options,
        .takes = RP_TAKES_RUN,
        .words_least = 1,
        .words_most = WORDS_MOST,
        .expected = "SOURCE=WEIGHT"};
    struct arguments arguments = {0};
    if (rp_cmd_parse(&verb, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    return set_weights(&arguments);
}
