/* SPDX-License-Identifier: Apache-2.0 */
/* corpus_manifest — a corpus whose shards are in a manifest (manifest/manifest.h).
 *
 * Nothing is made for a shard until it is used: then its record is read in the mapping, and a
 * struct rp_shard with its path is kept until the corpus is closed. Any thread may be the first to
 * use it; the one that is first to store the pointer wins, and the other frees its own. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "corpus/corpus_struct.h"
#include "object/url.h"

struct made {
    struct rp_shard shard;
    const struct rp_manifest *manifest;
    const struct rp_manifest_segment *segment;
    char *path;
    char *url; /* NULL: it is a file */
};

static void free_made(struct made *made)
{
    if (made) {
        free(made->path);
        free(made->url);
    }
    free(made);
}

/* ---- open ------------------------------------------------------------------------------------ */

static int fail_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "no memory for the tables of the corpus");
}

/* The manifest has no queries: those of the configuration's URLs count. */
static int keep_queries(struct rp_source *source, const struct rp_source_spec *spec,
                        struct rp_error *error)
{
    source->queried = rp_calloc(spec->shard_count, sizeof *source->queried);
    if (!source->queried)
        return fail_memory(error);
    for (uint32_t i = 0; i < spec->shard_count; i++) {
        char *name = rp_url_is(spec->shards[i]) ? rp_url_name(spec->shards[i]) : NULL;
        bool has_query = name && strcmp(name, spec->shards[i]) != 0;
        free(name);
        if (!has_query)
            continue;
        source->queried[source->queried_count] = strdup(spec->shards[i]);
        if (!source->queried[source->queried_count++])
            return fail_memory(error);
    }
    return 0;
}

static int open_source(struct rp_corpus *corpus, uint32_t s, const struct rp_source_spec *spec,
                       struct rp_error *error)
{
    const struct rp_manifest_source *part = &corpus->manifest->sources[s];
    const char *name = spec->name ? spec->name : part->texts[RP_MANIFEST_NAME];
    corpus->sources[s] = (struct rp_source){.name = strdup(name),
                                            .first_shard = corpus->shard_count,
                                            .shard_count = part->shards,
                                            .documents = part->documents,
                                            .tokens = part->tokens,
                                            .fingerprint = part->fingerprint,
                                            .has_mask = part->texts[RP_MANIFEST_FOUND_MASK][0],
                                            .drop_unmasked = spec->drop_unmasked,
                                            .part = part,
                                            .corpus = corpus};
    corpus->shard_count += part->shards;
    if (!corpus->sources[s].name)
        return fail_memory(error);
    if (spec->drop_unmasked && !corpus->sources[s].has_mask)
        return rp_fail_context(error, rp_mask_fail_drop(error), "source `%s`",
                               corpus->sources[s].name);
    if (rp_ids_know_tokenizer(&part->tokenizer)) {
        int code = rp_ids_take_tokenizer(&corpus->tokenizer, &part->tokenizer,
                                         corpus->sources[s].name, corpus->manifest->path, error);
        if (code < 0)
            return code;
    }
    for (uint32_t i = 0; i < part->segment_count; i++)
        if (corpus->sources[s].has_mask && !part->segments[i].shape.has_spans)
            return rp_manifest_fail_damaged(corpus->manifest, "segment with spans", error);
    int code = rp_manifest_check_source(corpus->manifest, s, spec, error);
    return code < 0 ? code : keep_queries(&corpus->sources[s], spec, error);
}

int rp_corpus_open_manifest(struct rp_corpus *corpus, const struct rp_corpus_spec *spec,
                            struct rp_error *error)
{
    int code = rp_url_is(spec->manifest) ? rp_corpus_gate_pass(spec->gate, error) : 0;
    if (code == 0)
        code = rp_manifest_open_place(&corpus->manifest, spec->manifest, spec->cache_dir, error);
    if (code < 0)
        return code;
    const struct rp_manifest *manifest = corpus->manifest;
    if (manifest->source_count != spec->source_count)
        return rp_fail(error, -RP_E_MISMATCH,
                       "run `ringpack index -c CONFIG`, which makes the manifest what the "
                       "configuration says",
                       "%s: sources: the manifest was made with %" PRIu32
                       ", the configuration has %" PRIu32,
                       manifest->path, manifest->source_count, spec->source_count);
    corpus->sources = rp_calloc(spec->source_count, sizeof *corpus->sources);
    corpus->made = rp_calloc(manifest->shard_count, sizeof *corpus->made);
    corpus->fingerprint = manifest->fingerprint;
    corpus->damaged = (struct rp_shard){.path = manifest->path, .type = RP_TOKEN_U8};
    if (!corpus->sources || !corpus->made)
        return fail_memory(error);
    for (uint32_t s = 0; code == 0 && s < spec->source_count; s++) {
        corpus->source_count = s + 1;
        code = open_source(corpus, s, &spec->sources[s], error);
    }
    return code;
}

