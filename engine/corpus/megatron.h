/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.h — the .idx of a .bin, as Megatron-LM, NeMo, gpt-neox, metaseq and datatrove write it.
 * It has the length and the place of every document, and is mapped as it is.
 *
 * A document is plain if it is one good sequence with the number of the document, as nearly all
 * are. The length of a plain document is its entry in lengths[]. Callers keep the number of
 * documents, from the first, that are known to be plain; that number grows with use. */
#ifndef RP_CORPUS_MEGATRON_H
#define RP_CORPUS_MEGATRON_H

#include "base/file.h"
#include "base/hash.h"
#include "corpus/corpus.h"

/* Up to this many documents every entry of an index is checked at open (3 ms); above, at its use,
 * so that opening does not take longer with more of them. */
#define RP_CHECK_ALL_MAX (1u << 20)

/* Begins as the paths and token_bytes. */
struct rp_megatron {
    const char *path, *token_path; /* borrowed */
    uint64_t token_bytes;          /* the .bin's */
    struct rp_map map;             /* the .idx */
    struct rp_hash128 sample;      /* hash of the .idx; of a large one rp_idx_sample */
    enum rp_token_type type;
    uint64_t documents, tokens, sequences;
    unsigned width_shift;    /* a token has 1 << width_shift bytes */
    bool has_modes;          /* the optional tail of multimodal datasets */
    bool exceeds_memory;     /* the .idx exceeds half of the memory that is available */
    const uint8_t *lengths;  /* i32[sequences], unaligned like the next two */
    const uint8_t *pointers; /* i64[sequences] */
    const uint8_t *first;    /* i64[documents + 1]: first sequence of each, then `sequences` */
};

/** Map and check the .idx. *plain_out: the number of documents, from the first, that are known to
 * be plain. */
RP_MUST_CHECK int rp_megatron_open(struct rp_megatron *megatron, enum rp_token_type declared,
                                   uint64_t *plain_out, struct rp_error *error);
void rp_megatron_close(struct rp_megatron *megatron);

/** Sets the tokens of a document and its first byte. Returns NULL, or the fault of its entry, with
 * no output set. */
const char *rp_megatron_locate(const struct rp_megatron *megatron, bool is_plain, uint64_t document,
                               uint64_t *tokens, uint64_t *byte_offset);

/** Check up to `count` documents from `plain` on, if all before are plain. Returns the new number
 * of plain documents. Starts reads of the needed parts of a large .idx together. */
uint64_t rp_megatron_check_ahead(const struct rp_megatron *megatron, uint64_t plain,
                                 uint64_t count);

/** Prefetch the entries that rp_megatron_locate reads for a document that is not known to be plain;
 * the second, those that it reads after the length. */
void rp_megatron_prefetch(const struct rp_megatron *megatron, uint64_t document);
void rp_megatron_prefetch_extent(const struct rp_megatron *megatron, uint64_t document);

/** Announce reads of the whole .idx from its beginning, not document by document. */
void rp_megatron_read_through(struct rp_megatron *megatron);

/** -RP_E_CHANGED if the .idx of a token file exists and has another modification time. */
RP_MUST_CHECK int rp_megatron_check_time(const char *token_path, uint64_t mtime_ns,
                                         struct rp_error *error);

#endif
