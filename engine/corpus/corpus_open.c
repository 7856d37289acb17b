/* SPDX-License-Identifier: Apache-2.0 */
/* corpus_open.c — opening the shards of all sources, one after another, or the index of all of them
 * (corpus_struct.h). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mapped.h"
#include "base/mem.h"
#include "corpus/corpus_struct.h"
#include "corpus/range.h"
#include "object/url.h"

/* More buckets leave fewer segments to search. */
#define BUCKETS_PER_SEGMENT 4u

static int fail_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "no memory for the tables of the corpus");
}

/* The limit of mappings is reached. The error has the limit that all shards need, if the others are
 * like these. */
static int fail_mappings(const struct rp_corpus *corpus, struct rp_error *error)
{
    uint64_t left = corpus->shard_total - corpus->shard_count;
    uint64_t opened = rp_max_u64(corpus->shard_count, 1);
    int code = rp_mapped_check_room(rp_div_up(rp_mapped_count() * left, opened), error);
    return rp_fail_context(error, code, "%" PRIu32 " of %" PRIu32 " shards are open",
                           corpus->shard_count, corpus->shard_total);
}

int64_t rp_corpus_open_remotes(struct rp_remote **remotes, const struct rp_source_spec *sources,
                               uint32_t source_count, const char *cache_dir,
                               const struct rp_corpus_gate *gate, struct rp_error *error)
{
    size_t count = 0, url_count = 0;
    for (uint32_t s = 0; s < source_count; s++)
        count += sources[s].shard_count;
    const char **urls = rp_calloc(count, sizeof *urls);
    if (!urls)
        return fail_memory(error);
    for (uint32_t s = 0; s < source_count; s++)
        for (uint32_t i = 0; i < sources[s].shard_count; i++)
            if (rp_url_is(sources[s].shards[i]))
                urls[url_count++] = sources[s].shards[i];
    int code = url_count ? rp_corpus_gate_pass(gate, error) : 0;
    if (code == 0 && url_count)
        code = rp_remotes_open(remotes, urls, url_count, cache_dir, error);
    free(urls);
    return code < 0 ? code : (int64_t)url_count;
}

/* ---- opened shards --------------------------------------------------------------------------- */

static void add_part(struct rp_source_part *sum, const struct rp_source_part *part)
{
    sum->tokens += part->tokens;
    sum->bytes += part->bytes;
    sum->shards += part->shards;
}

static int open_shards(struct rp_corpus *corpus, uint32_t s, const struct rp_corpus_spec *spec,
                       const struct rp_remote **next, struct rp_error *error)
{
    const struct rp_source_spec *source_spec = &spec->sources[s];
    struct rp_open_options options = {
        .find = {.hints = source_spec,
                 .index_dir = spec->index_dir,
                 .allow_missing_data = spec->allow_missing_data},
        .scan_bytes_max = RP_SCAN_AT_OPEN_MAX,
        .gate = spec->gate,
    };
    for (uint32_t i = 0; i < source_spec->shard_count; i++) {
        struct rp_opened *opened = &corpus->shards[corpus->shard_count];
        options.find.remote = rp_url_is(source_spec->shards[i]) ? (*next)++ : NULL;
        int code = rp_shard_open(opened, source_spec->shards[i], s, &options, error);
        if (code == -RP_E_RESOURCE)
            return fail_mappings(corpus, error);
        if (code < 0)
            return rp_remote_context(options.find.remote, code, error);
        corpus->shard_count++;
        if (opened->shard.tokenizer)
            code = rp_ids_take_tokenizer(&corpus->tokenizer, opened->shard.tokenizer,
                                         corpus->sources[s].name, opened->shard.path, error);
        if (code < 0)
            return code;
        if (opened->found.data_missing)
            rp_log(RP_LOG_WARNING, "%s: cannot be opened; continuing with its sidecar",
                   opened->shard.path);
    }
    return 0;
}

