/* SPDX-License-Identifier: Apache-2.0 */
#include "server/kept_weights.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/run_journal.h"
#include "config/description.h"
#include "stream.h"

static int no_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "out of memory for the weights of a record");
}

int rp_kept_weights_text(char **text, const struct rp_config *config, const uint32_t *weights,
                         struct rp_error *error)
{
    size_t bytes = 0;
    *text = NULL;
    FILE *out = open_memstream(text, &bytes);
    for (uint32_t s = 0; out && s < config->source_count; s++)
        if (weights[s] > 0)
            fprintf(out, "%s%s=%" PRIu32, ftello(out) > 0 ? " " : "", config->sources[s].name,
                    weights[s]);
    return out && fclose(out) == 0 ? 0 : no_memory(error);
}

/* The journal's text, `web=3 books=1`. A name may have spaces and `=`. */
static int parse_text(uint32_t *weights, uint64_t row, const struct rp_config *config,
                      const char *text, struct rp_error *error)
{
    while (*text) {
        uint32_t best = UINT32_MAX;
        size_t longest = 0;
        for (uint32_t s = 0; s < config->source_count; s++) {
            size_t length = strlen(config->sources[s].name);
            if (length >= longest && strncmp(text, config->sources[s].name, length) == 0 &&
                text[length] == '=') {
                best = s;
                longest = length;
            }
        }
        char *end = NULL;
        if (best != UINT32_MAX)
            weights[best] = (uint32_t)strtoull(text + longest + 1, &end, 10);
        if (!end || end == text + longest + 1 || (*end && *end != ' '))
            return rp_fail(error, -RP_E_MISMATCH,
                           "give the config the sources that it had, or begin anew with --fresh",
                           "the run journal has weights from row %" PRIu64
                           " on of a source that the config lacks: %.300s",
                           row, text);
        text = *end ? end + 1 : end;
    }
    return 0;
}

struct listing {
    const struct rp_config *config;
    struct rp_weights_ahead *ahead;
};

static int list_entry(void *context, uint64_t row, const char *text, struct rp_error *error)
{
    const struct listing *listing = context;
    struct rp_weights_ahead *ahead = listing->ahead;
    uint32_t *weights = rp_calloc(listing->config->source_count, sizeof *weights);
    struct rp_plan_weights *list = realloc(ahead->list, (ahead->count + 1u) * sizeof *list);
    if (list)
        ahead->list = list;
    int code = list && weights ? parse_text(weights, row, listing->config, text, error)
                               : no_memory(error);
    if (code < 0) {
        free(weights);
        return code;
    }
    list[ahead->count++] = (struct rp_plan_weights){row, weights};
    return 0;
}

int rp_engine_list_weights(const struct rp_engine *engine, struct rp_weights_ahead *ahead,
                           struct rp_error *error)
{
    const char *directory = engine->config->checkpoint_dir;
    struct listing listing = {engine->config, ahead};
    bool is_fresh = engine->options->fresh || engine->config->resume == RP_RESUME_FRESH;
    *ahead = (struct rp_weights_ahead){NULL, 0};
    if (!directory || rp_plan_version(engine->stream.plan) < 2 || is_fresh)
        return 0;
    return rp_checkpoint_journal_weights(directory, list_entry, &listing, error);
}

void rp_engine_free_weights(struct rp_weights_ahead *ahead)
{
    for (uint32_t i = 0; i < ahead->count; i++)
        free((void *)(uintptr_t)ahead->list[i].weights);
    free(ahead->list);
}

/* Say what holds of an entry. A start at row 0 has no token, so its records are appended here. */
static int take(struct rp_engine *engine, const struct rp_plan_weights *entry,
                struct rp_error *error)
{
    struct rp_stream *stream = &engine->stream;
    uint64_t row = rp_plan_row(stream->plan);
    char *text;
    int code = rp_kept_weights_text(&text, engine->config, entry->weights, error);
    if (code >= 0)
        code = rp_plan_append_weights(stream->plan, entry->row, entry->weights, error);
    if (code == -RP_E_USAGE)
        rp_log(RP_LOG_WARNING,
               "the run journal has weights from row %" PRIu64 " on (%s), and this start, at row "
               "%" PRIu64 ", is of a stream without them: they do not hold",
               entry->row, text, row);
    else if (code >= 0 && entry->row >= row)
        rp_log(RP_LOG_INFO, "weights from row %" PRIu64 " on, as the run journal has them: %s",
               entry->row, text);
    free(text);
    if (code == -RP_E_USAGE)
        return 0;
    return code < 0 ? rp_fail_context(error, code, "weights of the run journal") : 0;
}

int rp_engine_take_weights(struct rp_engine *engine, const struct rp_weights_ahead *ahead,
                           struct rp_error *error)
{
    int code = 0;
    for (uint32_t i = 0; i < ahead->count && code >= 0; i++)
        code = take(engine, &ahead->list[i], error);
    return code;
}

int rp_engine_describe(struct rp_engine *engine, struct rp_error *error)
{
    struct rp_stream *stream = &engine->stream;
    char *text;
    struct rp_contract contract;
    int code = rp_stream_make_contract(&text, &contract, engine->config, stream->corpus,
                                       stream->plan, error);
    if (code < 0)
        return code;
    free(stream->contract_text);
    stream->contract_text = text;
    stream->contract = contract;
    stream->identity = rp_record_hash(&stream->contract.stream);
    return rp_config_describe_files(stream->corpus_files, engine->config, error);
}
