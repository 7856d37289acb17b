/* SPDX-License-Identifier: Apache-2.0 */
/* corpus — what is asked of the sources of a run and their shards (corpus_struct.h). Of a source
 * that has a manifest, corpus_manifest.c answers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/text.h"
#include "corpus/corpus_struct.h"
#include "object/url.h"

uint32_t rp_corpus_source_count(const struct rp_corpus *corpus)
{
    return corpus->source_count;
}
char *rp_corpus_object_id(const struct rp_shard *shard)
{
    return shard->url ? rp_url_id(shard->url) : strdup("");
}

uint32_t rp_corpus_shard_count(const struct rp_corpus *corpus)
{
    return corpus->shard_count;
}
struct rp_fingerprint rp_corpus_fingerprint(const struct rp_corpus *corpus)
{
    return corpus->fingerprint;
}
const struct rp_tokenizer_id *rp_corpus_tokenizer(const struct rp_corpus *corpus)
{
    return &corpus->tokenizer.id;
}
const char *rp_source_name(const struct rp_source *source)
{
    return source->name;
}
uint64_t rp_source_documents(const struct rp_source *source)
{
    return source->documents;
}
uint64_t rp_source_tokens(const struct rp_source *source)
{
    return source->tokens;
}

uint32_t rp_source_shards(const struct rp_source *source)
{
    return source->shard_count;
}

static struct rp_source_part part_of(const struct rp_source *source, bool with_sidecars)
{
    struct rp_source_part part = {.tokens = 0};
    const struct rp_manifest_source *whole = source->part;
    if (whole && with_sidecars)
        return (struct rp_source_part){whole->tokens, whole->token_bytes, whole->shards};
    if (whole)
        return part;
    for (uint32_t i = 0; i < source->shard_count; i++) {
        const struct rp_opened *opened = &source->shards[i];
        if (opened->found.has_sidecar && !with_sidecars)
            continue;
        part.shards++;
        part.tokens += opened->shard.tokens;
        part.bytes += opened->shard.tokens * rp_token_width(opened->shard.type);
    }
    return part;
}

struct rp_source_part rp_source_whole(const struct rp_source *source)
{
    return part_of(source, true);
}

struct rp_source_part rp_source_unverified(const struct rp_source *source)
{
    return part_of(source, false);
}

uint64_t rp_source_token_max(const struct rp_source *source)
{
    uint64_t largest = 0;
    if (source->part)
        return rp_in_manifest_token_max(source);
    for (uint32_t i = 0; i < source->shard_count; i++) {
        const struct rp_found *found = &source->shards[i].found;
        if (found->has_sidecar && found->sidecar.info.token_max != UINT64_MAX)
            largest = rp_max_u64(largest, found->sidecar.info.token_max);
    }
    return largest;
}

const struct rp_source *rp_corpus_source(const struct rp_corpus *corpus, uint32_t source)
{
    RP_ASSERT(source < corpus->source_count);
    return &corpus->sources[source];
}

const struct rp_shard *rp_corpus_shard(const struct rp_corpus *corpus, uint32_t shard)
{
    RP_ASSERT(shard < corpus->shard_count);
    return corpus->manifest ? rp_corpus_make_shard(corpus, shard) : &corpus->shards[shard].shard;
}

const char *rp_corpus_manifest_path(const struct rp_corpus *corpus)
{
    return corpus->manifest ? corpus->manifest->path : NULL;
}

uint64_t rp_corpus_bytes(const struct rp_corpus *corpus)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; corpus->manifest && s < corpus->source_count; s++)
        bytes += corpus->sources[s].part->bytes;
    for (uint32_t i = 0; corpus->shards && i < corpus->shard_count; i++)
        bytes += corpus->shards[i].shard.bytes;
    return bytes;
}

uint64_t rp_corpus_file_bytes(const struct rp_corpus *corpus)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; corpus->manifest && s < corpus->source_count; s++)
        bytes += rp_in_manifest_file_bytes(corpus, s);
    for (uint32_t i = 0; corpus->shards && i < corpus->shard_count; i++)
        bytes += corpus->shards[i].shard.url ? 0 : corpus->shards[i].shard.bytes;
    return bytes;
}

uint32_t rp_corpus_file_count(const struct rp_corpus *corpus)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < rp_corpus_shard_count(corpus); i++)
        count += !rp_corpus_shard(corpus, i)->url;
    return count;
}

uint32_t rp_corpus_widest(const struct rp_corpus *corpus)
{
    uint64_t widest = 0;
    for (uint32_t s = 0; corpus->manifest && s < corpus->source_count; s++)
        widest = rp_max_u64(widest, corpus->sources[s].part->widest);
    for (uint32_t i = 0; corpus->shards && i < corpus->shard_count; i++)
        widest = rp_max_u64(widest, rp_token_width(corpus->shards[i].shard.type));
    return (uint32_t)widest;
}

const struct rp_shard *rp_corpus_first_object(const struct rp_corpus *corpus)
{
    for (uint32_t i = 0; corpus->shards && i < corpus->shard_count; i++)
        if (corpus->shards[i].shard.url)
            return &corpus->shards[i].shard;
    return corpus->manifest ? rp_corpus_first_made_object(corpus) : NULL;
}

void rp_corpus_fingerprint_text(const struct rp_corpus *corpus, char *text, size_t bytes)
{
    uint32_t without = 0;
    if (corpus->manifest) {
        snprintf(text, bytes, "full (manifest)");
        return;
    }
    for (uint32_t i = 0; i < corpus->shard_count; i++)
        without += !corpus->shards[i].found.has_sidecar;
    if (without == 0)
        snprintf(text, bytes, "full (sidecars)");
    else
        snprintf(text, bytes,
                 "sampled (%" PRIu32 " of %" PRIu32
                 " shards have no sidecar; `ringpack index` makes it full)",
                 without, corpus->shard_count);
}

/* The shard of a document, counted within the source: the last s with first[s] <= document. */
static uint32_t shard_of(const struct rp_source *source, uint64_t document)
{
    RP_DASSERT(document < source->skipped + source->documents);
    uint64_t b = document >> source->bucket_shift;
    uint32_t low = source->bucket[b], high = source->bucket[b + 1];
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (source->first[middle] <= document)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The index of this shard is about to be asked: it is to be checked again. */
static void note_asked(const struct rp_source *source, uint32_t s)
{
    uint32_t shard = source->first_shard + s;
    uint64_t bit = 1ull << (shard % 64);
    if (!(rp_a64_load_relaxed(&source->asked[shard / 64]) & bit))
        rp_a64_or_relaxed(&source->asked[shard / 64], bit);
}

int rp_corpus_look(const struct rp_corpus *corpus, struct rp_error *error)
{
    if (corpus->manifest)
        return rp_manifest_look(corpus->manifest, error);
    for (uint32_t i = 0; i < rp_div_up(corpus->shard_count, 64); i++) {
        uint64_t asked = rp_a64_load_relaxed(&corpus->asked[i]);
        if (asked)
            rp_a64_and_relaxed(&corpus->asked[i], ~asked);
        for (uint64_t left = asked; left; left &= left - 1) {
            uint32_t shard = 64 * i + (uint32_t)__builtin_ctzll(left);
            int code = rp_shard_look(&corpus->shards[shard], error);
            if (code < 0) { /* as any check until it is restored */
                rp_a64_or_relaxed(&corpus->asked[i], asked);
                return code;
            }
        }
    }
    return 0;
}

static uint64_t length_of(const struct rp_source *source, uint64_t document)
{
    uint32_t s = shard_of(source, document);
    uint64_t own = document - source->first[s];
    note_asked(source, s);
    int has_span = source->drop_unmasked ? rp_shard_has_span(&source->shards[s], own) : 1;
    return has_span > 0 ? rp_shard_length(&source->shards[s], own) : has_span == 0 ? 0 : UINT64_MAX;
}

uint64_t rp_source_length(const void *source_lengths, uint64_t document)
{
    const struct rp_source *source = source_lengths;
    document += source->skipped;
    return source->part ? rp_in_manifest_length(source, document) : length_of(source, document);
}

static void length_many(const struct rp_source *source, const uint64_t *documents, uint32_t count,
                        uint64_t *tokens)
{
    if (source->part) {
        rp_in_manifest_length_many(source, documents, count, tokens);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t s = shard_of(source, documents[i]);
        rp_shard_expect(&source->shards[s], documents[i] - source->first[s]);
        if (source->drop_unmasked)
            rp_spans_expect(&source->shards[s].table->spans, documents[i] - source->first[s]);
    }
    /* While the cache misses are under way: learn about the shard of one of the documents, which is
     * a large one more often. */
    uint32_t s = shard_of(source, documents[0]);
    rp_shard_learn(&source->shards[s], documents[0] - source->first[s]);
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = length_of(source, documents[i]);
}

void rp_source_length_many(const void *source_lengths, const uint64_t *documents, uint32_t count,
                           uint64_t *tokens)
{
    const struct rp_source *source = source_lengths;
    uint64_t moved[64];
    if (source->skipped == 0) {
        length_many(source, documents, count, tokens);
        return;
    }
    for (uint32_t at = 0; at < count; at += RP_ARRAY_COUNT(moved)) {
        uint32_t some = (uint32_t)rp_min_u64(RP_ARRAY_COUNT(moved), count - at);
        for (uint32_t i = 0; i < some; i++)
            moved[i] = documents[at + i] + source->skipped;
        length_many(source, moved, some, tokens + at);
    }
}

int rp_source_explain(const struct rp_source *source, uint64_t document, struct rp_error *error)
{
    document += source->skipped;
    if (source->part)
        return rp_in_manifest_explain(source, document, error);
    uint32_t s = shard_of(source, document);
    uint64_t tokens, offset;
    const struct rp_opened *opened = &source->shards[s];
    const char *problem = rp_shard_locate(opened, document - source->first[s], &tokens, &offset);
    if (!problem && source->drop_unmasked &&
        rp_shard_has_span(opened, document - source->first[s]) < 0)
        problem = "the page of the sidecar that has its spans differs from its hash";
    char hint[sizeof error->hint];
    snprintf(hint, sizeof hint,
             opened->found.index_path ? "restore the index, or write the shard again"
                                      : "restore the file and run `ringpack index %s` again",
             RP_HINT_PATH(opened->shard.path));
    return rp_fail(error, -RP_E_CORRUPT, hint,
                   "source `%s`, document %" PRIu64 " (document %" PRIu64 " of %s): %s",
                   source->name, document - source->skipped, document - source->first[s],
                   opened->shard.path,
                   problem ? problem : "its index entry was bad and is good now");
}

int rp_source_extent(const struct rp_source *source, uint64_t document, struct rp_extent *extent,
                     struct rp_error *error)
{
    uint64_t asked = document;
    document += source->skipped;
    if (source->part)
        return rp_in_manifest_extent(source, document, extent, error);
    uint32_t s = shard_of(source, document);
    const struct rp_opened *opened = &source->shards[s];
    note_asked(source, s);
    *extent = (struct rp_extent){.shard = source->first_shard + s,
                                 .width = rp_token_width(opened->shard.type)};
    const char *problem = rp_shard_locate(opened, document - source->first[s], &extent->tokens,
                                          &extent->byte_offset);
    return problem ? rp_source_explain(source, asked, error) : 0;
}

const char *rp_source_row(const struct rp_source *source, uint64_t document, uint64_t *row_out)
{
    document += source->skipped;
    if (source->part)
        return rp_in_manifest_row(source, document, row_out);
    uint32_t s = shard_of(source, document);
    *row_out = document - source->first[s];
    return source->shards[s].shard.path;
}

void rp_source_mask_text(const struct rp_source *source, char *text, size_t bytes)
{
    char mask[64] = "none";
    if (source->has_mask && source->part)
        snprintf(mask, sizeof mask, "%s", source->part->texts[RP_MANIFEST_FOUND_MASK]);
    else if (source->has_mask)
        rp_mask_text(source->shards[0].mask, mask, sizeof mask);
    snprintf(text, bytes, "%s%s", mask, source->drop_unmasked ? ", drop_unmasked" : "");
}

bool rp_source_has_mask(const struct rp_source *source)
{
    return source->has_mask;
}

int rp_source_has_span(const struct rp_source *source, uint64_t document)
{
    RP_DASSERT(source->has_mask);
    document += source->skipped;
    if (source->part)
        return rp_in_manifest_has_span(source, document);
    uint32_t s = shard_of(source, document);
    return rp_shard_has_span(&source->shards[s], document - source->first[s]);
}

int rp_source_spans(const struct rp_source *source, const struct rp_part *part, struct rp_span *out,
                    uint32_t *count_out, struct rp_error *error)
{
    RP_ASSERT(source->has_mask);
    struct rp_part own = *part;
    own.document += source->skipped;
    if (source->part)
        return rp_in_manifest_spans(source, &own, out, count_out, error);
    uint32_t s = shard_of(source, own.document);
    const struct rp_opened *opened = &source->shards[s];
    own.document -= source->first[s];
    const char *problem = rp_shard_spans(opened, &own, out, count_out);
    return problem
               ? rp_fail(error, -RP_E_CORRUPT, "run `ringpack index` again with the same mask",
                         "source `%s`, document %" PRIu64 " (document %" PRIu64 " of %s): %s",
                         source->name, part->document, own.document, opened->shard.path, problem)
               : 0;
}

void rp_source_expect_extent(const struct rp_source *source, uint64_t document)
{
    document += source->skipped;
    if (source->part) {
        rp_in_manifest_expect_extent(source, document);
        return;
    }
    uint32_t s = shard_of(source, document);
    rp_shard_expect_extent(&source->shards[s], document - source->first[s]);
    if (source->has_mask)
        rp_spans_expect(&source->shards[s].table->spans, document - source->first[s]);
}