void rp_corpus_close_manifest(struct rp_corpus *corpus)
{
    for (uint32_t i = 0; corpus->made && i < corpus->shard_count; i++) {
        struct made *made = (void *)(uintptr_t)rp_a64_load_relaxed(&corpus->made[i]);
        free_made(made);
    }
    for (uint32_t s = 0; s < corpus->source_count; s++) {
        for (uint32_t i = 0; i < corpus->sources[s].queried_count; i++)
            free(corpus->sources[s].queried[i]);
        free(corpus->sources[s].queried);
    }
    free(corpus->made);
    rp_manifest_close(corpus->manifest);
}

/* ---- shards ---------------------------------------------------------------------------------- */

static const struct rp_manifest_source *source_of_shard(const struct rp_corpus *corpus,
                                                        uint32_t shard, uint32_t *source_out)
{
    uint32_t s = 0;
    while (s + 1 < corpus->source_count && corpus->sources[s + 1].first_shard <= shard)
        s++;
    *source_out = s;
    return corpus->sources[s].part;
}

/* Does the URL, whose path has `bytes` bytes, name the object: its tokens, or the .idx, the sidecar
 * or the prefix of them? */
static bool is_url_of(const char *url, size_t bytes, const char *name)
{
    static const struct {
        const char *url, *tokens; /* endings */
    } endings[] = {{"", ""}, {".rpx", ""}, {".idx", ".bin"}, {"", ".bin"}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(endings); i++) {
        size_t cut = strlen(endings[i].url), stem = bytes - cut;
        if (bytes >= cut && !memcmp(url + stem, endings[i].url, cut) && !strncmp(name, url, stem) &&
            !strcmp(name + stem, endings[i].tokens))
            return true;
    }
    return false;
}

/* The URL of an object, with the query of the configuration's URL that stands for it: its own, else
 * that of a folder or a pattern. A query may be a signature, so none is sent with another object
 * than it was given for. The caller frees it; NULL when out of memory. */
static char *url_of(const struct rp_source *source, const char *name)
{
    const char *query = "";
    for (uint32_t i = 0; i < source->queried_count; i++) {
        const char *pattern = source->queried[i], *mark = pattern + strcspn(pattern, "?#");
        size_t bytes = (size_t)(mark - pattern), folder = strcspn(pattern, "*[?#");
        bool is_one = folder == bytes && pattern[bytes - 1] != '/';
        while (folder > 0 && pattern[folder - 1] != '/')
            folder--;
        if (is_one && is_url_of(pattern, bytes, name))
            return rp_format("%s%s", name, mark);
        if (!is_one && !strncmp(name, pattern, folder))
            query = mark;
    }
    return rp_format("%s%s", name, query);
}

static int make_object(struct made *made, const struct rp_source *source,
                       const struct rp_manifest_record *record)
{
    made->url = url_of(source, made->path);
    made->shard.url = made->url;
    made->shard.identity = rp_manifest_identity(made->segment, record);
    return made->url && made->shard.identity ? 0 : -RP_E_CORRUPT;
}

static struct made *make_shard(const struct rp_corpus *corpus, uint32_t shard)
{
    uint32_t s;
    const struct rp_manifest_source *part = source_of_shard(corpus, shard, &s);
    uint32_t own = shard - corpus->sources[s].first_shard;
    const struct rp_manifest_segment *segment = rp_manifest_segment_of_shard(part, own);
    struct rp_manifest_record record;
    struct made *made = rp_calloc(1, sizeof *made);
    if (!made || !rp_manifest_record(corpus->manifest, segment, own - segment->first_shard, &record,
                                     &made->path)) {
        free_made(made);
        return NULL;
    }
    bool is_object = rp_url_is(made->path);
    if (!is_object && rp_url_is(corpus->manifest->path)) { /* which may not name files of here */
        free_made(made);
        return NULL;
    }
    made->manifest = corpus->manifest;
    made->segment = segment;
    made->shard = (struct rp_shard){
        .path = made->path,
        .bytes = record.bytes,
        .source = s,
        .type = record.type,
        .block_hashes = rp_manifest_blocks(segment) + record.first_block,
        .block_count = rp_div_up(record.bytes, RP_BLOCK_BYTES),
        .documents = record.documents,
        .tokens = record.tokens,
        .stamp = {.bytes = record.bytes, .mtime_ns = record.mtime_ns},
        .in_manifest = true,
        .index_mtime_ns = record.format == RP_FORMAT_MEGATRON && !is_object ? record.beside.index_ns
                                                                            : 0,
    };
    if (is_object && make_object(made, &corpus->sources[s], &record) < 0) {
        free_made(made);
        return NULL;
    }
    return made;
}

