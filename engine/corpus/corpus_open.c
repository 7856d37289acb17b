/* SPDX-License-Identifier: Apache-2.0 */
/* corpus_open — opening the shards of all sources, one after another (corpus_struct.h). */
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

/* Buckets a shard; more of them means fewer shards to choose from. */
#define BUCKETS_PER_SHARD 4u

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
    int code = corpus->remote_count ? rp_corpus_gate_pass(spec->gate, error) : 0;
    if (code == 0 && corpus->remote_count)
        code = rp_remotes_open(&corpus->remotes, urls, corpus->remote_count, spec->cache_dir,
                               error);
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
        return rp_mask_fail_drop(error);
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

/* Leave out what is in no range (range.h), and say so in the fingerprint of the corpus. */
static int take_ranges(struct rp_corpus *corpus, const struct rp_corpus_spec *spec,
                       struct rp_error *error)
{
    struct rp_fingerprint *members = rp_calloc(spec->source_count, sizeof *members);
    bool has_range = false;
    int code = members ? 0 : fail_memory(error);
    for (uint32_t s = 0; code == 0 && s < spec->source_count; s++) {
        struct rp_source *source = &corpus->sources[s];
        has_range |= spec->sources[s].documents != NULL;
        code = rp_source_take_range(source, spec->sources[s].documents, rp_source_length, error);
        if (code < 0)
            code = rp_fail_context(error, code, "source `%s`", source->name);
        members[s] = source->fingerprint;
    }
    if (code == 0 && has_range)
        corpus->fingerprint = rp_fingerprint_combine(members, spec->source_count);
    free(members);
    return code;
}

int rp_corpus_open(struct rp_corpus **corpus_out, const struct rp_corpus_spec *spec,
                   struct rp_error *error)
{
    *corpus_out = NULL;
    struct rp_corpus *corpus = rp_calloc(1, sizeof *corpus);
    int code;
    if (!corpus)
        code = fail_memory(error);
    else
        code = spec->manifest ? rp_corpus_open_manifest(corpus, spec, error)
                              : open_sources(corpus, spec, error);
    if (code == 0)
        code = take_ranges(corpus, spec, error);
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
    for (uint32_t i = 0; corpus->shards && i < corpus->shard_count; i++)
        rp_shard_close(&corpus->shards[i]);
    rp_corpus_close_manifest(corpus);
    rp_remotes_close(corpus->remotes, corpus->remote_count);
    free(corpus->sources);
    free(corpus->shards);
    free(corpus->asked);
    free(corpus);
}
