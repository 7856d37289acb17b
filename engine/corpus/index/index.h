/* SPDX-License-Identifier: Apache-2.0 */
/* index.h — the file that `ringpack index` writes (INDEX.md): the places of all documents of some
 * shards, and hashes of all its contents. A sidecar is the index of one shard; a corpus index has
 * all shards of a configuration, and a start that uses it opens no shard.
 *
 * Invariants: every size is checked against the file before any use. The header and the head are
 * verified at open, a page of a segment at its first use. Hashes find damage, not forgery: values
 * that index memory are checked at each use. A corpus has the same fingerprints with sidecars and
 * with a corpus index, so a run may resume with either.
 *
 * Threads: open and close on one thread, rp_index_revalidate on one at a time; look-ups on any
 * number of threads. */
#ifndef RP_CORPUS_INDEX_INDEX_H
#define RP_CORPUS_INDEX_INDEX_H

#include "base/file.h"
#include "corpus/fingerprint.h"
#include "corpus/index/page_tree.h"
#include "corpus/megatron.h"
#include "corpus/table.h"

#define RP_INDEX_SUFFIX ".rpi"
#define RP_INDEX_SUFFIX_OLD ".rpx" /* suffix of sidecars before 0.3 */

/* Texts of a source: its declaration ("" = not declared), then the mask and the tokenizer's name as
 * they were found in its shards. */
#define RP_INDEX_TEXTS(X)                                                                          \
    X(NAME, "name")                                                                                \
    X(FORMAT, "format")                                                                            \
    X(DTYPE, "dtype")                                                                              \
    X(EOS, "eos")                                                                                  \
    X(COLUMN, "column")                                                                            \
    X(MASK, "mask")                                                                                \
    X(MASK_VALUE, "mask_value")                                                                    \
    X(MASK_OF, "mask_of")                                                                          \
    X(DROP_UNTRAINED, "drop_untrained")                                                            \
    X(FOUND_MASK, "mask of the shards")                                                            \
    X(TOKENIZER, "tokenizer")
#define RP_INDEX_TEXT_ENUM(id, name) RP_INDEX_##id,
enum rp_index_text { RP_INDEX_TEXTS(RP_INDEX_TEXT_ENUM) RP_INDEX_PATTERNS };

/* The modification times, in ns, of the companion files on which a scan depends: .idx, mask (of
 * several files the newest), sidecar. 0: no such file. For an object, hashes of its companions'
 * identities. */
struct rp_index_companions {
    uint64_t idx_ns, mask_ns, sidecar_ns;
};

/* A shard. */
struct rp_index_record {
    uint64_t bytes, mtime_ns, documents, tokens, first_block, path_at;
    enum rp_format format;
    enum rp_token_type type;
    int64_t eos;
    uint64_t token_offset, token_max;
    struct rp_hash128 content;
    struct rp_fingerprint fingerprint;
    char column[RP_COLUMN_BYTES];
    struct rp_mask_origin mask;
    struct rp_index_companions companions;
    uint64_t idx_bytes;
    struct rp_hash128 table_root, idx_sample, idx_content;
};

/* How many entries a segment has. */
struct rp_index_shape {
    struct rp_table_shape table;
    uint64_t blocks, path_bytes;
    uint32_t shards, objects; /* shards; how many of them are objects in stores */
};
/* Where the parts of a segment begin in its data, after the table; `bytes` is the end of the last.
 */
struct rp_index_parts {
    uint64_t records, first, buckets, blocks, paths, bytes;
    uint64_t bucket_count;
    unsigned bucket_shift;
};

struct rp_opened;

/* Shards of one source whose documents are in one table. There are three kinds:
 *
 *     kind                      opened     index          documents
 *     of a corpus index         NULL       the index      in `table`
 *     a shard with a sidecar    the shard  the sidecar    in `table`; of Megatron in `megatron`
 *     a shard without a sidecar the shard  NULL           likewise */
