/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.c — queries of the sources of a run and their shards (corpus_struct.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/mapped.h"
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

uint64_t rp_source_first(const struct rp_source *source)
{
    return source->before_range;
}

uint32_t rp_source_shards(const struct rp_source *source)
{
    return source->shard_count;
}

struct rp_source_part rp_source_whole(const struct rp_source *source)
{
    return source->whole;
}

struct rp_source_part rp_source_unverified(const struct rp_source *source)
{
    return source->unverified;
}

uint64_t rp_source_token_max(const struct rp_source *source)
{
    uint64_t largest = 0;
    struct rp_index_record record;
    for (uint32_t g = 0; g < source->segment_count; g++) {
        const struct rp_index_segment *segment = source->segments[g];
        for (uint32_t i = 0; segment->index && i < segment->shape.shards; i++)
            if (rp_index_get_record(segment, i, &record, NULL) && record.token_max != UINT64_MAX)
                largest = rp_max_u64(largest, record.token_max);
    }
    return largest;
}

const struct rp_source *rp_corpus_source(const struct rp_corpus *corpus, uint32_t source)
{
    RP_ASSERT(source < corpus->source_count);
    return &corpus->sources[source];
}

uint32_t rp_corpus_data_count(const struct rp_corpus *corpus)
{
    return corpus->shard_count * (1 + corpus->sides.count);
}

const struct rp_shard *rp_corpus_shard(const struct rp_corpus *corpus, uint32_t shard)
{
    if (corpus->sides.count && shard >= corpus->shard_count) {
        RP_ASSERT(shard < rp_corpus_data_count(corpus));
        return &corpus->sides.files[shard - corpus->shard_count].shard;
    }
    RP_ASSERT(shard < corpus->shard_count);
    return corpus->shards ? &corpus->shards[shard].shard : rp_listed_shard(corpus, shard);
}

const char *rp_corpus_index_path(const struct rp_corpus *corpus)
{
    return corpus->index ? corpus->index->path : NULL;
}

/* Only a source with both files and objects needs a visit of its shards. */
static uint64_t file_bytes(const struct rp_source *source)
{
    uint64_t bytes = 0;
    if (source->objects == 0 || source->objects == source->shard_count)
        return source->objects ? 0 : source->bytes;
    for (uint32_t i = 0; i < source->shard_count; i++) {
        const struct rp_shard *shard = rp_corpus_shard(source->corpus, source->first_shard + i);
        bytes += shard->url ? 0 : shard->bytes;
    }
    return bytes;
}

uint64_t rp_corpus_file_bytes(const struct rp_corpus *corpus)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < corpus->source_count; s++)
        bytes += file_bytes(&corpus->sources[s]);
    for (uint32_t c = 0; c < corpus->sides.count; c++)
        bytes += corpus->sides.columns[c].file_bytes;
    return bytes;
}

uint32_t rp_corpus_local_count(const struct rp_corpus *corpus)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < corpus->source_count; s++)
        count += corpus->sources[s].shard_count - corpus->sources[s].objects;
    return count * (1 + corpus->sides.count);
}

uint32_t rp_corpus_widest(const struct rp_corpus *corpus)
{
    uint32_t widest = 0;
    for (uint32_t s = 0; s < corpus->source_count; s++)
        widest = (uint32_t)rp_max_u64(widest, corpus->sources[s].widest);
    return widest;
}

/* Nearly always the first shard of a segment with objects is one. */
const struct rp_shard *rp_corpus_first_object(const struct rp_corpus *corpus)
{
    const struct rp_shard *found = NULL;
    for (uint32_t s = 0; s < corpus->source_count; s++) {
        const struct rp_source *source = &corpus->sources[s];
        for (uint32_t g = 0; source->objects && g < source->segment_count; g++) {
            const struct rp_index_segment *segment = source->segments[g];
            uint32_t first = source->first_shard + segment->first_shard;
            for (uint32_t i = 0; segment->shape.objects && i < segment->shape.shards; i++) {
                found = rp_corpus_shard(corpus, first + i);
                if (found->url)
                    return found;
            }
        }
    }
    return found; /* the segment has damaged records */
}

