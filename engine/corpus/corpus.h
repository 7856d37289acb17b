/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.h — the documents of a corpus: their places, their lengths, and a check that they are
 * unchanged.
 *
 * A shard is one file in which every document is one contiguous run of little-endian integers.
 * Formats differ only in how they state the begin of each document; this module hides that behind
 * an extent table. It reads indexes and sampled blocks, never whole token files (rp_sidecar_build
 * does, once, for the user).
 *
 * Indexes are mapped, so memory does not grow with a corpus that has them. Threads: open and close
 * on one thread; everything else is read-only and may be called from any number of threads. */
#ifndef RP_CORPUS_CORPUS_H
#define RP_CORPUS_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/progress.h"
#include "corpus/spans.h"
#include "corpus/tokenizer_id.h"

/* The formats: identifier, name. Sidecars have the numbers of this order, so a new one comes last.
 * Each has a reader (readers.h).
 *
 *     MEGATRON  NAME.bin + NAME.idx, MMIDIDX version 1
 *     RAW       headerless tokens (nanoGPT .bin); needs dtype and eos
 *     NPY       a true numpy .npy file, one dimension; needs eos
 *     LLMC      llm.c .bin, magic 20240520 (u16) or 20240801 (u32); leading EOS
 *     ARROW     Arrow IPC, as a stream or a file (Hugging Face datasets, Feather), uncompressed
 *     DATATROVE datatrove's .ds with its .ds.index and .ds.metadata
 *     MDS       a shard of mosaicml-streaming, uncompressed
 *     LITDATA   a chunk of litData's TokensLoader, uncompressed, with index.json in its folder
 *     OLMO      OLMo's headerless .npy, with the .csv.gz of its documents; needs dtype */
#define RP_FORMAT_LIST(X)                                                                          \
    X(MEGATRON, "megatron")                                                                        \
    X(RAW, "raw")                                                                                  \
    X(NPY, "npy")                                                                                  \
    X(LLMC, "llmc")                                                                                \
    X(ARROW, "arrow")                                                                              \
    X(DATATROVE, "datatrove")                                                                      \
    X(MDS, "mds")                                                                                  \
    X(LITDATA, "litdata")                                                                          \
    X(OLMO, "olmo")
#define RP_FORMAT_ENUM(id, name) RP_FORMAT_##id,
enum rp_format {
    RP_FORMAT_AUTO, /* decided by magic, then by companion files; raw is never guessed */
    RP_FORMAT_LIST(RP_FORMAT_ENUM) RP_FORMAT_COUNT
};

/* How one token is stored: identifier, name, bytes, bits of an id. Tokens are read as unsigned
 * numbers, so a negative number has more bits than an id may have and is refused as too large, and
 * so is a u64 from 2^63 on. Sidecars have the numbers of the types, so a new type comes last. */
#define RP_TOKEN_LIST(X)                                                                           \
    X(U8, "u8", 1, 8)                                                                              \
    X(U16, "u16", 2, 16)                                                                           \
    X(I16, "i16", 2, 15)                                                                           \
    X(I32, "i32", 4, 31)                                                                           \
    X(U32, "u32", 4, 32)                                                                           \
    X(I64, "i64", 8, 63)                                                                           \
    X(I8, "i8", 1, 7)                                                                              \
    X(U64, "u64", 8, 63)
#define RP_TOKEN_ENUM(id, name, width, bits) RP_TOKEN_##id,
enum rp_token_type { RP_TOKEN_NONE, RP_TOKEN_LIST(RP_TOKEN_ENUM) RP_TOKEN_COUNT };
uint32_t rp_token_width(enum rp_token_type type); /* bytes; 0 for NONE */
uint32_t rp_token_bits(enum rp_token_type type);  /* bits of an id, without the sign */

#define RP_EOS_NONE (-1)
/* Sidecar hashes cover blocks of this many bytes; checked reads are rounded to it. */
#define RP_BLOCK_BYTES 4096u
/* The name of a column of token ids, with its NUL. */
#define RP_COLUMN_BYTES 32u

/* Two numbers, a dash and a NUL. */
#define RP_RECORDED_RANGE_BYTES 48u

/* The declaration of one source. Paths are files, URLs (object/url.h), Megatron prefixes, or
 * directories/globs that the config module has already expanded, in the canonical order (sorted
 * bytewise within one pattern). */
