/* SPDX-License-Identifier: Apache-2.0 */
/* corpus — the sources of a run and the shards of each, one behind the other.
 *
 * Invariants: shards are numbered over the whole corpus, in the order of the sources and of their
 * lists. Document d of a source lies in the shard s with first[s] <= d < first[s + 1]; a table with
 * a few entries a shard gives the place to start looking, so the usual look-up is one division-free
 * step, and it keeps no state that threads would have to share. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mapped.h"
#include "base/mem.h"
#include "corpus/shard.h"
#include "object/url.h"

/* Buckets a shard; more of them means fewer shards to choose from. */
#define BUCKETS_PER_SHARD 4u

struct rp_source {
    char *name;
    struct rp_opened *shards; /* of the corpus, from the first of this source on */
    uint32_t first_shard, shard_count;
    uint64_t documents, tokens;
    uint64_t *first;  /* [shard_count + 1] first document of each shard, then documents */
    uint32_t *bucket; /* [b] shard of document b << bucket_shift, counted within the source */
    unsigned bucket_shift;
    bool has_mask, drop_unmasked;
    struct rp_fingerprint fingerprint;
    struct rp_a64 *asked; /* of the corpus */
};

struct rp_corpus {
    struct rp_source *sources;
    uint32_t source_count;
    struct rp_opened *shards;
    uint32_t shard_count, shard_total; /* opened so far, and all */
    /* [shards / 64]: whose index was asked since the last look. Set by whoever asks */
    struct rp_a64 *asked;
    struct rp_fingerprint fingerprint;
    struct rp_tokenizer_known tokenizer;
    struct rp_remote *remotes; /* of the shards that are URLs, in their order */
    size_t remote_count;
};

static int fail_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "no memory for the tables of the corpus");
}

/* The limit of mappings was met. Say what it has to be if the other shards are like these. */
static int fail_mappings(const struct rp_corpus *corpus, struct rp_error *error)
{
    uint64_t left = corpus->shard_total - corpus->shard_count;
    uint64_t opened = rp_max_u64(corpus->shard_count, 1);
    int code = rp_mapped_check_room(rp_div_up(rp_mapped_count() * left, opened), error);
    return rp_fail_context(error, code, "%" PRIu32 " of %" PRIu32 " shards are open",
                           corpus->shard_count, corpus->shard_total);
}

/* All at once, because each costs at least one answer of a server. */
static int open_remotes(struct rp_corpus *corpus, const struct rp_corpus_spec *spec,
                        struct rp_error *error)
{
    const char **urls = rp_calloc(corpus->shard_total, sizeof *urls);
    if (!urls)
        return fail_memory(error);
    for (uint32_t s = 0; s < spec->source_count; s++)
        for (uint32_t i = 0; i < spec->sources[s].shard_count; i++)
            if (rp_url_is(spec->sources[s].shards[i]))
                urls[corpus->remote_count++] = spec->sources[s].shards[i];
    int code = corpus->remote_count ? rp_remotes_open(&corpus->remotes, urls, corpus->remote_count,
                                                      spec->cache_dir, error)
                                    : 0;
    free(urls);
    return code;
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
    };
    for (uint32_t i = 0; i < source_spec->shard_count; i++) {
        struct rp_opened *opened = &corpus->shards[corpus->shard_count];
        options.find.remote = rp_url_is(source_spec->shards[i]) ? (*next)++ : NULL;
        int code = rp_shard_open(opened, source_spec->shards[i], s, &options, error);
        if (code == -RP_E_RESOURCE)
            return fail_mappings(corpus, error);
        if (code < 0)
            return code;
        corpus->shard_count++;
        if (opened->shard.tokenizer)
            code = rp_ids_take_tokenizer(&corpus->tokenizer, opened->shard.tokenizer,
                                         corpus->sources[s].name, opened->shard.path, error);
        if (code < 0)
            return code;
        if (opened->found.data_missing)
            rp_log(RP_LOG_WARNING, "%s: cannot be opened; going on with what its sidecar knows",
                   opened->shard.path);
    }
    return 0;
}

static int sum_shards(struct rp_source *source, struct rp_error *error)
{
    source->first = rp_calloc(source->shard_count + 1u, sizeof *source->first);
    struct rp_fingerprint *members = rp_calloc(source->shard_count, sizeof *members);
    bool fits = source->first && members;
    for (uint32_t i = 0; fits && i < source->shard_count; i++) {
        const struct rp_opened *opened = &source->shards[i];
        members[i] = opened->fingerprint;
        fits = rp_add_u64(source->first[i], opened->shard.documents, &source->first[i + 1]) &&
               rp_add_u64(source->tokens, opened->shard.tokens, &source->tokens);
    }
    if (fits) {
        source->documents = source->first[source->shard_count];
        source->fingerprint = rp_fingerprint_combine(members, source->shard_count);
    }
    free(members);
    return fits ? 0 : fail_memory(error);
}

