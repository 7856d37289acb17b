/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_weights.c — `ringpack weights` and `ringpack grow`: other weights, or more documents, from a
 * step on in a running engine. */
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
     .help = "the first step with them; no rank may have begun it"},
    {0},
};

/* A verb: the key of its request, and its words. */
struct kind {
    const char *verb, *key, *word; /* "SOURCE=WEIGHT" */
};
static const struct kind weights_kind = {"weights", "weights", "SOURCE=WEIGHT"};
static const struct kind documents_kind = {"grow", "documents", "SOURCE=DOCUMENTS"};

/* Add `NAME=VALUE`. The name may have `=`. */
static int add_value(const struct kind *kind, json_t *values, const char *word,
                     struct rp_error *error)
{
    const char *equals = strrchr(word, '=');
    uint64_t number;
    if (!equals || equals == word)
        return rp_cmd_mistake(error, kind->verb, "expected %s, found `%s`", kind->word, word);
    int bytes = (int)(equals - word);
    if (kind == &weights_kind && rp_text_decimal(equals + 1, 6, &number) != RP_DECIMAL_FINE)
        return rp_cmd_mistake(error, kind->verb,
                              "%.*s: expected a weight with at most 6 decimals, found `%s`", bytes,
                              word, equals + 1);
    if (kind == &documents_kind && !rp_text_u64(equals + 1, &number))
        return rp_cmd_mistake(error, kind->verb, "%.*s: expected a number of documents, found `%s`",
                              bytes, word, equals + 1);
    if (json_object_getn(values, word, (size_t)bytes))
        return rp_cmd_mistake(error, kind->verb, "%.*s is given twice", bytes, word);
    if (json_object_setn_new(values, word, (size_t)bytes, json_string(equals + 1)) < 0)
        return rp_cmd_mistake(error, kind->verb, "`%s` is no UTF-8", word);
    return 0;
}

/* The request as JSON, which the caller frees. */
static int write_request(const struct kind *kind, const struct arguments *arguments, size_t first,
                         char **text, struct rp_error *error)
{
    const struct rp_cmd_line *line = &arguments->line;
    json_t *values = json_object();
    int code = 0;
    *text = NULL;
    if (!arguments->step_given)
        code = rp_cmd_mistake(error, kind->verb, "expected --at-step STEP");
    else if (arguments->step > INT64_MAX)
        code = rp_cmd_mistake(error, kind->verb, "--at-step: expected a step below 2^63");
    for (size_t i = first; i < line->count && code == 0; i++)
        code = add_value(kind, values, line->words[i], error);
    if (code == 0 && json_object_size(values) == 0)
        code = rp_cmd_mistake(error, kind->verb, "expected %s", kind->word);
    json_t *request = json_pack("{s:I, s:O}", "step", (json_int_t)arguments->step, kind->key,
                                values);
    json_decref(values);
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

static int set(const struct kind *kind, const struct arguments *arguments)
{
    struct rp_error error;
    const struct rp_cmd_line *line = &arguments->line;
    bool has_run = line->count > 0 && (line->run || line->path || !strchr(line->words[0], '='));
    char *request, *answer = NULL;
    int code = write_request(kind, arguments, has_run, &request, &error);
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
    return set(&weights_kind, &arguments);
}

int rp_cmd_grow(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "grow",
        .usage = "[RUN] SOURCE=DOCUMENTS... --at-step STEP",
        .help = "Let epochs from a step on have documents that were appended, in a running engine.",
        .notes = "DOCUMENTS is the number that the source has from then on; `ringpack inspect` of "
                 "the index counts them. The engine opens the index again if it has grown, and "
                 "refuses one whose earlier documents were changed. It runs a stream of version 2 "
                 "with `grow: false`, and has a checkpoint_dir: the documents hold once they are "
                 "in its run journal, and a restart has them at the same step. Give the command "
                 "to the engine of each node. A step that a rank has begun is refused.",
        .options = options,
        .takes = RP_TAKES_RUN,
        .words_least = 1,
        .words_most = WORDS_MOST,
        .expected = "SOURCE=DOCUMENTS"};
    struct arguments arguments = {0};
    if (rp_cmd_parse(&verb, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    return set(&documents_kind, &arguments);
}
