/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.h — what the bytes of a corpus mean: where each document lies, and whether it changed.
 *
 * A shard is one file in which every document is one contiguous run of little-endian integers.
 * Formats differ only in how they say where documents begin; this module hides that behind an
 * extent table. It reads indexes and sampled blocks, never whole token files (rp_index_build does,
 * once, for the user).
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

/* The formats: identifier, name. Their order is that of the numbers in sidecars, so a new one comes
 * last. Each has a reader (readers.h).
 *
 *     MEGATRON  NAME.bin + NAME.idx, MMIDIDX version 1
 *     RAW       headerless tokens (nanoGPT .bin); needs dtype and eos
 *     NPY       a true numpy .npy file, one dimension; needs eos
 *     LLMC      llm.c .bin, magic 20240520 (u16) or 20240801 (u32); leading EOS
 *     ARROW     Arrow IPC, as a stream or a file (Hugging Face datasets, Feather), uncompressed
 *     DATATROVE datatrove's .ds with its .ds.index and .ds.metadata
 *     MDS       a shard of mosaicml-streaming, uncompressed
 *     LITDATA   a chunk of litData for its TokensLoader, uncompressed, with index.json beside it
 *     OLMO      OLMo's headerless .npy, with the .csv.gz of its documents beside it; needs dtype */
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
    RP_FORMAT_AUTO, /* decided by magic, then by the files beside it; raw is never guessed */
    RP_FORMAT_LIST(RP_FORMAT_ENUM) RP_FORMAT_COUNT
};

/* How one token is stored: identifier, name, bytes, bits of an id. All are read as unsigned
 * numbers, so that a negative one of a signed type has more bits than an id may have; so have ids
 * of u64 from 2^63 on. Numbered in sidecars, so a new one comes last. */
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
uint32_t rp_token_bits(enum rp_token_type type);  /* of an id: without the sign */

#define RP_EOS_NONE (-1)
/* Sidecar hashes cover blocks of this many bytes; checked reads are rounded to it. */
#define RP_BLOCK_BYTES 4096u
/* The name of a column, with its NUL. */
#define RP_COLUMN_BYTES 32u

/* What the user says about one source. Paths are files, URLs (object/url.h), Megatron prefixes, or
 * directories/globs that the config module has already expanded, in the canonical order (sorted
 * bytewise within one pattern). */
struct rp_source_spec {
    const char *name;
    uint64_t weight; /* only carried */
    const char *const *shards;
    uint32_t shard_count;
    enum rp_format format;
    enum rp_token_type type; /* NONE = from the file */
    int64_t eos;             /* RP_EOS_NONE = not declared */
    const char *column;      /* of token ids, where a file has several; NULL = not declared */
    struct rp_mask_choice mask;
    bool drop_untrained;   /* documents without spans count as empty */
    const char *documents; /* the part of them that is used (range.h); NULL = all */
};

/* Asked on the opening thread, possibly several times, before what may take long: answers of a
 * store, a walk over a shard that has no sidecar. A code below 0, with its error, ends the opening.
 */
struct rp_corpus_gate {
    int (*pass)(void *context, struct rp_error *error);
    void *context;
};

struct rp_corpus_spec {
    const struct rp_source_spec *sources;
    uint32_t source_count;
    const char *index_dir;   /* searched for sidecars first; NULL = beside the shard only */
    const char *index;       /* of all sources, whose shards are then the patterns of the index;
                                NULL = every shard is opened */
    const char *cache_dir;   /* for indexes and sidecars of URLs; NULL = as object/remote.h says */
    bool allow_missing_data; /* with its sidecar there, a missing token file is a warning */
    const struct rp_corpus_gate *gate; /* NULL = none */
};

struct rp_corpus;
struct rp_source; /* one source, passed to the plan as its `lengths` */

/** Open every index, check sizes, compute fingerprints. Formats that need a scan of all tokens
 * (RAW, NPY, LLMC) need a sidecar; without one this returns -RP_E_FORMAT with the hint `ringpack
 * index …` — unless the file is small (<= 256 MiB), when it is scanned in memory. Of the others,
 * more than 16 Mi documents in a shard need one. Errors name path, field, expected and found. */
RP_MUST_CHECK int rp_corpus_open(struct rp_corpus **corpus_out, const struct rp_corpus_spec *spec,
                                 struct rp_error *error);
void rp_corpus_close(struct rp_corpus *corpus);

uint32_t rp_corpus_source_count(const struct rp_corpus *corpus);
const struct rp_source *rp_corpus_source(const struct rp_corpus *corpus, uint32_t source);
const char *rp_source_name(const struct rp_source *source);
uint64_t rp_source_documents(const struct rp_source *source);
uint64_t rp_source_tokens(const struct rp_source *source); /* in all its documents */

uint32_t rp_source_shards(const struct rp_source *source);

/* Some of its shards, and what their tokens are in number and bytes. */
struct rp_source_part {
    uint64_t tokens, bytes;
    uint32_t shards;
};
struct rp_source_part rp_source_whole(const struct rp_source *source);
/** Its shards that have no sidecar, so that nothing verifies them. */
struct rp_source_part rp_source_unverified(const struct rp_source *source);

