/* SPDX-License-Identifier: Apache-2.0 */
/* corpus_struct.h — a corpus and its sources. Private to corpus.c (queries), corpus_open.c (opens
 * shards or a corpus index), columns.c, listed.c (shards of a corpus index), prefix.c, eos.c,
 * range.c and sides.c.
 *
 * Invariants: shards are numbered over the whole corpus, in the order of the sources and of their
 * lists, and so are segments. Document d of a source is in the segment g with segment_begins[g] <=
 * d < segment_begins[g + 1]. A table with a few entries per segment gives the start of the search,
 * so the usual look-up is one division-free step, without state that threads share. */
#ifndef RP_CORPUS_CORPUS_STRUCT_H
#define RP_CORPUS_CORPUS_STRUCT_H

#include <pthread.h>

#include "corpus/shard.h"
#include "corpus/sides.h"

struct rp_source {
    char *name;
    const struct rp_corpus *corpus;
    struct rp_index_segment **segments; /* [segment_count] of the corpus */
    uint32_t segment_count, first_segment;
    uint64_t *segment_begins; /* [segment_count + 1] first document of each; then documents */
    uint32_t *bucket;         /* [b] segment of document b << bucket_shift */
    unsigned bucket_shift;
    uint32_t first_shard, shard_count;
    uint64_t documents, tokens; /* in its range */
    uint64_t before_range;      /* documents before its range (range.h) */
    bool is_open, is_percent;   /* its range: as in struct rp_source_range */
    bool has_mask, drop_untrained;
    char mask[RP_MASK_TEXT_BYTES]; /* empty: the source has no mask */
    struct rp_fingerprint fingerprint;
    struct rp_source_part whole, unverified;
    uint64_t bytes;           /* all token files together */
    uint32_t widest, objects; /* bytes of a token; shards that are in stores */
    char **queried;           /* [queried_count] URLs of the configuration that have a query */
    uint32_t queried_count;
};

/* The state of rp_corpus_revalidate. */
struct rp_corpus_use {
    pthread_mutex_t lock;    /* held by the thread that checks */
    struct rp_error failure; /* code < 0: a check has failed; it is the result of all later ones */
    struct rp_a64 used[];    /* a bit for each segment: used since the last check. Any thread sets
                                bits. */
};

struct rp_corpus {
    struct rp_source *sources;
    uint32_t source_count;
    struct rp_index_segment **segments; /* [segment_count] */
    uint32_t segment_count;
    struct rp_corpus_use *use;
    uint32_t shard_count, shard_total; /* opened so far; all (0 with an index) */
    struct rp_fingerprint fingerprint;
    struct rp_tokenizer_known tokenizer;
    struct rp_opened *shards;  /* [shard_total]; NULL: listed in the index */
    struct rp_remote *remotes; /* the opened shards that are URLs, in their order */
    size_t remote_count;
    struct rp_index *index;  /* NULL: the shards were opened */
    struct rp_a64 *listed;   /* [shard_count] pointers to the listed shards used so far, or 0 */
    struct rp_shard damaged; /* replaces a shard whose record in the index is damaged */
    struct rp_sides sides;
};

/* corpus.c */

/** The segment of a document, and the segment's number in the source. `document` is counted over
 * all documents of the shards: those before the range are included. */
struct rp_index_segment *rp_source_segment(const struct rp_source *source, uint64_t document);
uint32_t rp_source_segment_number(const struct rp_source *source, uint64_t document);

/* Call with each look-up in a segment: the next rp_corpus_revalidate then checks its file. */
static inline void rp_source_mark_used(const struct rp_source *source,
                                       const struct rp_index_segment *segment)
{
    struct rp_a64 *word = &source->corpus->use->used[segment->number / 64];
    uint64_t bit = 1ull << (segment->number % 64);
    if (!(rp_a64_load_relaxed(word) & bit))
        rp_a64_or_relaxed(word, bit);
}

/* listed.c */

/** Keep the URLs of the configuration that have queries: an index has none. */
RP_MUST_CHECK int rp_listed_keep_queries(struct rp_source *source,
                                         const struct rp_source_spec *spec, struct rp_error *error);
void rp_listed_close(struct rp_corpus *corpus);
const struct rp_shard *rp_listed_shard(const struct rp_corpus *corpus, uint32_t shard);
/** The format of a listed shard, and the byte of its first token. False: its record is damaged. */
bool rp_listed_layout(const struct rp_corpus *corpus, uint32_t shard, enum rp_format *format,
                      uint64_t *token_offset);

#endif
