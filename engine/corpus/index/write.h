/* SPDX-License-Identifier: Apache-2.0 */
/* write.h — writing an index (INDEX.md): segments in mapped memory, then a head, then its slot.
 *
 * A draft is a struct rp_index of the file's future contents: sources with their texts, segments
 * and columns. A segment without an index is new and gets a place in the file. Segments of an index
 * that is appended to keep theirs.
 *
 * Flow: set shapes, rp_index_lay_out, fill the parts of each new segment, hash each part,
 * rp_index_write_head. Any number of threads may fill and hash. */
#ifndef RP_CORPUS_INDEX_WRITE_H
#define RP_CORPUS_INDEX_WRITE_H

#include "corpus/index/index.h"

struct rp_index_writer {
    const char *path; /* for messages */
    int fd;           /* open for reading and writing */
    uint64_t end;     /* where an append begins; 0: the file is new */
    uint8_t *map;     /* the bytes of new segments and columns */
    uint8_t *memory;  /* `map`, if it is allocated and not mapped */
    uint64_t map_at, map_bytes;
};

/** Give new segments their parts, offsets and memory (tree.data), which is zero. */
RP_MUST_CHECK int rp_index_lay_out(struct rp_index_writer *writer, struct rp_index *draft,
                                   struct rp_error *error);
void rp_index_writer_close(struct rp_index_writer *writer);

/** Open the file of an index to append to it. Removes what an unfinished append left. The caller
 * closes writer->fd. */
RP_MUST_CHECK int rp_index_writer_append(struct rp_index_writer *writer,
                                         const struct rp_index *index, struct rp_error *error);

/** The memory of a new segment. Write to it, for each shard, the documents before it, and for the
 * end the number of all; then make the buckets. */
static inline uint8_t *rp_index_data(const struct rp_index_segment *segment)
{
    return (uint8_t *)(uintptr_t)segment->tree.data;
}
void rp_index_put_documents_before(const struct rp_index_segment *segment, uint32_t shard,
                                   uint64_t documents);
void rp_index_put_buckets(const struct rp_index_segment *segment);

/** The pages of new segments are hashed in parts: how many there are; hash one. */
uint64_t rp_index_hash_part_count(const struct rp_index *draft);
void rp_index_hash_part(const struct rp_index *draft, uint64_t part);

/** Make the roots of new segments, and write the head of draft->generation and its slot. Sets
 * draft->root. A new file is then complete, and not synced; a file that is appended to is synced
 * before and after the write of its slot. */
RP_MUST_CHECK int rp_index_write_head(struct rp_index_writer *writer, struct rp_index *draft,
                                      struct rp_error *error);

/** The first good place for `bytes` bytes, at or after `offset`: the begin of a page if they will
 * be mapped; else a multiple of 8, so that small files have no gaps. */
uint64_t rp_index_align(uint64_t offset, uint64_t bytes);

/** Make zeroed memory for bytes [begin, end) of the file: byte `at` of the file is
 * writer->map[at - writer->map_at]. */
RP_MUST_CHECK int rp_index_map_new(struct rp_index_writer *writer, uint64_t begin, uint64_t end,
                                   struct rp_error *error);

/* ---- columns (write_columns.c) --------------------------------------------------------- */

/* A column of one segment, in the place of an older one of that name. */
struct rp_index_new_column {
    uint32_t segment; /* number in the index; it has documents */
    const char *name;
    enum rp_index_column_type type;
    const uint64_t *words; /* by document: u64, i64 or f64 that the type can hold */
};

/** Append columns to the file of an index: all of them, or none after a failure or a kill. The
 * index stays as it was opened. */
RP_MUST_CHECK int rp_index_append_columns(const struct rp_index *index,
                                          const struct rp_index_new_column *columns, uint32_t count,
                                          const struct rp_progress *progress,
                                          struct rp_error *error);

/* ---- sidecars (write_sidecar.c) -------------------------------------------------------- */

struct rp_collector;

/** Write the sidecar of a shard into a new file, which is then complete, from the collector and
 * *record, whose contents, root and documents are set here. The caller publishes or discards it. */
RP_MUST_CHECK int rp_sidecar_write(struct rp_new_file *file, struct rp_index_record *record,
                                   const struct rp_tokenizer_id *tokenizer,
                                   const struct rp_collector *collector, struct rp_error *error);

#endif