void rp_corpus_fingerprint_text(const struct rp_corpus *corpus, char *text, size_t bytes)
{
    uint32_t without = 0;
    for (uint32_t s = 0; s < corpus->source_count; s++)
        without += corpus->sources[s].unverified.shards;
    if (without == 0)
        snprintf(text, bytes, "full (%s)", corpus->index ? "index" : "sidecars");
    else
        snprintf(text, bytes,
                 "sampled (%" PRIu32 " of %" PRIu32
                 " shards have no sidecar; `ringpack index` makes it full)",
                 without, corpus->shard_count);
}

/* ---- documents ------------------------------------------------------------------------------- */

uint32_t rp_source_segment_number(const struct rp_source *source, uint64_t document)
{
    RP_DASSERT(document < source->segment_begins[source->segment_count]);
    uint64_t b = document >> source->bucket_shift;
    uint32_t low = source->bucket[b], high = source->bucket[b + 1];
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (source->segment_begins[middle] <= document)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

struct rp_index_segment *rp_source_segment(const struct rp_source *source, uint64_t document)
{
    return source->segments[rp_source_segment_number(source, document)];
}

/* The segment of a document of the source's range; *document becomes its number in the segment. */
static const struct rp_index_segment *segment_of(const struct rp_source *source, uint64_t *document)
{
    *document += source->before_range;
    const struct rp_index_segment *segment = rp_source_segment(source, *document);
    *document -= segment->first_document;
    return segment;
}

static uint64_t length_of(const struct rp_source *source, uint64_t document, bool drops_untrained)
{
    const struct rp_index_segment *segment = rp_source_segment(source, document);
    uint64_t own = document - segment->first_document, length = UINT64_MAX;
    int has_span = drops_untrained ? rp_documents_has_span(segment, own) : 1;
    if (has_span >= 0)
        length = has_span > 0 ? rp_documents_length(segment, own) : 0;
    rp_source_mark_used(source, segment); /* after the read: a check meanwhile forgets the bit */
    return length;
}

uint64_t rp_source_length(const void *source_of_plan, uint64_t document)
{
    const struct rp_source *source = source_of_plan;
    return length_of(source, document + source->before_range, source->drop_untrained);
}

static void length_many(const struct rp_source *source, const uint64_t *documents, uint32_t count,
                        bool drops_untrained, uint64_t *tokens)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct rp_index_segment *segment = rp_source_segment(source, documents[i]);
        rp_documents_prefetch(segment, documents[i] - segment->first_document);
        if (drops_untrained)
            rp_spans_prefetch(&segment->table.spans, documents[i] - segment->first_document);
    }
    /* While the cache misses are under way, check ahead in one segment: the first document is most
     * often in a large one. */
    struct rp_index_segment *segment = rp_source_segment(source, documents[0]);
    rp_documents_check_ahead(segment, documents[0] - segment->first_document);
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = length_of(source, documents[i], drops_untrained);
}

static void lengths_in_range(const struct rp_source *source, const uint64_t *documents,
                             uint32_t count, bool drops_untrained, uint64_t *tokens)
{
    uint64_t moved[64];
    if (source->before_range == 0) {
        length_many(source, documents, count, drops_untrained, tokens);
        return;
    }
    for (uint32_t at = 0; at < count; at += RP_ARRAY_COUNT(moved)) {
        uint32_t some = (uint32_t)rp_min_u64(RP_ARRAY_COUNT(moved), count - at);
        for (uint32_t i = 0; i < some; i++)
            moved[i] = documents[at + i] + source->before_range;
        length_many(source, moved, some, drops_untrained, tokens + at);
    }
}

void rp_source_length_many(const void *source_of_plan, const uint64_t *documents, uint32_t count,
                           uint64_t *tokens)
{
    const struct rp_source *source = source_of_plan;
    lengths_in_range(source, documents, count, source->drop_untrained, tokens);
}

int rp_source_own_lengths(const struct rp_source *source, const uint64_t *documents, uint32_t count,
                          uint64_t *lengths, struct rp_error *error)
{
    lengths_in_range(source, documents, count, false, lengths);
    for (uint32_t i = 0; i < count; i++)
        if (lengths[i] == UINT64_MAX)
            return rp_source_explain(source, documents[i], error);
    return 0;
}

