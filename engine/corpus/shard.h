/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h — one opened shard: the public struct rp_shard, and the segment of its documents, from
 * its sidecar or in memory (index/documents.h). */
#ifndef RP_CORPUS_SHARD_H
#define RP_CORPUS_SHARD_H

#include "base/bits.h"
#include "base/file.h"
#include "corpus/corpus.h"
#include "corpus/fingerprint.h"
#include "corpus/format.h"
#include "corpus/index/documents.h"
#include "corpus/mask.h"

/* Token files up to this size are scanned at open when they have no sidecar. */
#define RP_SCAN_AT_OPEN_MAX (256u << 20)

struct rp_opened {
    struct rp_shard shard;
    struct rp_found found;
    struct rp_layout layout;     /* not Megatron */
    struct rp_megatron megatron; /* its .idx, if it has one */
    /* The sidecar's segment; else `own`. Without extents for a Megatron shard. */
    struct rp_index_segment *segment, own;
    const struct rp_mask_origin
        *mask; /* origin of its spans; NULL: no mask, which counts as USED */
    enum rp_spans_use spans_use;
    struct rp_fingerprint fingerprint;
    bool idx_detached; /* a copy in memory has replaced the mapping of the .idx (revalidate.c) */
};

static inline bool rp_opened_uses_spans(const struct rp_opened *opened)
{
    return opened->mask && opened->spans_use != RP_SPANS_UNUSED;
}

struct rp_open_options {
    struct rp_find_options find;
    uint64_t scan_bytes_max; /* size limit for the scan of a token file without a sidecar */
    const struct rp_corpus_gate *gate; /* NULL = none */
};

static inline int rp_corpus_gate_pass(const struct rp_corpus_gate *gate, struct rp_error *error)
{
    return gate ? gate->pass(gate->context, error) : 0;
}

/** Open all shards that are URLs, in the order of the sources (corpus_open.c): together, because
 * each costs at least one reply of a server. The gate is called if there are any. Returns their
 * number. */
RP_MUST_CHECK int64_t rp_corpus_open_remotes(struct rp_remote **remotes,
                                             const struct rp_source_spec *sources,
                                             uint32_t source_count, const char *cache_dir,
                                             const struct rp_corpus_gate *gate,
                                             struct rp_error *error);

RP_MUST_CHECK int rp_shard_open(struct rp_opened *opened, const char *path, uint32_t source,
                                const struct rp_open_options *options, struct rp_error *error);
/** Open a shard to build its sidecar: as rp_shard_open, without a document table and a fingerprint,
 * and with the token file left open in *fd_out. An older sidecar counts only as a declaration.
 * Type, tokens and documents stay unknown if the format needs a walk. */
RP_MUST_CHECK int rp_shard_open_for_index(struct rp_opened *opened, const char *path,
                                          const struct rp_find_options *options, int *fd_out,
                                          struct rp_error *error);
void rp_shard_close(struct rp_opened *opened);

/** rp_documents_locate of a document of the shard. */
static inline const char *rp_shard_locate(const struct rp_opened *opened, uint64_t document,
                                          uint64_t *tokens, uint64_t *byte)
{
    return rp_documents_locate(opened->segment, rp_token_width(opened->shard.type),
                               opened->shard.bytes, document, tokens, byte);
}

/** Make a probe of the token file, which is open as fd. */
RP_MUST_CHECK int rp_shard_probe(const struct rp_opened *opened, int fd, struct rp_probe *probe,
                                 struct rp_error *error);

/* revalidate.c */

/** rp_corpus_revalidate for the .idx of one shard. */
RP_MUST_CHECK int rp_shard_revalidate(struct rp_opened *opened, struct rp_error *error);

/* read_tokens.c */

struct rp_document_scan;
/* Called for every piece of the token file, in order. A piece begins at a multiple of
 * RP_BLOCK_BYTES, and its size is one, except the last piece's. `starts` has the first tokens of
 * the documents that begin in the piece, and, with the last piece, the number of all tokens. */
typedef int (*rp_piece_function)(void *context, const uint8_t *bytes, size_t byte_count,
                                 const uint64_t *starts, size_t start_count,
                                 struct rp_error *error);
/* One pass over a token file. */
struct rp_token_pass {
    const struct rp_probe *probe;
    const struct rp_layout *layout; /* type and place of the tokens; unused without a scan */
    struct rp_document_scan *scan;  /* NULL: only pieces are wanted */
    rp_piece_function piece;
    void *context;
    const struct rp_progress *progress;
};
/** Read a whole token file once, in order, through the scan. */
RP_MUST_CHECK int rp_tokens_read(const struct rp_token_pass *pass, struct rp_error *error);

#endif
