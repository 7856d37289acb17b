/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.h — what `ringpack index -c` learnt about all shards of a corpus, in one file: a start
 * reads a few pages of it, and opens no shard.
 *
 * The file, little-endian, in pages of 4096 bytes. Page 0:
 *
 *      0    8  magic 89 'R' 'P' 'M' 0D 0A 1A 0A
 *      8  u32  version, 1
 *     12  u32  bytes in a page and in a block, 4096
 *   1024   64  slot 0, of the heads with an even generation
 *   2048   64  slot 1, of those with an odd one
 *
 * and zeros elsewhere. A slot, zeros if it was never written:
 *
 *      0  u64  generation, from 1
 *      8  u64  offset of the head
 *     16  u64  bytes of the head
 *     24  u64  0
 *     32   16  XXH3-128 of the head: the root of all that the file holds
 *     48   16  XXH3-128 of bytes 0 .. 47 of the slot
 *
 * The head with the greater generation counts. It is a multiple of 8 long, with zeros after the
 * texts:
 *
 *      0  u64  generation
 *      8  u32  S: sources
 *     12  u32  G: segments
 *     16  u64  shards of all sources
 *     24  u64  X: bytes of the texts
 *     32   32  fingerprint of the corpus: sampled, full
 *     64       [S] sources, of 128 bytes each:
 *              0  u64 documents, u64 tokens, u64 bytes of these tokens, u64 bytes of the files
 *             32  u32 shards, u32 bytes of the widest token, u32 segments, u32 texts
 *             48  u64 where its texts begin, u64 0
 *             64   32 fingerprint: sampled, full
 *             96   16 hash of the tokenizer that made its ids (tokenizer_id.h); zeros: not known
 *            112   16 0
 *              [G] segments, of 128 bytes each, source by source:
 *              0  u64 offset of its data, u64 documents, u64 tokens, u64 spans
 *             32  u64 blocks, u64 bytes of the paths, u32 shards, u32 1 if it has spans
 *             56  u32 how many of its shards are objects in stores, u32 0
 *             64   16 root of its pages (page_tree.h)
 *             80   32 fingerprint of the shards of its source up to its end: sampled, full
 *            112   16 0
 *         u8   [X] texts of the sources, each with a NUL: enum rp_manifest_text, then the patterns
 *
 * A segment has some shards of one source, in their order. Its data, each part filled with zeros to
 * a multiple of 8, table and data to whole pages:
 *
 *         u8   table of the documents of all its shards (table.h, with extents). Bytes count from
 *              the beginning of each document's own token file
 *              [n] records of its shards, of 256 bytes each:
 *              0  u64 bytes of the token file, u64 its modification time in ns
 *             16  u64 documents, u64 tokens
 *             32  u64 first of its blocks in this segment, u64 where its path begins
 *             48  u32 format, u32 token type, i64 eos, u64 offset of its first token
 *             72  u64 largest token id; 2^64 - 1: not known
 *             80   16 content hash of the token file, as in its sidecar
 *             96   32 fingerprint: sampled, full
 *            128   32 name of the column of token ids
 *            160   32 name of the mask, u32 how it was read, as in a sidecar, u32 0
 *            200  u64 modification times in ns of its .idx, of its mask's file, of its sidecar,
 *                 when it was learnt; 0: there was none
 *            224   32 0
 *         u64  [n + 1] documents before each shard of the segment
 *         u32  [b] shard of document i << shift, for i from 0; shift is the least with which there
 *                 are at most 4 n + 2 of them
 *         u64  [blocks] XXH3-64 of every block of every shard
 *         u8   paths of the shards, each with a NUL. Those of files below the folder of the
 *                 manifest are relative to it, so that the folder can move
 *
 * Of an object in a store, the path is its URL without a query, which may be a secret, and after it
 * is its identity with a NUL: its ETag, or when it was modified, or "". Hashes of identities are in
 * the place of the four modification times.
 *
 * After its data are the hashes of its pages.
 *
 * To append is to write a segment and a head after all else, to sync, and to write the slot of the
 * older head. So nothing that a running engine has mapped changes, a crash leaves the older head,
 * and what follows the newest head is left of an append that did not finish. Bytes that belong to
 * nothing (older heads, what fills a page between two segments) are ignored.
 *
 * Invariants: nothing is used before every size has been checked against the file. Page 0 and the
 * head are verified at open, a page of a segment at its first use; block hashes are
 * not verified at first use: a damaged one differs from the hash of its block, and the read of that
 * block fails. Hashes find damage, not forgery: values that index memory are checked where they are
 * used. The fingerprints are those
 * that the same shards have with sidecars, so a run may resume with or without the manifest. */
#ifndef RP_CORPUS_MANIFEST_MANIFEST_H
#define RP_CORPUS_MANIFEST_MANIFEST_H