struct rp_index_segment {
    /* u32 lengths[d], at any alignment, is the number of tokens of each document d below `plain`.
     * `plain` grows with use, so that opening does not take longer with more documents. */
    const uint8_t *lengths;
    struct rp_a64 plain;
    uint64_t first_document;            /* counted in the source */
    uint32_t first_shard;               /* likewise */
    uint32_t number;                    /* in the corpus */
    const struct rp_megatron *megatron; /* the .idx with the documents; NULL: not Megatron */
    struct rp_table table;              /* Megatron: only spans */
    struct rp_opened *opened;
    struct rp_index *index;
    struct rp_index_shape shape;
    struct rp_index_parts parts;
    uint64_t offset, tokens;
    struct rp_fingerprint prefix;
    struct rp_tree tree;
};

/* The types of the values of a column, and their bytes. Numbered in files, from 1. */
#define RP_INDEX_COLUMN_TYPES(X)                                                                   \
    X(U8, 1)                                                                                       \
    X(U16, 2)                                                                                      \
    X(U32, 4)                                                                                      \
    X(U64, 8)                                                                                      \
    X(I64, 8)                                                                                      \
    X(F32, 4)                                                                                      \
    X(F64, 8)                                                                                      \
    X(I8, 1)                                                                                       \
    X(I16, 2)                                                                                      \
    X(I32, 4)
#define RP_INDEX_COLUMN_ENUM(id, bytes) RP_INDEX_COLUMN_##id,
enum rp_index_column_type {
    RP_INDEX_COLUMN_NONE,
    RP_INDEX_COLUMN_TYPES(RP_INDEX_COLUMN_ENUM) RP_INDEX_COLUMN_TYPE_COUNT
};
#define RP_INDEX_COLUMN_NAME_BYTES 48u

/* One value for each document of a segment, which is known by its offset. */
struct rp_index_column {
    uint64_t segment_at;
    enum rp_index_column_type type;
    char name[RP_INDEX_COLUMN_NAME_BYTES];
    uint64_t offset, values;
    struct rp_tree tree;
};

struct rp_index_source {
    const char *const *texts; /* enum rp_index_text, then the patterns */
    uint32_t text_count;
    uint32_t shards, widest, segment_count;
    struct rp_index_segment *segments; /* [segment_count], at least one */
    uint64_t documents, tokens, token_bytes, bytes;
    struct rp_fingerprint fingerprint;
    struct rp_tokenizer_id tokenizer;
};

struct rp_index {
    char *path, *directory; /* for display; an object has its URL */
    char *file;             /* the mapped file; also for a fetched index */
    const char *token_path; /* a sidecar's; NULL: a corpus index */
    struct rp_map map;
    struct rp_stamp known;    /* the file's stamp at the last check */
    uint64_t generation, end; /* the newest head's */
    bool is_torn;             /* opened to repair: one of its slots is damaged */
    struct rp_hash128 root;
    struct rp_fingerprint fingerprint;
    uint32_t source_count, segment_count, column_count, shard_count;
    struct rp_index_source *sources;
    struct rp_index_segment *segments;
    struct rp_index_column *columns;
    const char **texts;
};

struct rp_index_open_options {
    const char *path;       /* in messages */
    const char *file;       /* NULL: the file is at `path` */
    const char *token_path; /* a sidecar's, borrowed until close; NULL: a corpus index */
    bool to_repair;         /* one of two slots may be damaged; the other one counts then */
};
/** Open a file and check its header and head. -ENOENT, -RP_E_CORRUPT, -RP_E_VERSION, … with the
 * command that rewrites it. */
RP_MUST_CHECK int rp_index_open(struct rp_index **index_out,
                                const struct rp_index_open_options *options,
                                struct rp_error *error);
void rp_index_close(struct rp_index *index);

/** Open a corpus index at a path or a URL (fetched.c). An object is fetched into `cache_dir` (as
 * object/remote.h says), and compared with its hashes as a whole. It must list only objects: files
 * would be on another machine. */