struct rp_source_spec {
    const char *name;
    uint64_t weight; /* for the plan: not used here */
    const char *const *shards;
    uint32_t shard_count;
    enum rp_format format;
    enum rp_token_type type; /* NONE = from the file */
    int64_t eos;             /* RP_EOS_NONE = not declared */
    const char *column;      /* column of token ids, if a file has several; NULL = not declared */
    struct rp_mask_choice mask;
    bool drop_untrained;   /* documents without spans count as empty */
    bool keeps_untrained;  /* with drop_untrained: they keep their lengths, and only their fragments
                              are left out. The fingerprint is the same */
    const char *documents; /* the range of documents that is used (range.h); NULL = all */
    /* The numbers FIRST-END that a range in percent had when the run began: they replace
     * `documents`. Empty: none */
    char recorded[RP_RECORDED_RANGE_BYTES];
};

/* A callback that opening calls, on its own thread, before each step that may take long: replies of
 * a store, a walk over a shard without a sidecar. A negative code, with its error, ends the
 * opening.
 */
struct rp_corpus_gate {
    int (*pass)(void *context, struct rp_error *error);
    void *context;
};

struct rp_sides_spec;

struct rp_corpus_spec {
    const struct rp_source_spec *sources;
    uint32_t source_count;
    const char *index_dir; /* searched for sidecars first; NULL = only the shard's folder */
    const char *index;     /* corpus index of all sources, whose shards are then the patterns of the
                              index; NULL = every shard is opened */
    const char *cache_dir; /* for indexes and sidecars of URLs; NULL = as object/remote.h says */
    bool allow_missing_data;           /* a missing token file that has a sidecar is a warning */
    const struct rp_corpus_gate *gate; /* NULL = none */
    const struct rp_sides_spec *sides; /* side columns (sides.h); NULL = none */
};

struct rp_corpus;
struct rp_source; /* one source, passed to the plan as its `lengths` */

/** Open every index, check sizes, compute fingerprints. Formats that need a scan of all tokens
 * (RAW, NPY, LLMC) need a sidecar; without one this returns -RP_E_FORMAT with the hint `ringpack
 * index …`, unless the file is small (<= 256 MiB): then it is scanned in memory. A shard of another
 * format needs a sidecar if it has more than 16 Mi documents. Errors name path, field, expected and
 * found. */
RP_MUST_CHECK int rp_corpus_open(struct rp_corpus **corpus_out, const struct rp_corpus_spec *spec,
                                 struct rp_error *error);
void rp_corpus_close(struct rp_corpus *corpus);

uint32_t rp_corpus_source_count(const struct rp_corpus *corpus);
const struct rp_source *rp_corpus_source(const struct rp_corpus *corpus, uint32_t source);
const char *rp_source_name(const struct rp_source *source);
uint64_t rp_source_documents(const struct rp_source *source);
uint64_t rp_source_first(const struct rp_source *source);  /* the documents before its range */
uint64_t rp_source_tokens(const struct rp_source *source); /* in all its documents */

uint32_t rp_source_shards(const struct rp_source *source);

/* A subset of a source's shards: their number, and the number and bytes of their tokens. */
struct rp_source_part {
    uint64_t tokens, bytes;
    uint32_t shards;
};
struct rp_source_part rp_source_whole(const struct rp_source *source);
/** The shards without a sidecar: they are not verified. */
struct rp_source_part rp_source_unverified(const struct rp_source *source);

/** The largest token id of a source that its indexes know; 0 if no index knows one. It walks over
 * the shards. */
uint64_t rp_source_token_max(const struct rp_source *source);

/** Tokens of a document, or UINT64_MAX when its index entry is damaged (outside the file,
 * negative). Signature fits struct rp_plan_source.length: `source` is a const struct rp_source *.
 * O(1) memory, a few ns: no lock, no syscall. */
uint64_t rp_source_length(const void *source, uint64_t document);

/** As rp_source_length, for many documents. Signature fits struct rp_plan_source.length_many. */
void rp_source_length_many(const void *source, const uint64_t *documents, uint32_t count,
                           uint64_t *tokens);

/* ---- columns (columns.c) --------------------------------------------------------------- */