#include "base/file.h"
#include "corpus/fingerprint.h"
#include "corpus/manifest/page_tree.h"
#include "corpus/table.h"

/* Texts of a source: what was declared ("" = nothing was); and the mask and the name of the
 * tokenizer, which were found. */
#define RP_MANIFEST_TEXTS(X)                                                                       \
    X(NAME, "name")                                                                                \
    X(FORMAT, "format")                                                                            \
    X(DTYPE, "dtype")                                                                              \
    X(EOS, "eos")                                                                                  \
    X(COLUMN, "column")                                                                            \
    X(MASK, "mask")                                                                                \
    X(MASK_VALUE, "mask_value")                                                                    \
    X(MASK_OF, "mask_of")                                                                          \
    X(DROP_UNMASKED, "drop_unmasked")                                                              \
    X(FOUND_MASK, "mask of the shards")                                                            \
    X(TOKENIZER, "tokenizer")
#define RP_MANIFEST_TEXT_ENUM(id, name) RP_MANIFEST_##id,
enum rp_manifest_text { RP_MANIFEST_TEXTS(RP_MANIFEST_TEXT_ENUM) RP_MANIFEST_PATTERNS };

/* The modification times, in ns, of the files beside a token file that decide what is learnt of it:
 * its .idx, its mask (of several files the newest), its sidecar. 0: there is none. Of an object,
 * hashes of what identifies the objects beside it. */
struct rp_manifest_beside {
    uint64_t index_ns, mask_ns, sidecar_ns;
};

struct rp_manifest_record {
    uint64_t bytes, mtime_ns, documents, tokens, first_block, path_at;
    enum rp_format format;
    enum rp_token_type type;
    int64_t eos;
    uint64_t token_offset, token_max;
    struct rp_hash128 content;
    struct rp_fingerprint fingerprint;
    char column[RP_COLUMN_BYTES];
    struct rp_mask_origin mask;
    struct rp_manifest_beside beside;
};

/* How many of each a segment has, and where its parts begin in its data. */
struct rp_manifest_shape {
    uint64_t documents, spans, blocks, path_bytes;
    uint32_t shards, objects; /* all of them, and those that are objects in stores */
    bool has_spans;
};
struct rp_manifest_parts {
    uint64_t records, first, buckets, blocks, paths, bytes;
    uint64_t bucket_count;
    unsigned bucket_shift;
};

struct rp_manifest_segment {
    struct rp_manifest_shape shape;
    struct rp_manifest_parts parts;
    uint64_t offset, tokens;
    struct rp_fingerprint prefix;
    uint32_t source;
    uint32_t first_shard; /* within the source, as the next */
    uint64_t first_document;
    struct rp_tree tree;
    struct rp_table table;
};

struct rp_manifest_source {
    const char *const *texts; /* enum rp_manifest_text, then the patterns */
    uint32_t text_count;
    uint32_t shards, widest, segment_count;
    const struct rp_manifest_segment *segments; /* [segment_count], at least one */
    uint64_t documents, tokens, token_bytes, bytes;
    struct rp_fingerprint fingerprint;
    struct rp_tokenizer_id tokenizer;
};

struct rp_manifest {
    char *path, *directory; /* for people: of one in a store, its URL */
    char *file;             /* what is mapped */
    struct rp_map map;
    struct rp_stamp known;    /* of the file, at the last check */
    uint64_t generation, end; /* of the newest head */
    bool is_torn;             /* opened to repair: one of its slots is damaged */
    struct rp_hash128 root;
    struct rp_fingerprint fingerprint;
    uint32_t source_count, segment_count, shard_count;
    struct rp_manifest_source *sources;
    struct rp_manifest_segment *segments;
    const char **texts;
};

/** Open and check page 0 and the head. -ENOENT, -RP_E_CORRUPT, -RP_E_VERSION, … with the command
 * that writes it anew. To repair: of two slots one may be damaged, and the other counts. */
RP_MUST_CHECK int rp_manifest_open(struct rp_manifest **manifest_out, const char *path,
                                   bool to_repair, struct rp_error *error);
void rp_manifest_close(struct rp_manifest *manifest);

/** The same for a path or a URL (fetched.c). An object is fetched into `cache_dir` (as
 * object/remote.h says), and all of what arrives is compared with its hashes. It must list objects
 * alone: files are those of another machine. */
RP_MUST_CHECK int rp_manifest_open_place(struct rp_manifest **manifest_out, const char *place,
                                         const char *cache_dir, struct rp_error *error);
/** Open the manifest in `file` under the name `path`. */
RP_MUST_CHECK int rp_manifest_open_file(struct rp_manifest **manifest_out, const char *path,
                                        const char *file, bool to_repair, struct rp_error *error);

/** Is the file at `path` a manifest, by its first bytes? */
bool rp_manifest_is_file(const char *path);