/* All shards of a source have the same mask, or none has. */
static int take_mask(struct rp_source *source, bool drop_unmasked, struct rp_error *error)
{
    const struct rp_opened *first = &source->shards[0];
    for (uint32_t i = 0; i < source->shard_count; i++) {
        const struct rp_opened *opened = &source->shards[i];
        char expected[64] = "none", found[64] = "none";
        if (first->uses_spans)
            rp_mask_text(first->mask, expected, sizeof expected);
        if (opened->uses_spans)
            rp_mask_text(opened->mask, found, sizeof found);
        if (strcmp(expected, found) != 0)
            return rp_fail(error, -RP_E_MISMATCH,
                           "index all its shards with one mask (`ringpack index --mask NAME`), or "
                           "set mask: none",
                           "%s: mask: expected %s, as of %s, found %s", opened->shard.path,
                           expected, first->shard.path, found);
    }
    source->has_mask = first->uses_spans;
    source->drop_unmasked = drop_unmasked;
    if (drop_unmasked && !source->has_mask)
        return rp_fail(error, -RP_E_CONFIG,
                       "index its shards with a mask, or leave drop_unmasked out",
                       "drop_unmasked: its shards have no mask, or mask: none was given");
    return 0;
}

static int make_buckets(struct rp_source *source, struct rp_error *error)
{
    uint64_t wanted = (uint64_t)BUCKETS_PER_SHARD * source->shard_count;
    while (source->documents >> source->bucket_shift > wanted)
        source->bucket_shift++;
    uint64_t count = (source->documents >> source->bucket_shift) + 2;
    source->bucket = rp_calloc((size_t)count, sizeof *source->bucket);
    if (!source->bucket)
        return fail_memory(error);
    uint32_t shard = 0;
    for (uint64_t b = 0; b < count; b++) {
        while (shard + 1 < source->shard_count &&
               source->first[shard + 1] <= b << source->bucket_shift)
            shard++;
        source->bucket[b] = shard;
    }
    return 0;
}

static int open_source(struct rp_corpus *corpus, uint32_t s, const struct rp_corpus_spec *spec,
                       const struct rp_remote **next, struct rp_error *error)
{
    const struct rp_source_spec *source_spec = &spec->sources[s];
    struct rp_source *source = &corpus->sources[s];
    source->first_shard = corpus->shard_count;
    source->shards = corpus->shards + corpus->shard_count;
    source->shard_count = source_spec->shard_count;
    source->asked = corpus->asked;
    source->name = strdup(source_spec->name ? source_spec->name : "");
    int code = source->name ? open_shards(corpus, s, spec, next, error) : fail_memory(error);
    if (code == 0)
        code = sum_shards(source, error);
    if (code == 0 && (source->documents == 0 || source->tokens == 0))
        code = rp_fail(error, -RP_E_EMPTY, "`ringpack inspect` on its shards shows what they hold",
                       "expected documents with tokens, found %" PRIu64 " documents with %" PRIu64
                       " tokens in %" PRIu32 " shards",
                       source->documents, source->tokens, source->shard_count);
    if (code == 0)
        code = take_mask(source, source_spec->drop_unmasked, error);
    if (code == 0)
        code = make_buckets(source, error);
    return code < 0 ? rp_fail_context(error, code, "source `%s`",
                                      source_spec->name ? source_spec->name : "")
                    : 0;
}

static int open_sources(struct rp_corpus *corpus, const struct rp_corpus_spec *spec,
                        struct rp_error *error)
{
    uint64_t shards = 0;
    for (uint32_t s = 0; s < spec->source_count; s++)
        shards += spec->sources[s].shard_count;
    if (shards == 0 || shards > UINT32_MAX)
        return rp_fail(error, -RP_E_EMPTY, "name at least one shard", "the corpus has no shards");
    corpus->shard_total = (uint32_t)shards;
    corpus->shards = rp_calloc((size_t)shards, sizeof *corpus->shards);
    corpus->sources = rp_calloc(spec->source_count, sizeof *corpus->sources);
    corpus->asked = rp_calloc((size_t)rp_div_up(shards, 64), sizeof *corpus->asked);
    struct rp_fingerprint *members = rp_calloc(spec->source_count, sizeof *members);
    int code = corpus->shards && corpus->sources && corpus->asked && members ? 0
                                                                             : fail_memory(error);
    if (code == 0)
        code = open_remotes(corpus, spec, error);
    const struct rp_remote *next = corpus->remotes;
    for (uint32_t s = 0; code == 0 && s < spec->source_count; s++) {
        corpus->source_count = s + 1;
        code = open_source(corpus, s, spec, &next, error);
        members[s] = corpus->sources[s].fingerprint;
    }
    if (code == 0)
        corpus->fingerprint = rp_fingerprint_combine(members, spec->source_count);
    free(members);
    return code;
}

