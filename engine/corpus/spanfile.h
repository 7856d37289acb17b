/* SPDX-License-Identifier: Apache-2.0 */
/* spanfile.h — PREFIX.spans: the trained tokens of a Megatron shard.
 *
 * `ringpack convert` writes one with PREFIX.bin if its inputs had a mask, and `ringpack index`
 * copies the spans into the sidecar. A sidecar can always be made again, so it must not be the only
 * copy of a mask.
 *
 * The file, little-endian, without gaps:
 *
 *      0    8  magic 89 'R' 'P' 'S' 0D 0A 1A 0A
 *      8  u32  version, 1
 *     12  u32  how the mask was read: 1 labels, 2 `ignore`, 4 of the next token
 *     16   32  name of the mask, zeros after it
 *     48  u64  documents
 *     56  u64  spans in all of them
 *     64   16  XXH3-128 of the bytes after the header
 *     80   16  XXH3-128 of bytes 0 .. 79
 *     96       for each document: u32 number of its spans, then u32 begin, u32 end of each
 *
 * The spans keep the rules of spans.h. The files of two shards are joined by joining the bytes
 * after their headers. A reader checks every number before it is used, and the hash at the end. */
#ifndef RP_CORPUS_SPANFILE_H
#define RP_CORPUS_SPANFILE_H

#include "base/file.h"
#include "base/hash.h"
#include "corpus/buffered.h"
#include "corpus/spans.h"

#define RP_SPANFILE_HEADER_BYTES 96u

struct rp_spanfile_writer {
    struct rp_new_file file;
    struct rp_mask_origin origin;
    uint64_t documents, spans;
    struct rp_hasher hasher;
    uint8_t *buffer;
    size_t buffered; /* bytes */
};
/** Begin a file that will replace `path`. */
RP_MUST_CHECK int rp_spanfile_begin(struct rp_spanfile_writer *writer, const char *path,
                                    const struct rp_mask_origin *origin, struct rp_error *error);
/** The spans of the next document. */
RP_MUST_CHECK int rp_spanfile_add(struct rp_spanfile_writer *writer, const struct rp_span *spans,
                                  uint32_t count, struct rp_error *error);
/** Everything is written to the file, which can be published. */
RP_MUST_CHECK int rp_spanfile_finish(struct rp_spanfile_writer *writer, struct rp_error *error);
void rp_spanfile_discard(struct rp_spanfile_writer *writer);

struct rp_spanfile {
    char *path;
    struct rp_buffered file;
    struct rp_mask_origin origin;
    uint64_t documents, spans; /* as the header says */
    uint64_t at;               /* byte of the next document */
    uint64_t read, read_spans; /* documents so far, and their spans */
    struct rp_hash128 content;
    struct rp_hasher hasher;
};
/** The name of the file of a shard; the caller frees it. NULL when out of memory. */
char *rp_spanfile_path(const char *token_path);
/** 1: it is open. 0: no such file. The caller closes it in both cases. */
RP_MUST_CHECK int rp_spanfile_open(struct rp_spanfile *file, const char *path,
                                   struct rp_error *error);
/** The spans of the next document of `tokens` tokens; valid until the next call. -RP_E_CORRUPT:
 * they are invalid, or no document is left. */
RP_MUST_CHECK int rp_spanfile_next(struct rp_spanfile *file, uint64_t tokens,
                                   const struct rp_span **spans, uint32_t *count,
                                   struct rp_error *error);
/** -RP_E_CORRUPT unless all documents were read, and the content matches its hash. */
RP_MUST_CHECK int rp_spanfile_end(struct rp_spanfile *file, struct rp_error *error);
void rp_spanfile_close(struct rp_spanfile *file);

#endif
