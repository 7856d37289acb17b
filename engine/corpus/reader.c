/* SPDX-License-Identifier: Apache-2.0 */
/* reader.c — the checks of every document that a reader finds, and the refusals of files. */
#include "corpus/reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/text.h"

int rp_readers_refuse(const struct rp_probe *probe, const char *found, const char *hint,
                      struct rp_error *error)
{
    return rp_fail(error, -RP_E_FORMAT, hint, "%s: expected a file of tokens, found %s",
                   probe->path, found);
}

int rp_readers_convert(const struct rp_probe *probe, const char *found, struct rp_error *error)
{
    char hint[sizeof error->hint];
    snprintf(hint, sizeof hint,
             "convert it once: `ringpack convert --no-append-eos -o PREFIX %s`, or with --eos ID "
             "where documents do not end with one",
             RP_HINT_PATH(probe->path));
    return rp_readers_refuse(probe, found, hint, error);
}

int rp_readers_check_type(const char *path, enum rp_token_type declared, enum rp_token_type found,
                          struct rp_error *error)
{
    if (declared == RP_TOKEN_NONE || declared == found)
        return 0;
    return rp_fail(error, -RP_E_FORMAT, "leave the dtype away: this format knows its own",
                   "%s: dtype: declared %s, found %s in the file", path,
                   rp_token_type_name(declared), rp_token_type_name(found));
}

int rp_readers_check_width(const struct rp_probe *probe, enum rp_token_type type,
                           struct rp_error *error)
{
    uint32_t width = rp_token_width(type);
    if (probe->bytes % width == 0)
        return 0;
    return rp_fail(error, -RP_E_CORRUPT, "was the file cut short, or is the dtype another one?",
                   "%s: expected a multiple of %" PRIu32 " bytes of %s tokens, found %" PRIu64
                   " bytes",
                   probe->path, width, rp_token_type_name(type), probe->bytes);
}

enum rp_id_rank rp_readers_rank(const char *name, const char *declared)
{
    if (declared)
        return strcmp(name, declared) ? RP_ID_NONE : RP_ID_DECLARED;
    return !strcmp(name, "input_ids") ? RP_ID_INPUT_IDS
           : !strcmp(name, "tokens")  ? RP_ID_TOKENS
                                      : RP_ID_ANY;
}

int rp_sink_begin(struct rp_sink *sink, const struct rp_layout *layout,
                  const struct rp_reader_options *options, struct rp_error *error)
{
    RP_ASSERT(sink->layout.type == RP_TOKEN_NONE && rp_token_width(layout->type) > 0);
    sink->layout = *layout;
    sink->token_max = UINT64_MAX;
    return rp_readers_check_type(sink->path, options->type, layout->type, error);
}

static bool spans_are_right(const struct rp_span *spans, size_t count, uint64_t tokens)
{
    uint64_t previous_end = 0;
    for (size_t i = 0; i < count; i++) {
        if (spans[i].begin <= previous_end || spans[i].begin >= spans[i].end)
            return false;
        previous_end = spans[i].end;
    }
    return previous_end <= tokens;
}

int rp_sink_document(struct rp_sink *sink, uint64_t byte, uint64_t tokens,
                     const struct rp_span *spans, size_t span_count, struct rp_error *error)
{
    uint64_t bytes;
    bool fits = rp_mul_u64(tokens, rp_token_width(sink->layout.type), &bytes) &&
                rp_range_inside(byte, bytes, sink->file_bytes);
    RP_ASSERT(spans_are_right(spans, span_count, tokens));
    RP_ASSERT(sink->layout.has_spans || span_count == 0);
    if (!fits)
        return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                       "%s: document %" PRIu64 ": %" PRIu64 " tokens at byte %" PRIu64
                       " are outside the file, which has %" PRIu64 " bytes",
                       sink->path, sink->documents, tokens, byte, sink->file_bytes);
    if (tokens > UINT32_MAX)
        return rp_fail(error, -RP_E_FORMAT, "is it the right eos, and the right dtype?",
                       "%s: document %" PRIu64 ": expected at most %" PRIu32
                       " tokens, found %" PRIu64,
                       sink->path, sink->documents, UINT32_MAX, tokens);
    sink->documents++;
    sink->tokens += tokens;
    return sink->keep(sink->context, byte, (uint32_t)tokens, spans, span_count, error);
}