/* Where a document is: in a segment, and in one of its shards. */
struct place {
    const struct rp_index_segment *segment;
    const struct rp_shard *shard;
    uint32_t shard_number; /* in the corpus */
    uint64_t in_segment;   /* number of the document in the segment */
    uint64_t in_shard;     /* and in the shard */
};

/* Sets *place. Returns NULL, or the fault: place->shard then is the corpus index's stand-in. */
static const char *find(const struct rp_source *source, uint64_t document, struct place *place)
{
    const struct rp_index_segment *segment = rp_source_segment(source, document);
    uint32_t own = 0;
    uint64_t first = 0;
    *place = (struct place){.segment = segment,
                            .shard = &source->corpus->damaged,
                            .in_segment = document - segment->first_document};
    if (!segment->opened) {
        own = rp_index_shard_of(segment, place->in_segment);
        first = own == UINT32_MAX ? UINT64_MAX : rp_index_documents_before(segment, own);
    }
    if (first > place->in_segment)
        return "the page of the index that says in which shard it is differs from its hash";
    place->in_shard = place->in_segment - first;
    place->shard_number = source->first_shard + segment->first_shard + own;
    place->shard = rp_corpus_shard(source->corpus, place->shard_number);
    return place->shard->segment ? NULL
                                 : "the page of the index that has the record of its shard differs "
                                   "from its hash, or the index is in a store, and the record is "
                                   "not of an object";
}

static const char *locate(const struct rp_source *source, uint64_t document, struct place *place,
                          uint64_t *tokens, uint64_t *byte)
{
    const char *problem = find(source, document, place);
    return problem ? problem
                   : rp_documents_locate(place->segment, rp_token_width(place->shard->type),
                                         place->shard->bytes, place->in_segment, tokens, byte);
}

/* The command that mends the entry of a document. */
static void hint_of(const struct place *place, char *hint, size_t bytes)
{
    if (!place->segment->opened)
        snprintf(
            hint, bytes,
            "run `ringpack inspect --scan` on the index, and `ringpack index -c CONFIG` to make "
            "it again; token files are not touched");
    else if (place->segment->megatron)
        snprintf(hint, bytes, "restore the index, or write the shard again");
    else
        snprintf(hint, bytes, "restore the file and run `ringpack index %s` again",
                 RP_HINT_PATH(place->shard->path));
}

int rp_source_explain(const struct rp_source *source, uint64_t document, struct rp_error *error)
{
    struct place place;
    uint64_t tokens, offset;
    const char *problem = locate(source, document + source->before_range, &place, &tokens, &offset);
    if (!problem && source->drop_untrained &&
        rp_documents_has_span(place.segment, place.in_segment) < 0)
        problem = "the page of the index that has its spans differs from its hash";
    char hint[sizeof error->hint];
    hint_of(&place, hint, sizeof hint);
    return rp_fail(error, -RP_E_CORRUPT, hint,
                   "source `%s`, document %" PRIu64 " (document %" PRIu64 " of %s): %s",
                   source->name, document, place.in_shard, place.shard->path,
                   problem ? problem : "its index entry was bad and is good now");
}

int rp_source_extent(const struct rp_source *source, uint64_t document, struct rp_extent *extent,
                     struct rp_error *error)
{
    struct place place;
    const char *problem = locate(source, document + source->before_range, &place, &extent->tokens,
                                 &extent->byte_offset);
    rp_source_mark_used(source, place.segment);
    if (problem)
        return rp_source_explain(source, document, error);
    extent->shard = place.shard_number;
    extent->width = rp_token_width(place.shard->type);
    return 0;
}

const char *rp_source_provenance(const struct rp_source *source, uint64_t document,
                                 uint64_t *number_out)
{
    struct place place;
    (void)find(source, document + source->before_range, &place); /* else the path is the index's */
    *number_out = place.in_shard;
    return place.shard->path;
}

/* ---- revalidating ---------------------------------------------------------------------------- */

/* *checked is the index that was checked last: all segments of a corpus index share one. */
static int revalidate(const struct rp_index_segment *segment, const struct rp_index **checked,
                      struct rp_error *error)
{
    int code = segment->opened ? rp_shard_revalidate(segment->opened, error) : 0;
    if (code < 0 || !segment->index || segment->index == *checked)
        return code;
    *checked = segment->index;
    return rp_index_revalidate(segment->index, error);
}