RP_MUST_CHECK int rp_index_open_place(struct rp_index **index_out, const char *place,
                                      const char *cache_dir, struct rp_error *error);

/** Whether the file at `path` begins as an index. Also true for an older corpus index, which is
 * refused when it is opened. */
bool rp_index_is_file(const char *path);

/** Whether the file is a good corpus index, not a sidecar. */
bool rp_index_is_of_corpus(const char *path);

/* ---- sidecars (sidecar.c) ------------------------------------------------------------- */

/** The path of a token file's sidecar: in its folder, or in index_dir if that is not NULL, under a
 * name that keeps equal base names apart. The caller frees it; NULL when out of memory. */
char *rp_sidecar_path(const char *token_path, const char *index_dir);

/** Open the sidecar at `path` and take the record of its one shard. -ENOENT: no such file. */
RP_MUST_CHECK int rp_sidecar_open(struct rp_index **index_out, struct rp_index_record *record,
                                  const char *path, const char *token_path, struct rp_error *error);

/** Search index_dir, then the token file's folder. 1 = found and open, 0 = none, negative = it is
 * bad, or only an older version exists. */
RP_MUST_CHECK int rp_sidecar_find(struct rp_index **index_out, struct rp_index_record *record,
                                  const char *token_path, const char *index_dir,
                                  struct rp_error *error);

/* ---- look-ups (lookup.c) -------------------------------------------------------------- */

/** -RP_E_MISMATCH, by name and with both values, unless a source is declared as it was when the
 * index was made. spec->shards has the patterns of the configuration. */
RP_MUST_CHECK int rp_index_check_source(const struct rp_index *index, uint32_t source,
                                        const struct rp_source_spec *spec, struct rp_error *error);

/** The record of a shard of a segment, and its path, which the caller frees. False: a page is
 * damaged, or there is no memory for the path. path_out may be NULL. */
bool rp_index_get_record(const struct rp_index_segment *segment, uint32_t shard,
                         struct rp_index_record *record, char **path_out);
/** The stored path of a shard, and the identity of an object. The strings are the index's. NULL:
 * their page is damaged. */
const char *rp_index_stored_path(const struct rp_index_segment *segment,
                                 const struct rp_index_record *record);
const char *rp_index_identity(const struct rp_index_segment *segment,
                              const struct rp_index_record *record);
/** The hashes of a shard's blocks, not verified; and whether they match the pages' hashes. */
const uint64_t *rp_index_blocks(const struct rp_index_segment *segment,
                                const struct rp_index_record *record);
bool rp_index_verify_blocks(const struct rp_index_segment *segment, const uint64_t *blocks,
                            uint64_t count);
/** The documents of the segment before its shard i; UINT64_MAX: damaged. i may be the number of
 * shards. */
uint64_t rp_index_documents_before(const struct rp_index_segment *segment, uint32_t i);
/** The shard of a document of a segment; UINT32_MAX: a page is damaged. */
uint32_t rp_index_shard_of(const struct rp_index_segment *segment, uint64_t document);

/** Add the fingerprints of a segment's shards to the list of its source. The fingerprint of the
 * list is then the prefix root of the segment. False: a record is damaged. */
bool rp_index_add_fingerprints(const struct rp_index_segment *segment,
                               struct rp_fingerprint_list *list);

/** The column of that name of a segment; NULL: it has none. */
const struct rp_index_column *rp_index_find_column(const struct rp_index *index,
                                                   const struct rp_index_segment *segment,
                                                   const char *name);