/* A number for each document of a source, from its index (index/INDEX.md). It does not change, so
 * any number of threads may read it. */
struct rp_column;
enum rp_column_kind { RP_COLUMN_UNSIGNED, RP_COLUMN_SIGNED, RP_COLUMN_REAL };

/** Find a column by its name. -RP_E_CONFIG, with the command that adds it, if documents of the
 * source have none. */
RP_MUST_CHECK int rp_column_open(struct rp_column **column_out, const struct rp_source *source,
                                 const char *name, struct rp_error *error);
void rp_column_close(struct rp_column *column); /* NULL is fine */
enum rp_column_kind rp_column_kind(const struct rp_column *column);
const char *rp_column_type(const struct rp_column *column); /* "u8", …, "f64" */

/** The values of documents: 8 bytes each, as u64, i64 or f64 by the kind; an f64 may be NaN.
 * -RP_E_CORRUPT: a page of the index is damaged. */
RP_MUST_CHECK int rp_column_values(const struct rp_column *column, const uint64_t *documents,
                                   uint32_t count, void *values, struct rp_error *error);

/** The root of the column in the i-th segment that has documents, and the number of documents of
 * all shards before that segment. False: there is no such segment, or the column has no values
 * there, as it may be behind the range of the source. */
bool rp_column_root(const struct rp_column *column, uint32_t i, uint64_t *first_out,
                    struct rp_hash128 *root_out);

/** The tokens of documents, whatever drop_untrained says; and the numbers of their shards in the
 * source. -RP_E_CORRUPT. */
RP_MUST_CHECK int rp_source_own_lengths(const struct rp_source *source, const uint64_t *documents,
                                        uint32_t count, uint64_t *lengths, struct rp_error *error);
RP_MUST_CHECK int rp_source_shard_numbers(const struct rp_source *source, const uint64_t *documents,
                                          uint32_t count, uint64_t *numbers,
                                          struct rp_error *error);

/** Report the damage of a document whose rp_source_length is UINT64_MAX. */
int rp_source_explain(const struct rp_source *source, uint64_t document, struct rp_error *error);

/* The place of a document's tokens. */
struct rp_extent {
    uint32_t shard;       /* number of the shard in the corpus */
    uint32_t width;       /* bytes a token */
    uint64_t byte_offset; /* place of the document's first token in the shard's token file */
    uint64_t tokens;
};
/** The extent of a document, or -RP_E_CORRUPT with the error of rp_source_explain. May also fail
 * for a document with a valid rp_source_length: the index may have been overwritten since. */
RP_MUST_CHECK int rp_source_extent(const struct rp_source *source, uint64_t document,
                                   struct rp_extent *extent, struct rp_error *error);

/** Prefetch the index entry that rp_source_extent reads. */
void rp_source_prefetch_extent(const struct rp_source *source, uint64_t document);
/** Prefetch its first span, some time after rp_source_prefetch_extent. The source has a mask. */
void rp_source_prefetch_spans(const struct rp_source *source, uint64_t document);

/** The token file of a document, and the document's number in that file. The string belongs to the
 * corpus. */
const char *rp_source_provenance(const struct rp_source *source, uint64_t document,
                                 uint64_t *number_out);

/** Whether the run uses a mask of this source. Without one, every token is trained. */
bool rp_source_has_mask(const struct rp_source *source);

/** Whether a document has a trained token: 1, 0, or negative if the tables are damaged. The source
 * must have a mask. */
int rp_source_has_span(const struct rp_source *source, uint64_t document);

/** Its mask: "none", "labels", "loss_mask (ignore, next), drop_untrained". */
void rp_source_mask_text(const struct rp_source *source, char *text, size_t bytes);

/** The spans of a part of a document, as rp_spans_cut. The source must have a mask. -RP_E_CORRUPT
 * if the sidecar's tables are damaged. */
RP_MUST_CHECK int rp_source_spans(const struct rp_source *source, const struct rp_part *part,
                                  struct rp_span *out, uint32_t *count_out, struct rp_error *error);

/** Whether a token of a part of a document is trained: 1, 0, or -RP_E_CORRUPT if the tables are
 * damaged. The source must have a mask. Needs no room for the spans. */
int rp_source_is_trained(const struct rp_source *source, const struct rp_part *part,
                         struct rp_error *error);