/* Each opened shard is a segment. */
static int take_shards(struct rp_corpus *corpus, struct rp_source *source, struct rp_error *error)
{
    struct rp_opened *shards = corpus->shards + source->first_shard;
    struct rp_fingerprint_list list;
    uint64_t documents = 0;
    int code = 0;
    rp_fingerprint_begin(&list);
    for (uint32_t i = 0; code == 0 && i < source->shard_count; i++) {
        struct rp_opened *opened = &shards[i];
        uint32_t width = rp_token_width(opened->shard.type);
        const struct rp_source_part part = {opened->shard.tokens, opened->shard.tokens * width, 1};
        opened->segment->first_document = documents;
        opened->segment->first_shard = i;
        corpus->segments[corpus->segment_count++] = opened->segment;
        rp_fingerprint_add(&list, &opened->fingerprint);
        bool fits = rp_add_u64(documents, opened->shard.documents, &documents) &&
                    rp_add_u64(source->tokens, opened->shard.tokens, &source->tokens);
        code = fits ? rp_mask_take(source->mask, rp_opened_uses_spans(opened) ? opened->mask : NULL,
                                   opened->shard.path, i ? shards[0].shard.path : NULL, error)
                    : fail_memory(error);
        add_part(&source->whole, &part);
        if (!opened->found.sidecar)
            add_part(&source->unverified, &part);
        source->bytes += opened->shard.bytes;
        source->widest = (uint32_t)rp_max_u64(source->widest, width);
        source->objects += opened->shard.url != NULL;
    }
    source->fingerprint = rp_fingerprint_of(&list);
    source->segment_count = source->shard_count;
    source->documents = documents;
    return code;
}

/* ---- an index of all shards ------------------------------------------------------------------ */

static int take_listed(struct rp_corpus *corpus, struct rp_source *source, uint32_t s,
                       const struct rp_source_spec *spec, struct rp_error *error)
{
    struct rp_index_source *listed = &corpus->index->sources[s];
    source->shard_count = listed->shards;
    source->segment_count = listed->segment_count;
    source->documents = listed->documents;
    source->tokens = listed->tokens;
    source->whole = (struct rp_source_part){listed->tokens, listed->token_bytes, listed->shards};
    source->bytes = listed->bytes;
    source->widest = listed->widest;
    source->fingerprint = listed->fingerprint;
    snprintf(source->mask, sizeof source->mask, "%s", listed->texts[RP_INDEX_FOUND_MASK]);
    corpus->shard_count += listed->shards;
    for (uint32_t g = 0; g < listed->segment_count; g++) {
        struct rp_index_segment *segment = &listed->segments[g];
        if (!segment->shape.table.has_extents ||
            (source->mask[0] && !segment->shape.table.has_spans))
            return rp_index_fail_damaged(corpus->index, "segment of a source", error);
        corpus->segments[corpus->segment_count++] = segment;
        source->objects += segment->shape.objects;
    }
    int code = 0;
    if (rp_ids_know_tokenizer(&listed->tokenizer))
        code = rp_ids_take_tokenizer(&corpus->tokenizer, &listed->tokenizer, source->name,
                                     corpus->index->path, error);
    return code < 0 ? code : rp_listed_keep_queries(source, spec, error);
}

static int open_index(struct rp_corpus *corpus, const struct rp_corpus_spec *spec,
                      struct rp_error *error)
{
    int code = rp_url_is(spec->index) ? rp_corpus_gate_pass(spec->gate, error) : 0;
    if (code == 0)
        code = rp_index_open_place(&corpus->index, spec->index, spec->cache_dir, error);
    if (code < 0)
        return code;
    const struct rp_index *index = corpus->index;
    if (index->source_count != spec->source_count)
        return rp_fail(error, -RP_E_MISMATCH,
                       "run `ringpack index -c CONFIG`, which builds the index of this "
                       "configuration",
                       "%s: sources: the index was made with %" PRIu32
                       ", the configuration has %" PRIu32,
                       index->path, index->source_count, spec->source_count);
    corpus->damaged = (struct rp_shard){.path = index->path, .type = RP_TOKEN_U8};
    corpus->listed = rp_calloc(index->shard_count, sizeof *corpus->listed);
    return corpus->listed ? 0 : fail_memory(error);
}