const struct rp_shard *rp_corpus_make_shard(const struct rp_corpus *corpus, uint32_t shard)
{
    struct rp_a64 *place = &corpus->made[shard];
    struct made *made = (void *)(uintptr_t)rp_a64_load_acquire(place); /* PAIRS made-shard */
    if (made)
        return &made->shard;
    made = make_shard(corpus, shard);
    if (!made)
        return &corpus->damaged;
    uint64_t found = 0;
    if (rp_a64_replace(place, &found, (uintptr_t)made)) /* PAIRS made-shard */
        return &made->shard;
    free_made(made);
    made = (void *)(uintptr_t)found;
    return &made->shard;
}

uint64_t rp_in_manifest_token_max(const struct rp_source *source)
{
    uint64_t largest = 0;
    struct rp_manifest_record record;
    for (uint32_t g = 0; g < source->part->segment_count; g++) {
        const struct rp_manifest_segment *segment = &source->part->segments[g];
        for (uint32_t i = 0; i < segment->shape.shards; i++)
            if (rp_manifest_record(source->corpus->manifest, segment, i, &record, NULL) &&
                record.token_max != UINT64_MAX)
                largest = rp_max_u64(largest, record.token_max);
    }
    return largest;
}

/* A segment says how many objects it has; nearly always its first shard is one. */
const struct rp_shard *rp_corpus_first_made_object(const struct rp_corpus *corpus)
{
    const struct rp_shard *found = NULL;
    for (uint32_t s = 0; s < corpus->source_count; s++)
        for (uint32_t g = 0; g < corpus->sources[s].part->segment_count; g++) {
            const struct rp_manifest_segment *segment = &corpus->sources[s].part->segments[g];
            uint32_t first = corpus->sources[s].first_shard + segment->first_shard;
            for (uint32_t i = 0; segment->shape.objects && i < segment->shape.shards; i++) {
                found = rp_corpus_make_shard(corpus, first + i);
                if (found->url)
                    return found;
            }
        }
    return found; /* of a segment whose records are damaged */
}

/* Shards are visited only in a source that has both files and objects. */
uint64_t rp_in_manifest_file_bytes(const struct rp_corpus *corpus, uint32_t source)
{
    const struct rp_manifest_source *part = corpus->sources[source].part;
    uint64_t objects = 0, bytes = 0;
    for (uint32_t g = 0; g < part->segment_count; g++)
        objects += part->segments[g].shape.objects;
    if (objects == 0)
        return part->bytes;
    for (uint32_t i = 0; objects < part->shards && i < part->shards; i++) {
        const struct rp_shard *shard = rp_corpus_make_shard(
            corpus, corpus->sources[source].first_shard + i);
        bytes += shard->url ? 0 : shard->bytes;
    }
    return bytes;
}

int rp_corpus_check_blocks(const struct rp_shard *shard, struct rp_error *error)
{
    const struct made *made = (const struct made *)(const void *)shard;
    RP_STATIC_ASSERT(offsetof(struct made, shard) == 0, "a shard is the head of what was made");
    const struct rp_tree *tree = &made->segment->tree;
    uint64_t at = (uint64_t)((const uint8_t *)shard->block_hashes - tree->data);
    bool is_good = shard->block_count == 0 ||
                   rp_tree_verify_range(tree, at, 8 * shard->block_count);
    return is_good ? 0 : rp_manifest_fail_damaged(made->manifest, "block hashes", error);
}

/* ---- documents ------------------------------------------------------------------------------- */

uint64_t rp_in_manifest_length(const struct rp_source *source, uint64_t document)
{
    const struct rp_manifest_segment *segment = rp_manifest_segment_of(source->part, document);
    const struct rp_table *table = &segment->table;
    uint64_t own = document - segment->first_document;
    if (source->drop_unmasked) {
        if (!rp_table_verify_ends(table, own))
            return UINT64_MAX;
        if (!rp_spans_any(&table->spans, own))
            return 0;
    }
    return rp_table_length(table, own);
}

void rp_in_manifest_length_many(const struct rp_source *source, const uint64_t *documents,
                                uint32_t count, uint64_t *tokens)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct rp_manifest_segment *segment = rp_manifest_segment_of(source->part,
                                                                           documents[i]);
        uint64_t own = documents[i] - segment->first_document;
        __builtin_prefetch(&segment->table.lengths[own]);
        if (source->drop_unmasked)
            rp_spans_expect(&segment->table.spans, own);
    }
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = rp_in_manifest_length(source, documents[i]);
}