/** The largest token id of a source, as far as indexes know it; 0 if none does.
 * It walks over the shards. */
uint64_t rp_source_token_max(const struct rp_source *source);

/** Tokens of a document, or UINT64_MAX when its index entry is damaged (outside the file,
 * negative). Signature fits struct rp_plan_source.length: `source` is a const struct rp_source *.
 * O(1) memory, a few ns: no lock, no syscall. */
uint64_t rp_source_length(const void *source, uint64_t document);

/** The same for many documents. Signature fits struct rp_plan_source.length_many. */
void rp_source_length_many(const void *source, const uint64_t *documents, uint32_t count,
                           uint64_t *tokens);

/** Say exactly what is wrong with a document for which rp_source_length returned UINT64_MAX. */
int rp_source_explain(const struct rp_source *source, uint64_t document, struct rp_error *error);

/* Where a document's tokens lie. */
struct rp_extent {
    uint32_t shard;       /* number of the shard in the corpus */
    uint32_t width;       /* bytes a token */
    uint64_t byte_offset; /* of the document's first token in the shard's token file */
    uint64_t tokens;
};
/** The extent of a document, or -RP_E_CORRUPT with what rp_source_explain says. Also for a document
 * of which rp_source_length gave a length: the index may have been overwritten since. */
RP_MUST_CHECK int rp_source_extent(const struct rp_source *source, uint64_t document,
                                   struct rp_extent *extent, struct rp_error *error);

/** Prefetch the index entry of a document whose extent will be asked for next. */
void rp_source_expect_extent(const struct rp_source *source, uint64_t document);

/** Where a document comes from: the token file, and *row_out, which document of it this is: the row
 * of a table, the document of a Megatron index. The string belongs to the corpus. */
const char *rp_source_provenance(const struct rp_source *source, uint64_t document,
                                 uint64_t *row_out);

/** Whether the run uses a mask of this source. Without one, every token is trained. */
bool rp_source_has_mask(const struct rp_source *source);

/** Whether a document has a trained token: 1, 0, or negative where the tables are damaged. Of a
 * source that has a mask. */
int rp_source_has_span(const struct rp_source *source, uint64_t document);

/** Its mask: "none", "labels", "loss_mask (ignore, next), drop_untrained". */
void rp_source_mask_text(const struct rp_source *source, char *text, size_t bytes);

/** The spans of a part of a document, as rp_spans_cut. Of a source that has a mask. -RP_E_CORRUPT
 * where the sidecar's tables are damaged. */
RP_MUST_CHECK int rp_source_spans(const struct rp_source *source, const struct rp_part *part,
                                  struct rp_span *out, uint32_t *count_out, struct rp_error *error);

/* One token file. Strings and hashes belong to the corpus. */
struct rp_shard {
    const char *path; /* of the token file, or its URL as people see it */
    /* Of an object in a store: what to open, which may hold a secret, and what identifies its
     * content ("" = nothing does). NULL: it is a file. */
    const char *url, *identity;
    uint64_t bytes; /* of the token file */
    uint32_t source;
    enum rp_token_type type;
    const uint64_t *block_hashes; /* XXH3-64 of each block; NULL without a sidecar */
    uint64_t block_count;
    uint64_t documents, tokens;
    /* At open; all zero if the token file was missing. Of a listed shard: bytes and modification
     * time, and the rest is zero, because the file was not opened. */
    struct rp_stamp stamp;
    const struct rp_tokenizer_id *tokenizer; /* NULL: not known */
    bool is_listed;        /* it is known from the corpus index alone, and was not opened */
    uint64_t idx_mtime_ns; /* of its .idx when it was listed; 0: not known */
    const struct rp_index_segment *segment; /* that has its documents */
};
uint32_t rp_corpus_shard_count(const struct rp_corpus *corpus);
const struct rp_shard *rp_corpus_shard(const struct rp_corpus *corpus, uint32_t shard);
/** What tells the object of a shard from others, without secrets: rp_url_id; "" if it is a file.
 * The caller frees it; NULL when out of memory. */
char *rp_corpus_object_id(const struct rp_shard *shard);

/** The index of the whole corpus, or NULL: its shards were opened. */
const char *rp_corpus_index_path(const struct rp_corpus *corpus);
/** The bytes of all shards; of those that are files, not objects in stores; how many files there
 * are; the bytes of the widest token; the first shard that is an object,
 * or NULL. */
uint64_t rp_corpus_bytes(const struct rp_corpus *corpus);
uint64_t rp_corpus_file_bytes(const struct rp_corpus *corpus);
uint32_t rp_corpus_file_count(const struct rp_corpus *corpus);
uint32_t rp_corpus_widest(const struct rp_corpus *corpus);
const struct rp_shard *rp_corpus_first_object(const struct rp_corpus *corpus);

