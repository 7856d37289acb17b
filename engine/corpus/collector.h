/* SPDX-License-Identifier: Apache-2.0 */
/* collector.h — collects the results of a walk over one shard: hashes of blocks, documents and
 * their spans. The place of each section of a table depends on the number of documents, so sections
 * are collected one by one and then copied to their places.
 *
 * A collector with a path keeps a buffer of each section in memory and the rest in unnamed files in
 * that path's folder, so memory use is constant. A collector without a path keeps all in memory. */
#ifndef RP_CORPUS_COLLECTOR_H
#define RP_CORPUS_COLLECTOR_H

#include "base/file.h"
#include "corpus/table.h"

enum {
    RP_COLLECT_BYTES,
    RP_COLLECT_LENGTHS,
    RP_COLLECT_SPAN_ENDS,
    RP_COLLECT_SPANS,
    RP_COLLECT_BLOCKS,
    RP_COLLECT_COUNT
};

struct rp_collected {
    uint8_t *buffer;
    size_t buffered, capacity;
    uint64_t spilled; /* bytes in the file */
    struct rp_new_file file;
};

struct rp_collector {
    const char *name; /* for messages */
    const char *path; /* NULL: all is kept in memory */
    struct rp_collected sections[RP_COLLECT_COUNT];
    struct rp_table_shape shape; /* its has_ fields are set before the first document */
};

/** Both strings are borrowed. */
void rp_collector_begin(struct rp_collector *collector, const char *name, const char *path);
void rp_collector_discard(struct rp_collector *collector);

/** Blocks and documents are added in any interleaving. */
RP_MUST_CHECK int rp_collector_add_blocks(struct rp_collector *collector, const uint64_t *hashes,
                                          size_t count, struct rp_error *error);
RP_MUST_CHECK int rp_collector_add_document(struct rp_collector *collector, uint64_t byte,
                                            uint32_t tokens, const struct rp_span *spans,
                                            size_t span_count, struct rp_error *error);
/** Add only the spans of a document, for a shard whose documents have an index of their own. */
RP_MUST_CHECK int rp_collector_add_spans(struct rp_collector *collector,
                                         const struct rp_span *spans, size_t span_count,
                                         struct rp_error *error);

/** Copy the documents to a table over writable memory; copy the hashes of blocks. */
RP_MUST_CHECK int rp_collector_put_table(const struct rp_collector *collector,
                                         const struct rp_table *table, struct rp_error *error);
RP_MUST_CHECK int rp_collector_put_blocks(const struct rp_collector *collector, uint64_t *to,
                                          struct rp_error *error);

/** A table of these documents in memory of its own. */
RP_MUST_CHECK int rp_collector_make_table(const struct rp_collector *collector,
                                          struct rp_table *table, struct rp_error *error);

#endif
