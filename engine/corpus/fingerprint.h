/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.h — the identity of a content. Paths, names and times are not part of it.
 *
 * A shard's sampled fingerprint is the XXH3-128 of its geometry, the hash of its index or the root
 * of its document table (table.h), and the hashes of up to 64 blocks of its token file, spread
 * evenly with the first and the last among them. Its full fingerprint replaces the sampled blocks
 * by the hash of all block hashes. Both can be computed from a sidecar without the token file, so a
 * corpus whose token files are gone still has its identity. The fingerprint of a source is a hash
 * over the fingerprints of its shards in order; a corpus has one over its sources likewise. */
#ifndef RP_CORPUS_FINGERPRINT_H
#define RP_CORPUS_FINGERPRINT_H

#include "corpus/corpus.h"

#define RP_SAMPLE_BLOCKS 64u
/* An index up to this size is hashed whole; a larger one by 1024 sampled blocks. */
#define RP_INDEX_HASH_WHOLE_MAX (64u << 20)

/* The use of a shard's spans; the numbers are part of the fingerprint. */
enum rp_spans_use {
    RP_SPANS_USED, /* or the shard has none */
    RP_SPANS_UNUSED,
    RP_SPANS_DROP_UNTRAINED /* used, and documents without spans count as empty */
};

/* Everything that the fingerprint of one shard covers. */
struct rp_identity {
    enum rp_format format;
    enum rp_token_type type;
    int64_t eos;
    uint64_t bytes, token_offset, documents, tokens;
    uint64_t idx_bytes;           /* the .idx's; 0 if there is no .idx */
    struct rp_hash128 idx_sample; /* its hash; rp_idx_sample if it is large */
    bool has_table;
    struct rp_hash128 table_root;
    enum rp_spans_use spans_use;
    uint64_t sample[RP_SAMPLE_BLOCKS];
    uint32_t sample_count;
    bool full; /* the next two are known: the full fingerprint exists */
    struct rp_hash128 idx_content, content;
};

struct rp_fingerprint rp_identity_fingerprint(const struct rp_identity *identity);

/* The fingerprint of a list, from the fingerprints of its members in order; it is full only if
 * every member's is. It can be read after each member. */
struct rp_fingerprint_list {
    struct rp_hasher sampled, full;
    uint64_t count, full_count; /* members, and those with a full fingerprint */
};
void rp_fingerprint_begin(struct rp_fingerprint_list *list);
void rp_fingerprint_add(struct rp_fingerprint_list *list, const struct rp_fingerprint *member);
struct rp_fingerprint rp_fingerprint_of(const struct rp_fingerprint_list *list);

/** How many of `blocks` blocks are sampled, and which the i-th of them is (ascending). */
uint32_t rp_sample_count(uint64_t blocks);
uint64_t rp_sample_block(uint32_t i, uint64_t blocks);

/** Hash the sampled blocks of a large index in a file. */
RP_MUST_CHECK int rp_idx_sample(int fd, const char *path, uint64_t bytes, struct rp_hash128 *sample,
                                struct rp_error *error);

/** Hash the sampled blocks of a token file. */
RP_MUST_CHECK int rp_sample_read(int fd, const char *path, uint64_t bytes,
                                 uint64_t sample[RP_SAMPLE_BLOCKS], struct rp_error *error);

#endif