/* Where a document is: in a segment, and in one of its shards. */
struct place {
    const struct rp_manifest_segment *segment;
    const struct rp_shard *shard;
    uint32_t shard_number; /* in the corpus */
    uint64_t document;     /* of the segment */
    uint64_t row;          /* of the shard */
};

/* NULL, or what is wrong. The shard is found first, so that a message can name it. */
static const char *find(const struct rp_source *source, uint64_t document, struct place *place)
{
    const struct rp_manifest_segment *segment = rp_manifest_segment_of(source->part, document);
    *place = (struct place){.segment = segment,
                            .shard = &source->corpus->damaged,
                            .document = document - segment->first_document};
    uint32_t own = rp_manifest_shard_of(segment, place->document);
    uint64_t first = own == UINT32_MAX ? UINT64_MAX : rp_manifest_first(segment, own);
    if (first > place->document)
        return "the page of the manifest that says in which shard it is differs from its hash";
    place->row = place->document - first;
    place->shard_number = source->first_shard + segment->first_shard + own;
    place->shard = rp_corpus_make_shard(source->corpus, place->shard_number);
    return place->shard->in_manifest ? NULL
                                     : "the page of the manifest that has the record of its shard "
                                       "differs from its hash, or the manifest is in a store, and "
                                       "the record is not of an object";
}

static const char *locate(const struct rp_source *source, uint64_t document, struct place *place,
                          uint64_t *tokens, uint64_t *byte)
{
    const char *problem = find(source, document, place);
    return problem ? problem
                   : rp_table_locate(&place->segment->table, place->document,
                                     rp_token_width(place->shard->type), place->shard->bytes,
                                     tokens, byte);
}

int rp_in_manifest_explain(const struct rp_source *source, uint64_t document,
                           struct rp_error *error)
{
    struct place place;
    uint64_t tokens, byte;
    const char *problem = locate(source, document, &place, &tokens, &byte);
    if (!problem && source->drop_unmasked &&
        !rp_table_verify_ends(&place.segment->table, place.document))
        problem = "the page of the manifest that has its spans differs from its hash";
    return rp_fail(error, -RP_E_CORRUPT,
                   "run `ringpack inspect --scan` on the manifest, and `ringpack index -c CONFIG` "
                   "to make it again; token files are not touched",
                   "source `%s`, document %" PRIu64 " (document %" PRIu64 " of %s): %s",
                   source->name, document - source->skipped, place.row, place.shard->path,
                   problem ? problem : "its entry was bad and is good now");
}

int rp_in_manifest_extent(const struct rp_source *source, uint64_t document,
                          struct rp_extent *extent, struct rp_error *error)
{
    struct place place;
    const char *problem = locate(source, document, &place, &extent->tokens, &extent->byte_offset);
    if (problem)
        return rp_in_manifest_explain(source, document, error);
    extent->shard = place.shard_number;
    extent->width = rp_token_width(place.shard->type);
    return 0;
}

const char *rp_in_manifest_row(const struct rp_source *source, uint64_t document, uint64_t *row_out)
{
    struct place place;
    (void)find(source, document, &place); /* else the path is the manifest's */
    *row_out = place.row;
    return place.shard->path;
}

int rp_in_manifest_has_span(const struct rp_source *source, uint64_t document)
{
    const struct rp_manifest_segment *segment = rp_manifest_segment_of(source->part, document);
    uint64_t own = document - segment->first_document;
    return rp_table_verify_ends(&segment->table, own) ? rp_spans_any(&segment->table.spans, own)
                                                      : -RP_E_CORRUPT;
}

int rp_in_manifest_spans(const struct rp_source *source, const struct rp_part *part,
                         struct rp_span *out, uint32_t *count_out, struct rp_error *error)
{
    const struct rp_manifest_segment *segment = rp_manifest_segment_of(source->part,
                                                                       part->document);
    struct rp_part own = *part;
    own.document -= segment->first_document;
    const char *problem = "the page of the manifest that has its spans differs from its hash";
    if (rp_table_verify_spans(&segment->table, own.document))
        problem = rp_spans_cut(&segment->table.spans, &own, out, count_out);
    return problem ? rp_fail(error, -RP_E_CORRUPT, "run `ringpack index -c CONFIG` again",
                             "source `%s`, document %" PRIu64 ": %s", source->name,
                             part->document - source->skipped, problem)
                   : 0;
}

void rp_in_manifest_expect_extent(const struct rp_source *source, uint64_t document)
{
    const struct rp_manifest_segment *segment = rp_manifest_segment_of(source->part, document);
    uint64_t own = document - segment->first_document;
    __builtin_prefetch(&segment->table.bytes[own]);
    if (source->has_mask)
        rp_spans_expect(&segment->table.spans, own);
}