/* The arguments and the result of check_used, which runs under a guard. */
struct check {
    const struct rp_corpus *corpus;
    struct rp_error *error;
    int code;
};

static void check_used(void *argument)
{
    struct check *check = argument;
    const struct rp_corpus *corpus = check->corpus;
    const struct rp_index *checked = NULL;
    for (uint32_t i = 0; i < rp_div_up(corpus->segment_count, 64); i++) {
        uint64_t used = rp_a64_load_relaxed(&corpus->use->used[i]);
        if (used)
            rp_a64_and_relaxed(&corpus->use->used[i], ~used);
        for (uint64_t left = used; left; left &= left - 1) {
            uint32_t number = 64 * i + (uint32_t)__builtin_ctzll(left);
            check->code = revalidate(corpus->segments[number], &checked, check->error);
            if (check->code < 0)
                return;
        }
    }
}

/* A check forgets what it finds: used bits, verified bits of pages, stamps. So a thread that comes
 * meanwhile waits for its result. A lost page must not end the thread while it has the lock. */
int rp_corpus_revalidate(const struct rp_corpus *corpus, struct rp_error *error)
{
    struct rp_corpus_use *use = corpus->use;
    pthread_mutex_lock(&use->lock);
    struct check check = {corpus, &use->failure, use->failure.code};
    if (check.code == 0 && !rp_mapped_guard(check_used, &check))
        check.code = rp_mapped_lost(check.error);
    if (check.code < 0)
        (void)rp_fail_again(error, &use->failure);
    pthread_mutex_unlock(&use->lock);
    return check.code;
}

/* ---- masks ----------------------------------------------------------------------------------- */

void rp_source_mask_text(const struct rp_source *source, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s%s", source->has_mask ? source->mask : "none",
             source->drop_untrained ? ", drop_untrained" : "");
}

bool rp_source_has_mask(const struct rp_source *source)
{
    return source->has_mask;
}

int rp_source_has_span(const struct rp_source *source, uint64_t document)
{
    RP_DASSERT(source->has_mask);
    const struct rp_index_segment *segment = segment_of(source, &document);
    return rp_documents_has_span(segment, document);
}

static int fail_spans(const struct rp_source *source, const struct rp_part *part,
                      const char *problem, struct rp_error *error)
{
    struct place place;
    (void)find(source, part->document + source->before_range, &place);
    return rp_fail(error, -RP_E_CORRUPT,
                   place.segment->opened ? "run `ringpack index` again with the same mask"
                                         : "run `ringpack index -c CONFIG` again",
                   "source `%s`, document %" PRIu64 " (document %" PRIu64 " of %s): %s",
                   source->name, part->document, place.in_shard, place.shard->path, problem);
}

int rp_source_spans(const struct rp_source *source, const struct rp_part *part, struct rp_span *out,
                    uint32_t *count_out, struct rp_error *error)
{
    RP_ASSERT(source->has_mask);
    struct rp_part own = *part;
    const struct rp_index_segment *segment = segment_of(source, &own.document);
    const char *problem = rp_documents_spans(segment, &own, out, count_out);
    return problem ? fail_spans(source, part, problem, error) : 0;
}

int rp_source_is_trained(const struct rp_source *source, const struct rp_part *part,
                         struct rp_error *error)
{
    RP_ASSERT(source->has_mask);
    struct rp_part own = *part;
    const struct rp_index_segment *segment = segment_of(source, &own.document);
    int reached = rp_documents_spans_overlap(segment, &own);
    return reached < 0 ? fail_spans(source, part, "its spans are damaged", error) : reached;
}

void rp_source_prefetch_extent(const struct rp_source *source, uint64_t document)
{
    const struct rp_index_segment *segment = segment_of(source, &document);
    rp_documents_prefetch_extent(segment, document);
    if (source->has_mask)
        rp_spans_prefetch(&segment->table.spans, document);
}

void rp_source_prefetch_spans(const struct rp_source *source, uint64_t document)
{
    const struct rp_index_segment *segment = segment_of(source, &document);
    rp_spans_prefetch_first(&segment->table.spans, document);
}
