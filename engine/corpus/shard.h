/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h — one opened shard: the public struct rp_shard, and the extent table behind it.
 *
 * Every format answers two questions here: how long is document d, and where does it begin. Where
 * it lies is checked at every look-up, whatever was checked at open: a compare costs nothing beside
 * the cache miss, and a mapped file can change under us. */
#ifndef RP_CORPUS_SHARD_H
#define RP_CORPUS_SHARD_H

#include "base/atomic.h"
#include "base/bits.h"
#include "base/file.h"
#include "corpus/corpus.h"
#include "corpus/fingerprint.h"
#include "corpus/format.h"
#include "corpus/mask.h"
#include "corpus/table.h"

/* Up to this many documents every entry of an index is checked at open (3 ms); above, when it is
 * used, so that opening does not take longer with more of them. */
#define RP_CHECK_ALL_MAX (1u << 20)
/* Token files up to this size are scanned at open when they have no sidecar. */
#define RP_SCAN_AT_OPEN_MAX (256u << 20)

struct rp_megatron {
    struct rp_map map;        /* the .idx */
    struct rp_hash128 sample; /* rp_index_sample of it */
    uint64_t sequences;
    unsigned width_shift;    /* a token has 1 << width_shift bytes */
    bool has_modes;          /* the optional tail of multimodal datasets */
    bool exceeds_memory;     /* or half of it: reads are far between */
    const uint8_t *lengths;  /* i32[sequences], unaligned like the next two */
    const uint8_t *pointers; /* i64[sequences] */
    const uint8_t *first;    /* i64[documents + 1]: first sequence of each, then `sequences` */
};

struct rp_opened {
    struct rp_shard shard;
    struct rp_found found;
    struct rp_layout layout; /* not Megatron */
    /* The tokens of documents below `plain` are what u32 lengths[] says, at any alignment: one
     * load. Of Megatron's, those are known to be one good sequence each, of their own number, as
     * nearly all are; of a table's, their page is known to be what was written. It grows with use,
     * so that opening does not take longer with more documents. */
    const uint8_t *lengths;
    struct rp_a64 plain;
    struct rp_megatron megatron;
    struct rp_table built;             /* not Megatron, without a sidecar: made at open */
    const struct rp_table *table;      /* that, or the sidecar's; of Megatron's without extents */
    const struct rp_mask_origin *mask; /* of its spans; NULL: it has none */
    bool uses_spans;                   /* it has some, and they are wanted */
    bool drops_unmasked;               /* and documents without any count as empty */
    struct rp_fingerprint fingerprint;
    bool index_detached, sidecar_detached; /* look.c: copies in memory stand for the files */
};

struct rp_open_options {
    struct rp_find_options find;
    uint64_t scan_bytes_max; /* a token file without sidecar is scanned if it is not larger */
    const struct rp_corpus_gate *gate; /* NULL = none */
};

static inline int rp_corpus_gate_pass(const struct rp_corpus_gate *gate, struct rp_error *error)
{
    return gate ? gate->pass(gate->context, error) : 0;
}

RP_MUST_CHECK int rp_shard_open(struct rp_opened *opened, const char *path, uint32_t source,
                                const struct rp_open_options *options, struct rp_error *error);
/** The same without a document table and a fingerprint, and with the token file left open in
 * *fd_out: the state from which a sidecar is built. An old sidecar serves as a declaration only.
 * What only a walk finds out (type, tokens, documents) is not known of formats that are walked. */
RP_MUST_CHECK int rp_shard_open_for_index(struct rp_opened *opened, const char *path,
                                          const struct rp_find_options *options, int *fd_out,
                                          struct rp_error *error);
void rp_shard_close(struct rp_opened *opened);

/** The tokens of a document and its first byte, or what is wrong with its entry (then nothing is
 * set). */
const char *rp_shard_locate(const struct rp_opened *opened, uint64_t document, uint64_t *tokens,
                            uint64_t *byte_offset);

/** Of a shard that uses spans: rp_spans_cut, with pages of the sidecar that are compared with their
 * hashes; and whether a document has a span: 1, 0, or negative where its page is damaged. */
const char *rp_shard_spans(const struct rp_opened *opened, const struct rp_part *part,
                           struct rp_span *out, uint32_t *count_out);
int rp_shard_has_span(const struct rp_opened *opened, uint64_t document);