uint32_t rp_index_column_width(enum rp_index_column_type type);
/** "u8", …, "f64". */
const char *rp_index_column_type_name(enum rp_index_column_type type);
static inline enum rp_column_kind rp_index_column_kind(enum rp_index_column_type type)
{
    switch (type) {
    case RP_INDEX_COLUMN_I8:
    case RP_INDEX_COLUMN_I16:
    case RP_INDEX_COLUMN_I32:
    case RP_INDEX_COLUMN_I64:
        return RP_COLUMN_SIGNED;
    case RP_INDEX_COLUMN_F32:
    case RP_INDEX_COLUMN_F64:
        return RP_COLUMN_REAL;
    default:
        return RP_COLUMN_UNSIGNED;
    }
}
/** The address of a document's value; NULL: its page is damaged. */
const void *rp_index_value(const struct rp_index_column *column, uint64_t document);

/** -RP_E_CORRUPT: a page in use differs from its hash. */
int rp_index_fail_damaged(const struct rp_index *index, const char *what, struct rp_error *error);

/** Compare every page of the file with its hash, and every prefix root with the records. progress
 * as in rp_sidecar_build. */
RP_MUST_CHECK int rp_index_check_all(const struct rp_index *index,
                                     const struct rp_progress *progress, struct rp_error *error);

/** If the file was written to since the last check, compare all verified pages once more;
 * -RP_E_CHANGED if one differs. An append changes none of them. One thread at a time:
 * rp_corpus_revalidate has a lock. */
RP_MUST_CHECK int rp_index_revalidate(struct rp_index *index, struct rp_error *error);

/* ---- the layout (layout.c) ------------------------------------------------------------ */

#define RP_INDEX_MAGIC "\x89RPI\r\n\x1a\n"
#define RP_INDEX_VERSION 1u
#define RP_INDEX_HEADER_BYTES 256u
#define RP_INDEX_SLOT_AT(generation) (64u * (1u + (unsigned)((generation) % 2)))
#define RP_INDEX_SLOT_BYTES 64u
#define RP_INDEX_HEAD_BYTES 128u  /* before the sources */
#define RP_INDEX_ENTRY_BYTES 128u /* entry of a source, a segment or a column */
#define RP_INDEX_RECORD_BYTES 320u

/** False if a count is too large for a file. */
bool rp_index_find_parts(const struct rp_index_shape *shape, struct rp_index_parts *parts);
/** The bytes of a segment: its data, and the hashes after it. */
uint64_t rp_index_parts_bytes(const struct rp_index_parts *parts);
void rp_index_encode_record(const struct rp_index_record *record, uint8_t *bytes);
void rp_index_decode_record(const uint8_t *bytes, struct rp_index_record *record);

/** Store an entry of the head at `bytes`; or load one, which sets only the fields that the entry
 * has.
 */
void rp_index_encode_source(const struct rp_index_source *source, uint64_t texts_at,
                            uint8_t *bytes);
void rp_index_decode_source(const uint8_t *bytes, struct rp_index_source *source);
void rp_index_encode_segment(const struct rp_index_segment *segment, uint8_t *bytes);
void rp_index_decode_segment(const uint8_t *bytes, struct rp_index_segment *segment);
void rp_index_encode_column(const struct rp_index_column *column, uint8_t *bytes);
void rp_index_decode_column(const uint8_t *bytes, struct rp_index_column *column);

/** The texts of a declaration; the two found ones are empty. The strings are borrowed from the
 * spec; the text of the number is in `eos`. */
void rp_index_declared(const struct rp_source_spec *spec, char eos[24],
                       const char *texts[RP_INDEX_PATTERNS]);

/* ---- paths (path.c) ------------------------------------------------------------------- */

/* Converts paths and patterns into stored ones: relative to the index's folder if they are below
 * it, else absolute. Remembers the last resolved directory. */
struct rp_index_paths {
    char *folder; /* the index's folder, resolved */
    char *last, *last_resolved;
};
RP_MUST_CHECK int rp_index_paths_open(struct rp_index_paths *paths, const char *index_path,
                                      struct rp_error *error);
void rp_index_paths_close(struct rp_index_paths *paths);
/** The caller frees it; NULL when out of memory. */
char *rp_index_paths_store(struct rp_index_paths *paths, const char *path);

#endif
