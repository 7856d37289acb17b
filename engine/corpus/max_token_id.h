/* SPDX-License-Identifier: Apache-2.0 */
/* max_token_id.h — the largest token id of the documents of a file, which need not fill it. */
#ifndef RP_CORPUS_MAX_TOKEN_ID_H
#define RP_CORPUS_MAX_TOKEN_ID_H

#include "corpus/document_scan.h"
#include "corpus/reader.h"

/* Contiguous documents are read as one run. */
struct rp_max_token_id {
    const struct rp_probe *probe;
    uint32_t width;
    uint64_t first, end; /* the run that has not been read yet */
    uint8_t *buffer;     /* [RP_DOCUMENT_SCAN_BYTES] */
    uint64_t *starts;    /* starts of documents: found by the scan, unused */
    struct rp_document_scan scan;
};

RP_MUST_CHECK int rp_max_token_id_begin(struct rp_max_token_id *largest,
                                        const struct rp_probe *probe, enum rp_token_type type,
                                        struct rp_error *error);
/** Add the next document, which is inside the file. */
RP_MUST_CHECK int rp_max_token_id_add(struct rp_max_token_id *largest, uint64_t byte,
                                      uint64_t tokens, struct rp_error *error);
/** Read the rest, and close it in any case. */
RP_MUST_CHECK int rp_max_token_id_finish(struct rp_max_token_id *largest, uint64_t *token_max,
                                         struct rp_error *error);
void rp_max_token_id_close(struct rp_max_token_id *largest);

#endif
