/* SPDX-License-Identifier: Apache-2.0 */
/* largest.h — the largest token id of the documents of a file, which need not fill it. */
#ifndef RP_CORPUS_LARGEST_H
#define RP_CORPUS_LARGEST_H

#include "corpus/document_scan.h"
#include "corpus/readers.h"

/* Documents that lie end to end are read as one run. */
struct rp_largest {
    const struct rp_probe *probe;
    uint32_t width;
    uint64_t first, end; /* the run that has not been read yet */
    uint8_t *buffer;     /* [RP_DOCUMENT_SCAN_BYTES] */
    uint64_t *starts;    /* of documents, which the scan finds and nobody wants */
    struct rp_document_scan scan;
};

RP_MUST_CHECK int rp_largest_begin(struct rp_largest *largest, const struct rp_probe *probe,
                                   enum rp_token_type type, struct rp_error *error);
/** The next document, which lies inside the file. */
RP_MUST_CHECK int rp_largest_add(struct rp_largest *largest, uint64_t byte, uint64_t tokens,
                                 struct rp_error *error);
/** Read what is left. Ends it in any case. */
RP_MUST_CHECK int rp_largest_finish(struct rp_largest *largest, uint64_t *token_max,
                                    struct rp_error *error);
void rp_largest_close(struct rp_largest *largest);

#endif