/** -RP_E_CHANGED, with what changed, if the open file is not what it was by *known, which begins as
 * shard->stamp: size, modification time or change time. A file that got or lost a name (it was
 * linked to, or replaced by another of its name) has a new change time for that, which is then in
 * *known: a write whose modification time was set back in the same moment would be missed. */
RP_MUST_CHECK int rp_shard_check(const struct rp_shard *shard, struct rp_stamp *known, int fd,
                                 struct rp_error *error);

/** Check the indexes and sidecars that were asked for a length or an extent since the last check:
 * are they what was opened? One whose stamp differs (touched, linked to, overwritten) is compared
 * with its hash and from then on kept in memory; one that differs, or whose hash nobody knows (an
 * .idx above 64 MiB without a sidecar), is -RP_E_CHANGED: what was planned since the last check may
 * be wrong. By one thread. */
RP_MUST_CHECK int rp_corpus_look(const struct rp_corpus *corpus, struct rp_error *error);

/** What the spans of a shard were made of; NULL: the run uses none of it. Not of a listed shard. */
const struct rp_mask_origin *rp_shard_mask(const struct rp_shard *shard);

/** A block differs from its hash. -RP_E_CORRUPT if that is because the sidecar is damaged, 0 if it
 * is not. */
RP_MUST_CHECK int rp_shard_check_sidecar(const struct rp_shard *shard, struct rp_error *error);

/* Fingerprints do not depend on paths or times. The sampled one is over sizes, the index (whole up
 * to 64 MiB, sampled above) and 64 blocks of every shard; the full one exists when every shard has
 * a sidecar and covers every byte. Of an object in a store the sidecar gives the hashes of the
 * blocks, so that a copy on a disk has the same fingerprints; without one, its ETag takes their
 * place. */
struct rp_fingerprint {
    struct rp_hash128 sampled, full; /* full is zero when not known */
};
struct rp_fingerprint rp_corpus_fingerprint(const struct rp_corpus *corpus);
/** What made the ids of the corpus, where a sidecar knows it: one tokenizer, or it is refused. */
const struct rp_tokenizer_id *rp_corpus_tokenizer(const struct rp_corpus *corpus);
/** "full (index)", or "sampled (N of M shards have no sidecar; …)". */
void rp_corpus_fingerprint_text(const struct rp_corpus *corpus, char *text, size_t bytes);

/* What a path is, and why we think so (ringpack inspect). */
struct rp_inspection {
    enum rp_format format;
    enum rp_token_type type;
    int64_t eos; /* RP_EOS_NONE where the format needs none */
    char why[256];
    char column[RP_COLUMN_BYTES]; /* of the token ids; empty where the format has none */
    uint64_t bytes, tokens, documents, empty_documents;
    uint64_t damaged_documents; /* whose length rp_source_length would not give */
    uint64_t length_min, length_max;
    uint64_t length_histogram[65]; /* [b]: documents whose length has b significant bits */
    uint64_t token_max;            /* largest token id; UINT64_MAX if not scanned */
    bool has_sidecar;
    char mask[64];           /* as rp_source_mask_text; empty: it has none, or none is wanted */
    uint64_t trained_tokens; /* by that mask */
    uint64_t untrained_documents; /* with tokens, none of them trained */
    struct rp_tokenizer_id tokenizer;
    struct rp_fingerprint fingerprint;
};
/** Inspect one shard. `hints` may be NULL; its name, weight and shards are ignored.
 *  scan_tokens: read every token for token_max (memory speed); otherwise only the index. An object
 *  in a store is fetched for that, into index_dir or the temporary directory, and removed again. */
RP_MUST_CHECK int rp_inspect(const char *path, const struct rp_source_spec *hints,
                             const char *index_dir, bool scan_tokens,
                             const struct rp_progress *progress, struct rp_inspection *inspection,
                             struct rp_error *error);

struct rp_index_build_options {
    const struct rp_source_spec *hints; /* as in rp_inspect */
    const char *index_dir; /* NULL: the sidecar is beside the shard, or that is searched for */
    /* The sidecar goes there, and is not synced: after a crash of the machine it may be there and
     * be damaged. NULL: where sidecars are searched for. */
    const char *scratch_path;
    /* The sidecar gets no name: it becomes *whole, which the caller publishes, mostly together with
     * others (base/new_files.h). NULL: it is published. */
    struct rp_new_file *whole;
    const struct rp_progress *progress;
};
/** Build the sidecar of one shard: document table where the format has none, a hash of every block,
 * the content hash, the largest token id. Reads the token file once, at memory speed, and replaces
 * the sidecar atomically. An object in a store is fetched into index_dir, which must be given, and
 * removed from there again. options NULL: all are zero. */
RP_MUST_CHECK int rp_index_build(const char *path, const struct rp_index_build_options *options,
                                 struct rp_error *error);

const char *rp_format_name(enum rp_format format);
const char *rp_token_type_name(enum rp_token_type type); /* "u16" */
bool rp_format_parse(const char *text, enum rp_format *format);
bool rp_token_type_parse(const char *text, enum rp_token_type *type);

#endif