int rp_corpus_open(struct rp_corpus **corpus_out, const struct rp_corpus_spec *spec,
                   struct rp_error *error)
{
    *corpus_out = NULL;
    struct rp_corpus *corpus = rp_calloc(1, sizeof *corpus);
    int code = corpus ? open_sources(corpus, spec, error) : fail_memory(error);
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
        free(corpus->sources[s].first);
        free(corpus->sources[s].bucket);
    }
    for (uint32_t i = 0; i < corpus->shard_count; i++)
        rp_shard_close(&corpus->shards[i]);
    rp_remotes_close(corpus->remotes, corpus->remote_count);
    free(corpus->sources);
    free(corpus->shards);
    free(corpus->asked);
    free(corpus);
}

uint32_t rp_corpus_source_count(const struct rp_corpus *corpus)
{
    return corpus->source_count;
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

const struct rp_source *rp_corpus_source(const struct rp_corpus *corpus, uint32_t source)
{
    RP_ASSERT(source < corpus->source_count);
    return &corpus->sources[source];
}

const struct rp_shard *rp_corpus_shard(const struct rp_corpus *corpus, uint32_t shard)
{
    RP_ASSERT(shard < corpus->shard_count);
    return &corpus->shards[shard].shard;
}

void rp_corpus_fingerprint_text(const struct rp_corpus *corpus, char *text, size_t bytes)
{
    uint32_t without = 0;
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
    RP_DASSERT(document < source->documents);
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

/* The index of this shard is to be looked at again. Before it is asked. */
static void note_asked(const struct rp_source *source, uint32_t s)
{
    uint32_t shard = source->first_shard + s;
    uint64_t bit = 1ull << (shard % 64);
    if (!(rp_a64_load_relaxed(&source->asked[shard / 64]) & bit))
        rp_a64_or_relaxed(&source->asked[shard / 64], bit);
}

int rp_corpus_look(const struct rp_corpus *corpus, struct rp_error *error)
{
    for (uint32_t i = 0; i < rp_div_up(corpus->shard_count, 64); i++) {
        uint64_t asked = rp_a64_load_relaxed(&corpus->asked[i]);
        if (asked)
            rp_a64_and_relaxed(&corpus->asked[i], ~asked);
        for (uint64_t left = asked; left; left &= left - 1) {
            uint32_t shard = 64 * i + (uint32_t)__builtin_ctzll(left);
            int code = rp_shard_look(&corpus->shards[shard], error);
            if (code < 0) { /* as any look until it is restored */
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

uint64_t rp_source_length(const void *source, uint64_t document)
{
    return length_of(source, document);
}

void rp_source_length_many(const void *source_lengths, const uint64_t *documents, uint32_t count,
                           uint64_t *tokens)
{
    const struct rp_source *source = source_lengths;
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

int rp_source_explain(const struct rp_source *source, uint64_t document, struct rp_error *error)
{
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
             opened->shard.path);
    return rp_fail(error, -RP_E_CORRUPT, hint,
                   "source `%s`, document %" PRIu64 " (document %" PRIu64 " of %s): %s",
                   source->name, document, document - source->first[s], opened->shard.path,
                   problem ? problem : "its index entry was bad and is good now");
}

int rp_source_extent(const struct rp_source *source, uint64_t document, struct rp_extent *extent,
                     struct rp_error *error)
{
    uint32_t s = shard_of(source, document);
    const struct rp_opened *opened = &source->shards[s];
    note_asked(source, s);
    *extent = (struct rp_extent){.shard = source->first_shard + s,
                                 .width = rp_token_width(opened->shard.type)};
    const char *problem = rp_shard_locate(opened, document - source->first[s], &extent->tokens,
                                          &extent->byte_offset);
    return problem ? rp_source_explain(source, document, error) : 0;
}

const char *rp_source_row(const struct rp_source *source, uint64_t document, uint64_t *row_out)
{
    uint32_t s = shard_of(source, document);
    *row_out = document - source->first[s];
    return source->shards[s].shard.path;
}

void rp_source_mask_text(const struct rp_source *source, char *text, size_t bytes)
{
    char mask[64] = "none";
    if (source->has_mask)
        rp_mask_text(source->shards[0].mask, mask, sizeof mask);
    snprintf(text, bytes, "%s%s", mask, source->drop_unmasked ? ", drop_unmasked" : "");
}

bool rp_source_has_mask(const struct rp_source *source)
{
    return source->has_mask;
}

int rp_source_spans(const struct rp_source *source, const struct rp_part *part, struct rp_span *out,
                    uint32_t *count_out, struct rp_error *error)
{
    RP_ASSERT(source->has_mask);
    uint32_t s = shard_of(source, part->document);
    const struct rp_opened *opened = &source->shards[s];
    struct rp_part own = *part;
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
    uint32_t s = shard_of(source, document);
    rp_shard_expect_extent(&source->shards[s], document - source->first[s]);
    if (source->has_mask)
        rp_spans_expect(&source->shards[s].table->spans, document - source->first[s]);
}