/* ---- sources --------------------------------------------------------------------------------- */

/* Make the tables that find the segment of a document (corpus_struct.h). */
static int make_buckets(struct rp_corpus *corpus, struct rp_source *source, struct rp_error *error)
{
    uint64_t wanted = (uint64_t)BUCKETS_PER_SEGMENT * source->segment_count;
    source->segments = corpus->segments + source->first_segment;
    source->segment_begins = rp_calloc(source->segment_count + 1u, sizeof *source->segment_begins);
    while (source->documents >> source->bucket_shift > wanted)
        source->bucket_shift++;
    uint64_t count = (source->documents >> source->bucket_shift) + 2;
    source->bucket = rp_calloc((size_t)count, sizeof *source->bucket);
    if (!source->bucket || !source->segment_begins)
        return fail_memory(error);
    for (uint32_t g = 0; g < source->segment_count; g++) {
        source->segments[g]->number = source->first_segment + g;
        source->segment_begins[g] = source->segments[g]->first_document;
    }
    source->segment_begins[source->segment_count] = source->documents;
    uint32_t segment = 0;
    for (uint64_t b = 0; b < count; b++) {
        while (segment + 1 < source->segment_count &&
               source->segment_begins[segment + 1] <= b << source->bucket_shift)
            segment++;
        source->bucket[b] = segment;
    }
    return 0;
}

static int open_source(struct rp_corpus *corpus, uint32_t s, const struct rp_corpus_spec *spec,
                       const struct rp_remote **next, struct rp_error *error)
{
    const struct rp_source_spec *source_spec = &spec->sources[s];
    struct rp_source *source = &corpus->sources[s];
    const char *name = source_spec->name ? source_spec->name
                       : corpus->index   ? corpus->index->sources[s].texts[RP_INDEX_NAME]
                                         : "";
    *source = (struct rp_source){.name = strdup(name),
                                 .corpus = corpus,
                                 .first_segment = corpus->segment_count,
                                 .first_shard = corpus->shard_count,
                                 .shard_count = source_spec->shard_count};
    int code = source->name ? 0 : fail_memory(error);
    if (code == 0 && corpus->index)
        return take_listed(corpus, source, s, source_spec, error);
    if (code == 0)
        code = open_shards(corpus, s, spec, next, error);
    if (code == 0)
        code = take_shards(corpus, source, error);
    if (code == 0 && (source->documents == 0 || source->tokens == 0))
        code = rp_fail(error, -RP_E_EMPTY, "`ringpack inspect` on its shards shows their contents",
                       "expected documents with tokens, found %" PRIu64 " documents with %" PRIu64
                       " tokens in %" PRIu32 " shards",
                       source->documents, source->tokens, source->shard_count);
    return code < 0 ? rp_fail_context(error, code, "source `%s`", name) : 0;
}

/* The last steps, with and without a corpus index. */
static int finish_source(struct rp_corpus *corpus, uint32_t s, const struct rp_source_spec *spec,
                         struct rp_error *error)
{
    struct rp_source *source = &corpus->sources[s];
    source->has_mask = source->mask[0] != 0;
    source->drop_untrained = spec->drop_untrained && !spec->keeps_untrained;
    if (spec->drop_untrained && !source->has_mask)
        return rp_fail_context(error, rp_mask_fail_drop(error), "source `%s`", source->name);
    int code = corpus->index ? rp_index_check_source(corpus->index, s, spec, error) : 0;
    return code < 0 ? code : make_buckets(corpus, source, error);
}

static int make_shards(struct rp_corpus *corpus, const struct rp_corpus_spec *spec,
                       struct rp_error *error)
{
    uint64_t shards = 0;
    for (uint32_t s = 0; s < spec->source_count; s++)
        shards += spec->sources[s].shard_count;
    if (shards == 0 || shards > UINT32_MAX)
        return rp_fail(error, -RP_E_EMPTY, "name at least one shard", "the corpus has no shards");
    corpus->shard_total = (uint32_t)shards;
    corpus->shards = rp_calloc((size_t)shards, sizeof *corpus->shards);
    if (!corpus->shards)
        return fail_memory(error);
    int64_t remotes = rp_corpus_open_remotes(&corpus->remotes, spec->sources, spec->source_count,
                                             spec->cache_dir, spec->gate, error);
    corpus->remote_count = remotes < 0 ? 0 : (size_t)remotes;
    return remotes < 0 ? (int)remotes : 0;
}

