/* SPDX-License-Identifier: Apache-2.0 */
#include "server/kept_records.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/run_journal.h"
#include "config/description.h"
#include "stream.h"

int rp_kept_record_no_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "out of memory for a record");
}

const char *rp_kept_record_kind(bool is_documents)
{
    return is_documents ? "documents" : "weights";
}

static uint64_t value_of(const struct rp_plan_record *record, uint32_t source)
{
    return record->documents ? record->documents[source] : record->weights[source];
}

int rp_kept_record_text(char **text, const struct rp_config *config,
                        const struct rp_plan_record *record, struct rp_error *error)
{
    size_t bytes = 0;
    *text = NULL;
    FILE *out = open_memstream(text, &bytes);
    for (uint32_t s = 0; out && s < rp_config_numbered(config); s++)
        if (value_of(record, s) > 0)
            fprintf(out, "%s%s=%" PRIu64, ftello(out) > 0 ? " " : "", rp_config_name_of(config, s),
                    value_of(record, s));
    return out && fclose(out) == 0 ? 0 : rp_kept_record_no_memory(error);
}

/* The place of the source that the text begins with, as in `web=3`; the longest name counts. */
static uint32_t named_source(const struct rp_config *config, const char *text)
{
    uint32_t best = UINT32_MAX;
    size_t longest = 0;
    for (uint32_t s = 0; s < rp_config_numbered(config); s++) {
        size_t length = strlen(rp_config_name_of(config, s));
        if (length >= longest && strncmp(text, rp_config_name_of(config, s), length) == 0 &&
            text[length] == '=') {
            best = s;
            longest = length;
        }
    }
    return best;
}

/* The journal's text, `web=3 books=1`. A name may have spaces and `=`. */
static int parse_text(uint64_t *values, uint64_t row, bool is_documents,
                      const struct rp_config *config, const char *text, struct rp_error *error)
{
    while (*text) {
        uint32_t source = named_source(config, text);
        const char *digits = text;
        digits += source == UINT32_MAX ? 0 : strlen(rp_config_name_of(config, source)) + 1;
        char *end = NULL;
        if (source != UINT32_MAX)
            values[source] = strtoull(digits, &end, 10);
        if (!end || end == digits || (*end && *end != ' '))
            return rp_fail(
                error, -RP_E_MISMATCH,
                "give the config the sources that it had, or begin a new run with --fresh",
                "the run journal has %s from row %" PRIu64
                " on of a source that the config lacks: %.300s",
                rp_kept_record_kind(is_documents), row, text);
        text = *end ? end + 1 : end;
    }
    return 0;
}

struct listing {
    const struct rp_config *config;
    struct rp_records_ahead *ahead;
};

/* Give the record these values, which it owns from now on: documents as they are, weights in an
 * array of their type. */
static int make_record(struct rp_plan_record *record, uint64_t *values, bool is_documents,
                       uint32_t count, struct rp_error *error)
{
    if (is_documents) {
        record->documents = values;
        return 0;
    }
    uint32_t *weights = rp_calloc(count, sizeof *weights);
    for (uint32_t s = 0; weights && s < count; s++)
        weights[s] = (uint32_t)values[s];
    free(values);
    record->weights = weights;
    return weights ? 0 : rp_kept_record_no_memory(error);
}

static int list_entry(void *context, uint64_t row, bool is_documents, const char *text,
                      struct rp_error *error)
{
    const struct listing *listing = context;
    struct rp_records_ahead *ahead = listing->ahead;
    uint32_t sources = rp_config_numbered(listing->config);
    uint64_t *values = rp_calloc(sources, sizeof *values);
    int code = values ? parse_text(values, row, is_documents, listing->config, text, error)
                      : rp_kept_record_no_memory(error);
    struct rp_plan_record *record = code < 0 ? NULL : RP_APPEND(ahead->list, ahead->count);
    if (!record) {
        free(values);
        return code < 0 ? code : rp_kept_record_no_memory(error);
    }
    record->row = row;
    return make_record(record, values, is_documents, sources, error);
}

int rp_engine_list_records(const struct rp_engine *engine, struct rp_records_ahead *ahead,
                           struct rp_error *error)
{
    const char *directory = engine->config->checkpoint_dir;
    struct listing listing = {engine->config, ahead};
    bool is_fresh = engine->options->fresh || engine->config->resume == RP_RESUME_FRESH;
    *ahead = (struct rp_records_ahead){NULL, 0};
    if (!directory || rp_plan_version(engine->stream.plan) < 2 || is_fresh)
        return 0;
    return rp_checkpoint_journal_records(directory, list_entry, &listing, error);
}

void rp_engine_free_records(struct rp_records_ahead *ahead)
{
    for (uint32_t i = 0; i < ahead->count; i++) {
        free((void *)(uintptr_t)ahead->list[i].weights);
        free((void *)(uintptr_t)ahead->list[i].documents);
    }
    free(ahead->list);
}

/* Append a record of the journal to the calendar, and log whether it holds. */
static int append_entry(struct rp_engine *engine, const struct rp_plan_record *entry,
                        struct rp_error *error)
{
    struct rp_stream *stream = &engine->stream;
    uint64_t row = rp_plan_row(stream->plan);
    const char *kind = rp_kept_record_kind(entry->documents);
    char *text;
    int code = rp_kept_record_text(&text, engine->config, entry, error);
    if (code >= 0)
        code = rp_plan_append_record(stream->plan, entry, error);
    if (code == -RP_E_USAGE)
        rp_log(RP_LOG_WARNING,
               "the run journal has %s from row %" PRIu64 " on (%s), and this start, at row "
               "%" PRIu64 ", is of a stream without them: they do not hold",
               kind, entry->row, text, row);
    else if (code >= 0 && entry->row >= row)
        rp_log(RP_LOG_INFO, "%s from row %" PRIu64 " on, as the run journal has them: %s", kind,
               entry->row, text);
    free(text);
    if (code == -RP_E_USAGE)
        return 0;
    return code < 0 ? rp_fail_context(error, code, "%s of the run journal", kind) : 0;
}

int rp_engine_append_records(struct rp_engine *engine, const struct rp_records_ahead *ahead,
                             struct rp_error *error)
{
    int code = 0;
    for (uint32_t i = 0; i < ahead->count && code >= 0; i++)
        code = append_entry(engine, &ahead->list[i], error);
    return code;
}

int rp_engine_set_contract(struct rp_engine *engine, struct rp_error *error)
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

bool rp_engine_contract_of(const struct rp_checkpoint *checkpoint, struct rp_contract *contract)
{
    size_t bytes;
    const char *text = checkpoint
                           ? rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTRACT, &bytes)
                           : NULL;
    return text && rp_contract_open(contract, text, bytes, NULL) == 0;
}

const struct rp_record *rp_engine_records_of(const struct rp_engine *engine,
                                             const struct rp_checkpoint *checkpoint,
                                             struct rp_contract *contract)
{
    const struct rp_record *given = engine->options->records;
    if (given || !rp_engine_contract_of(checkpoint, contract))
        return given;
    return &contract->stream;
}