/* The documents that a source uses, counted over its shards: [first, end) of `all`. */
struct rp_source_range {
    uint64_t first, end, all;
    bool is_open;    /* no END was declared, so appended documents belong to it */
    bool is_percent; /* the bounds were declared in percent of `all` */
};
struct rp_source_range rp_source_range(const struct rp_source *source);

/* How a shard became known, and so what stores its hashes. */
enum rp_shard_kind {
    RP_SHARD_OPENED, /* its files were opened with the corpus: hashes in a sidecar, or none */
    RP_SHARD_LISTED, /* known from the corpus index only, not opened: hashes in the index */
    RP_SHARD_SIDE,   /* a side column's file, which has no documents: hashes in itself */
};

/* One token file. Strings and hashes belong to the corpus. */
struct rp_shard {
    enum rp_shard_kind kind;
    const char *path; /* the token file, or its display URL */
    /* For an object in a store: the URL to open, which may hold a secret, and the identity of its
     * content ("" = the store gives none). NULL: a file. */
    const char *url, *identity;
    uint64_t bytes; /* the token file's */
    uint32_t source;
    enum rp_token_type type;
    const uint64_t *block_hashes; /* XXH3-64 of each block; NULL without a sidecar */
    uint64_t block_count;
    uint64_t documents, tokens;
    /* At open; zeros if the token file was missing. A listed shard has only bytes and modification
     * time. */
    struct rp_stamp stamp;
    const struct rp_tokenizer_id *tokenizer; /* NULL: not known */
    uint64_t idx_mtime_ns;                   /* listed: of its .idx in the index; 0: not known */
    const struct rp_index_segment *segment;  /* has its documents */
};
/** Number of data files: the shards, and the files of side columns, whose numbers follow the
 * shards' (sides.h). */
uint32_t rp_corpus_data_count(const struct rp_corpus *corpus);
const struct rp_shard *rp_corpus_shard(const struct rp_corpus *corpus, uint32_t shard);
/** The key of a shard's object, without secrets (rp_url_id); "" for a file. The caller frees it;
 * NULL when out of memory. */
char *rp_corpus_object_id(const struct rp_shard *shard);

/** The path of the corpus index; NULL if shards were opened without one. */
const char *rp_corpus_index_path(const struct rp_corpus *corpus);
/** The bytes and the number of local files, which are no objects: token files and files of side
 * columns. */
uint64_t rp_corpus_file_bytes(const struct rp_corpus *corpus);
uint32_t rp_corpus_local_count(const struct rp_corpus *corpus);
uint32_t rp_corpus_widest(const struct rp_corpus *corpus); /* bytes of the widest token */
/** The first shard that is an object in a store; NULL: none. */
const struct rp_shard *rp_corpus_first_object(const struct rp_corpus *corpus);

/** -RP_E_CHANGED, with the difference, if the open file no longer matches *known in size,
 * modification time or change time. *known begins as shard->stamp. A new or removed name (a hard
 * link, a replacement by another file) also changes the change time: *known then takes the new one,
 * so a write in the same moment whose modification time was set back is missed. */
RP_MUST_CHECK int rp_shard_check(const struct rp_shard *shard, struct rp_stamp *known, int fd,
                                 struct rp_error *error);

/** Check the indexes and sidecars that were read since the last check. If the stamp of one differs
 * (touched, linked to, overwritten), its content is compared with its hash; an .idx is from then on
 * kept in memory. A content that differs, or has no known hash (an .idx above 64 MiB without a
 * sidecar), is -RP_E_CHANGED, here and in every later check: plans since the last one may be wrong.
 * Any thread may call: it waits for a check by another one. */
RP_MUST_CHECK int rp_corpus_revalidate(const struct rp_corpus *corpus, struct rp_error *error);

/** The mask from which a shard's spans were made; NULL: the run uses no mask of it. Not for a
 * listed shard. */
const struct rp_mask_origin *rp_shard_mask(const struct rp_shard *shard);

/** Call after a block differed from its hash. -RP_E_CORRUPT if the cause is a damaged sidecar, else
 * 0. */
RP_MUST_CHECK int rp_shard_check_sidecar(const struct rp_shard *shard, struct rp_error *error);