/** -RP_E_MISMATCH, by name and with both values, unless a source is declared as when the manifest
 * was made. Its shards are the patterns, as the configuration has them. */
RP_MUST_CHECK int rp_manifest_check_source(const struct rp_manifest *manifest, uint32_t source,
                                           const struct rp_source_spec *spec,
                                           struct rp_error *error);

/** The record of a shard of a segment, and its path (its own memory; the caller frees it). False:
 * its page is damaged. path_out may be NULL. */
bool rp_manifest_record(const struct rp_manifest *manifest,
                        const struct rp_manifest_segment *segment, uint32_t shard,
                        struct rp_manifest_record *record, char **path_out);
/** What identified the object that the record is of; the string is the manifest's. NULL: its page
 * is damaged. */
const char *rp_manifest_identity(const struct rp_manifest_segment *segment,
                                 const struct rp_manifest_record *record);
/** The hashes of its blocks. They are not verified. */
const uint64_t *rp_manifest_blocks(const struct rp_manifest_segment *segment);
/** The documents before shard i of the segment; UINT64_MAX: damaged. i may be the number of its
 * shards. */
uint64_t rp_manifest_first(const struct rp_manifest_segment *segment, uint32_t i);

/** The segment of a document of a source, and of a shard that is counted within the source; the
 * shard of a document of a segment, or UINT32_MAX: the page that says it is damaged. */
const struct rp_manifest_segment *rp_manifest_segment_of(const struct rp_manifest_source *source,
                                                         uint64_t document);
const struct rp_manifest_segment *rp_manifest_segment_of_shard(
    const struct rp_manifest_source *source, uint32_t shard);
uint32_t rp_manifest_shard_of(const struct rp_manifest_segment *segment, uint64_t document);

/** -RP_E_CORRUPT: a page of the manifest that was needed differs from its hash. */
int rp_manifest_fail_damaged(const struct rp_manifest *manifest, const char *what,
                             struct rp_error *error);

/** Compare every page of the file with its hash. progress as in rp_index_build. */
RP_MUST_CHECK int rp_manifest_check_all(const struct rp_manifest *manifest,
                                        const struct rp_progress *progress, struct rp_error *error);

/** Was the file written to since the last check? Then all pages that were verified are compared
 * once more; -RP_E_CHANGED if one differs. To append changes none of them. By one thread. */
RP_MUST_CHECK int rp_manifest_look(struct rp_manifest *manifest, struct rp_error *error);

/* ---- the layout (layout.c) ---------------------------------------------------------- */

#define RP_MANIFEST_MAGIC "\x89RPM\r\n\x1a\n"
#define RP_MANIFEST_VERSION 1u
#define RP_MANIFEST_SLOT_AT(generation) (1024u * (1u + (unsigned)((generation) % 2)))
#define RP_MANIFEST_SLOT_BYTES 64u
#define RP_MANIFEST_HEAD_BYTES 64u   /* before the sources */
#define RP_MANIFEST_ENTRY_BYTES 128u /* of a source, of a segment */
#define RP_MANIFEST_RECORD_BYTES 256u

/** False if there is no such number of bytes. */
bool rp_manifest_find_parts(const struct rp_manifest_shape *shape, struct rp_manifest_parts *parts);
/** The bytes of its data and of the hashes after it. */
uint64_t rp_manifest_parts_bytes(const struct rp_manifest_parts *parts);
void rp_manifest_encode_record(const struct rp_manifest_record *record, uint8_t *bytes);
void rp_manifest_decode_record(const uint8_t *bytes, struct rp_manifest_record *record);
void rp_manifest_store_fingerprint(uint8_t *bytes, const struct rp_fingerprint *fingerprint);
struct rp_fingerprint rp_manifest_load_fingerprint(const uint8_t *bytes);

/* ---- paths (path.c) ----------------------------------------------------------------- */

/* Makes paths and patterns into those that a manifest holds: relative to its folder where they lie
 * below it, else absolute. Remembers the directory that it resolved last. */
struct rp_manifest_paths {
    char *folder; /* of the manifest, resolved */
    char *last, *last_resolved;
};
RP_MUST_CHECK int rp_manifest_paths_open(struct rp_manifest_paths *paths, const char *manifest_path,
                                         struct rp_error *error);
void rp_manifest_paths_close(struct rp_manifest_paths *paths);
/** The caller frees it; NULL when out of memory. */
char *rp_manifest_paths_store(struct rp_manifest_paths *paths, const char *path);

/** The texts of a source: what was declared. In the order of enum rp_manifest_text; those that were
 * found are empty. The strings are the spec's, the number's text is in `eos`. */
void rp_manifest_declared(const struct rp_source_spec *spec, char eos[24],
                          const char *texts[RP_MANIFEST_PATTERNS]);

#endif