static int open_sources(struct rp_corpus *corpus, const struct rp_corpus_spec *spec,
                        struct rp_error *error)
{
    int code = spec->index ? open_index(corpus, spec, error) : make_shards(corpus, spec, error);
    if (code < 0)
        return code;
    size_t segments = spec->index ? corpus->index->segment_count : corpus->shard_total;
    corpus->sources = rp_calloc(spec->source_count, sizeof *corpus->sources);
    corpus->segments = rp_calloc(segments, sizeof *corpus->segments);
    corpus->use = rp_calloc(1, sizeof *corpus->use +
                                   (size_t)rp_div_up(segments, 64) * sizeof *corpus->use->used);
    code = corpus->sources && corpus->segments && corpus->use ? 0 : fail_memory(error);
    if (corpus->use)
        pthread_mutex_init(&corpus->use->lock, NULL);
    const struct rp_remote *next = corpus->remotes;
    for (uint32_t s = 0; code == 0 && s < spec->source_count; s++) {
        corpus->source_count = s + 1;
        code = open_source(corpus, s, spec, &next, error);
        if (code == 0)
            code = finish_source(corpus, s, &spec->sources[s], error);
    }
    return code;
}

/* Leave out the documents that are in no range (range.h); the fingerprints say so. */
static int take_ranges(struct rp_corpus *corpus, const struct rp_corpus_spec *spec,
                       struct rp_error *error)
{
    struct rp_fingerprint_list list;
    int code = 0;
    rp_fingerprint_begin(&list);
    for (uint32_t s = 0; code == 0 && s < spec->source_count; s++) {
        struct rp_source *source = &corpus->sources[s];
        const char *recorded = spec->sources[s].recorded, *documents = spec->sources[s].documents;
        code = rp_source_take_range(source, recorded[0] ? recorded : documents, error);
        source->is_percent |= recorded[0] != '\0'; /* only percent is recorded as numbers */
        if (code < 0)
            code = rp_fail_context(error, code, "source `%s`", source->name);
        rp_fingerprint_add(&list, &source->fingerprint);
    }
    corpus->fingerprint = rp_fingerprint_of(&list);
    return code;
}

int rp_corpus_open(struct rp_corpus **corpus_out, const struct rp_corpus_spec *spec,
                   struct rp_error *error)
{
    *corpus_out = NULL;
    struct rp_corpus *corpus = rp_calloc(1, sizeof *corpus);
    int code = corpus ? open_sources(corpus, spec, error) : fail_memory(error);
    if (code == 0)
        code = take_ranges(corpus, spec, error);
    if (code == 0 && spec->sides)
        code = rp_sides_open(&corpus->sides, corpus, spec, error);
    if (code < 0)
        rp_corpus_close(corpus);
    else
        *corpus_out = corpus;
    return code;
}

void rp_corpus_close(struct rp_corpus *corpus)
{
    if (!corpus)
        return;
    for (uint32_t s = 0; s < corpus->source_count; s++) {
        free(corpus->sources[s].name);
        free(corpus->sources[s].segment_begins);
        free(corpus->sources[s].bucket);
    }
    rp_sides_close(&corpus->sides);
    for (uint32_t i = 0; corpus->shards && i < corpus->shard_count; i++)
        rp_shard_close(&corpus->shards[i]);
    rp_listed_close(corpus);
    rp_remotes_close(corpus->remotes, corpus->remote_count);
    free(corpus->sources);
    free(corpus->shards);
    free(corpus->segments);
    if (corpus->use)
        pthread_mutex_destroy(&corpus->use->lock);
    free(corpus->use);
    free(corpus);
}