/* Fingerprints do not depend on paths or times. The sampled one covers sizes, the index (whole up
 * to 64 MiB, sampled above) and 64 blocks of every shard; the full one exists if every shard has a
 * sidecar, and covers every byte. For an object in a store, the block hashes come from its sidecar,
 * so a copy on a disk has the same fingerprints; without a sidecar its ETag takes their place. */
struct rp_fingerprint {
    struct rp_hash128 sampled, full; /* full is zero when not known */
};
struct rp_fingerprint rp_corpus_fingerprint(const struct rp_corpus *corpus);
/** The fingerprint of a source at `documents` documents of its range: of the shortest prefix
 * of its shards that has them (plan/STREAM2.md section 2.2). -RP_E_CHANGED: no prefix ends with the
 * last of them, so that the documents were changed. */
RP_MUST_CHECK int rp_source_fingerprint_at(const struct rp_source *source, uint64_t documents,
                                           struct rp_fingerprint *fingerprint,
                                           struct rp_error *error);
/** The one tokenizer that made the ids of the corpus, if a sidecar knows it. Several are refused.
 */
const struct rp_tokenizer_id *rp_corpus_tokenizer(const struct rp_corpus *corpus);
/** "full (index)", or "sampled (N of M shards have no sidecar; …)". */
void rp_corpus_fingerprint_text(const struct rp_corpus *corpus, char *text, size_t bytes);

/* The format of a path, the evidence for it, and figures of its documents (ringpack inspect). */
struct rp_inspection {
    enum rp_format format;
    enum rp_token_type type;
    int64_t eos; /* RP_EOS_NONE if the format needs none */
    char why[256];
    char column[RP_COLUMN_BYTES]; /* column of the token ids; empty if the format has none */
    uint64_t bytes, tokens, documents, empty_documents;
    uint64_t damaged_documents; /* whose rp_source_length is UINT64_MAX */
    uint64_t length_min, length_max;
    uint64_t length_histogram[65]; /* [b]: documents whose length has b significant bits */
    uint64_t token_max;            /* largest token id; UINT64_MAX if not scanned */
    bool has_sidecar;
    char mask[64];                /* as rp_source_mask_text; empty: no mask exists or is wanted */
    uint64_t trained_tokens;      /* by that mask */
    uint64_t untrained_documents; /* with tokens, none of them trained */
    struct rp_tokenizer_id tokenizer;
    struct rp_fingerprint fingerprint;
};
struct rp_inspect_options {
    const struct rp_source_spec *hints; /* may be NULL; name, weight and shards are ignored */
    const char *index_dir;              /* folder of the sidecar; NULL: the shard's folder */
    bool scan_tokens; /* read every token for token_max (memory speed), and not only the index */
    const struct rp_progress *progress;
};
/** Inspect one shard. To scan an object in a store, it is fetched into index_dir or the temporary
 * directory, and removed again. options NULL: all are zero. */
RP_MUST_CHECK int rp_inspect(const char *path, const struct rp_inspect_options *options,
                             struct rp_inspection *inspection, struct rp_error *error);

struct rp_sidecar_build_options {
    const struct rp_source_spec *hints; /* as in rp_inspect */
    const char *index_dir; /* folder of the older and the new sidecar; NULL: the shard's folder */
    /* Path of the sidecar, which is not synced: a crash of the machine may leave it damaged. NULL:
     * the usual path. */
    const char *scratch_path;
    /* If set, the complete sidecar stays unnamed in this file, and the caller publishes it, mostly
     * together with other files (base/new_files.h). NULL: it is published. */
    struct rp_new_file *unpublished;
    const struct rp_progress *progress;
};
/** Build the sidecar of one shard: a document table if the format has none, a hash of every block,
 * the content hash, the largest token id. Reads the token file once, at memory speed, and replaces
 * the sidecar atomically. An object in a store is fetched into index_dir, which must be given, and
 * removed from there again. options NULL: all are zero. */
RP_MUST_CHECK int rp_sidecar_build(const char *path, const struct rp_sidecar_build_options *options,
                                   struct rp_error *error);

const char *rp_format_name(enum rp_format format);
const char *rp_token_type_name(enum rp_token_type type); /* "u16" */
bool rp_format_parse(const char *text, enum rp_format *format);
bool rp_token_type_parse(const char *text, enum rp_token_type *type);

#endif
