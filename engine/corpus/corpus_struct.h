/* SPDX-License-Identifier: Apache-2.0 */
/* corpus_struct.h — a corpus and its sources. Private to corpus.c, which answers questions,
 * corpus_open.c, which opens shards, and corpus_manifest.c, which does both with a manifest.
 *
 * Invariants: shards are numbered over the whole corpus, in the order of the sources and of their
 * lists. Document d of a source lies in the shard s with first[s] <= d < first[s + 1]; a table with
 * a few entries a shard gives the place to start the search, so the usual look-up is one
 * division-free step, and it keeps no state that threads would have to share. */
#ifndef RP_CORPUS_CORPUS_STRUCT_H
#define RP_CORPUS_CORPUS_STRUCT_H

#include "corpus/manifest/manifest.h"
#include "corpus/shard.h"

struct rp_source {
    char *name;
    struct rp_opened *shards; /* of the corpus, from the first of this source on */
    uint32_t first_shard, shard_count;
    uint64_t documents, tokens; /* of its range */
    uint64_t skipped;           /* documents before its range (range.h) */
    uint64_t *first;            /* [shard_count + 1] first document of each shard, then documents */
    uint32_t *bucket; /* [b] shard of document b << bucket_shift, counted within the source */
    unsigned bucket_shift;
    bool has_mask, drop_unmasked;
    struct rp_fingerprint fingerprint;
    struct rp_a64 *asked; /* of the corpus */
    /* Of a manifest: then `shards`, `first` and `bucket` are NULL. */
    const struct rp_manifest_source *part;
    const struct rp_corpus *corpus;
    char **queried; /* [queried_count] URLs of the configuration that have a query */
    uint32_t queried_count;
};

struct rp_corpus {
    struct rp_source *sources;
    uint32_t source_count;
    struct rp_opened *shards;
    uint32_t shard_count, shard_total; /* opened so far, and all */
    /* [shards / 64]: whose index was asked since the last check. Set by whoever asks */
    struct rp_a64 *asked;
    struct rp_fingerprint fingerprint;
    struct rp_tokenizer_known tokenizer;
    struct rp_remote *remotes; /* of the shards that are URLs, in their order */
    size_t remote_count;
    struct rp_manifest *manifest; /* NULL: the shards were opened; else `shards` is NULL */
    struct rp_a64 *made;          /* [shard_count] pointers to shards that were used, or 0 */
    struct rp_shard damaged;      /* stands for a shard whose record is damaged */
};

/* corpus_manifest.c: what corpus.h promises, for the sources of a manifest. */

RP_MUST_CHECK int rp_corpus_open_manifest(struct rp_corpus *corpus,
                                          const struct rp_corpus_spec *spec,
                                          struct rp_error *error);
void rp_corpus_close_manifest(struct rp_corpus *corpus);
const struct rp_shard *rp_corpus_make_shard(const struct rp_corpus *corpus, uint32_t shard);
const struct rp_shard *rp_corpus_first_made_object(const struct rp_corpus *corpus);
uint64_t rp_in_manifest_file_bytes(const struct rp_corpus *corpus, uint32_t source);
uint64_t rp_in_manifest_length(const struct rp_source *source, uint64_t document);
void rp_in_manifest_length_many(const struct rp_source *source, const uint64_t *documents,
                                uint32_t count, uint64_t *tokens);
RP_MUST_CHECK int rp_in_manifest_extent(const struct rp_source *source, uint64_t document,
                                        struct rp_extent *extent, struct rp_error *error);
int rp_in_manifest_explain(const struct rp_source *source, uint64_t document,
                           struct rp_error *error);
const char *rp_in_manifest_row(const struct rp_source *source, uint64_t document,
                               uint64_t *row_out);
int rp_in_manifest_has_span(const struct rp_source *source, uint64_t document);
RP_MUST_CHECK int rp_in_manifest_spans(const struct rp_source *source, const struct rp_part *part,
                                       struct rp_span *out, uint32_t *count_out,
                                       struct rp_error *error);
uint64_t rp_in_manifest_token_max(const struct rp_source *source);
void rp_in_manifest_expect_extent(const struct rp_source *source, uint64_t document);
/** rp_shard_check_sidecar of a shard of a manifest. */
RP_MUST_CHECK int rp_corpus_check_blocks(const struct rp_shard *shard, struct rp_error *error);

#endif
