/* SPDX-License-Identifier: Apache-2.0 */
/* document_scan.h — finds the borders of documents in a stream of tokens, and the largest token, at
 * memory speed. */
#ifndef RP_CORPUS_DOCUMENT_SCAN_H
#define RP_CORPUS_DOCUMENT_SCAN_H

#include "corpus/corpus.h"

/* Bytes of the token file that are read and scanned at a time: small enough for the CPU cache. */
#define RP_DOCUMENT_SCAN_BYTES (256u << 10)

/* Finds `eos` among `count` tokens, numbered from `base` on; sets the largest token. */
typedef size_t rp_document_scan_function(const void *tokens, size_t count, uint64_t eos,
                                         uint64_t base, uint64_t *positions, uint64_t *token_max);

struct rp_document_scan {
    rp_document_scan_function *function;
    bool split;     /* find document starts; false: only the largest token */
    bool eos_leads; /* a document begins with EOS (llm.c); otherwise it ends with EOS */
    uint64_t eos;
    uint64_t position; /* tokens seen */
    uint64_t last_start;
    uint64_t token_max;
};

/** `eos` RP_EOS_NONE: find no document starts, only the largest token. */
void rp_document_scan_begin(struct rp_document_scan *scan, enum rp_token_type type, int64_t eos,
                            bool eos_leads);

/** Scan `count` more tokens at `tokens` (aligned to their width). The starts of documents that
 * become known are written to `starts`, which has room for count + 1. Returns their number. */
size_t rp_document_scan_add(struct rp_document_scan *scan, const void *tokens, size_t count,
                            uint64_t *starts);

/** The stream has ended: write the last entry of the document table (the number of tokens), if it
 * is not there already. Returns 0 or 1. */
size_t rp_document_scan_finish(struct rp_document_scan *scan, uint64_t *starts);

#endif