/** From here on all of its index is read from its beginning on, not document by document. */
void rp_shard_read_through(struct rp_opened *opened);

/** Prefetch what rp_shard_locate reads beyond rp_shard_length. */
void rp_shard_expect_extent(const struct rp_opened *opened, uint64_t document);

/** If this document is not known to be plain, check some more of the shard, so that lengths are
 * found faster from then on. For a moment in which there is nothing to do but wait. */
void rp_shard_learn(struct rp_opened *opened, uint64_t document);

/** rp_shard_length of a document that is not known to be plain. */
uint64_t rp_shard_find_length(const struct rp_opened *opened, uint64_t document);

/** The token file as its reader wants it; fd >= 0. */
RP_MUST_CHECK int rp_shard_probe(const struct rp_opened *opened, int fd, struct rp_probe *probe,
                                 struct rp_error *error);

/* index_build.c */

/** rp_index_build into a file that is not synced: after a crash of the machine it may be there and
 * be damaged. The declarations of its own sidecar count; that is searched for in index_dir. */
RP_MUST_CHECK int rp_index_build_scratch(const char *path, const struct rp_source_spec *hints,
                                         const char *index_dir, const char *scratch_path,
                                         const struct rp_progress *progress,
                                         struct rp_error *error);

/* look.c */

/** rp_corpus_look for one shard. */
RP_MUST_CHECK int rp_shard_look(struct rp_opened *opened, struct rp_error *error);

/* shard_megatron.c */

/** -RP_E_CHANGED if the .idx of a shard in a manifest is there and has another modification time.
 */
RP_MUST_CHECK int rp_megatron_check_time(const struct rp_shard *shard, struct rp_error *error);
/** Map and check the .idx of a shard whose token file has shard.bytes bytes. Sets type, documents,
 * tokens. */
RP_MUST_CHECK int rp_megatron_open(struct rp_opened *opened, struct rp_error *error);
/** rp_shard_expect of a document that is not known to be plain. */
void rp_megatron_expect(const struct rp_opened *opened, uint64_t document);
void rp_megatron_expect_extent(const struct rp_opened *opened, uint64_t document);
void rp_megatron_learn(struct rp_opened *opened, uint64_t count);
const char *rp_megatron_locate(const struct rp_opened *opened, uint64_t document, uint64_t *tokens,
                               uint64_t *byte_offset);

/** Is the document known to be plain? Then its tokens are what the array of lengths says. */
static inline bool rp_shard_is_known(const struct rp_opened *opened, uint64_t document)
{
    return document < rp_a64_load_relaxed(&opened->plain);
}
static inline uint32_t rp_shard_plain_tokens(const struct rp_opened *opened, uint64_t document)
{
    return rp_load_u32(opened->lengths + 4 * document);
}

/** The tokens of a document, or UINT64_MAX where rp_shard_locate finds something wrong. */
static inline uint64_t rp_shard_length(const struct rp_opened *opened, uint64_t document)
{
    return rp_shard_is_known(opened, document) ? rp_shard_plain_tokens(opened, document)
                                               : rp_shard_find_length(opened, document);
}

/** Prefetch the memory that rp_shard_length will read. */
static inline void rp_shard_expect(const struct rp_opened *opened, uint64_t document)
{
    if (rp_shard_is_known(opened, document) || opened->found.format != RP_FORMAT_MEGATRON)
        __builtin_prefetch(opened->lengths + 4 * document);
    else
        rp_megatron_expect(opened, document);
}

/* read_tokens.c */

struct rp_document_scan;
/* Called for every piece of the token file in order. `bytes` starts at a multiple of RP_BLOCK_BYTES
 * in the file and is one but in the last piece. `starts` are the numbers of tokens at which a
 * document begins that became known, and at the end the number of all. */
typedef int (*rp_piece_function)(void *context, const uint8_t *bytes, size_t byte_count,
                                 const uint64_t *starts, size_t start_count,
                                 struct rp_error *error);
/** Read a whole token file once, in order, through `scan`: its tokens have the type and the place
 * of the layout. Without a scan (NULL) the layout is ignored. */
RP_MUST_CHECK int rp_tokens_read(const struct rp_probe *probe, const struct rp_layout *layout,
                                 struct rp_document_scan *scan, rp_piece_function piece,
                                 void *context, const struct rp_progress *progress,
                                 struct rp_error *error);

#endif
