/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h — a reader finds the documents of files of one format.
 *
 * A reader is an indexer. It emits (first byte, tokens) for each document of a file once, into one
 * table (table.h), from memory at a start or into a sidecar by `ringpack index`. Tokens are later
 * read from the file in place, by the same path for every format, so a reader can make a start slow
 * and never a batch. README.md says how to write one, and readers.h lists them. */
#ifndef RP_CORPUS_READER_H
#define RP_CORPUS_READER_H

#include "corpus/corpus.h"
#include "corpus/folder.h"
#include "corpus/mask.h"

/* A file that was opened to find its format. */
struct rp_probe {
    const char *path;
    int fd;
    uint64_t bytes;
    uint8_t head[16]; /* its first bytes, then zeros */
    bool is_declared; /* the file was declared to have this reader's format */
};

/* The declared content of a file. */
struct rp_reader_options {
    enum rp_token_type type; /* NONE = not declared */
    int64_t eos;             /* RP_EOS_NONE = not declared */
    const char *column;      /* NULL = not declared */
    struct rp_mask_choice mask;
    /* At a start: the bytes of the file that walk may read in addition to metadata and offsets, so
     * that a start stays fast. A larger file needs a sidecar. */
    uint64_t read_bytes_max;
    const struct rp_progress *progress;
};

/* Facts that all documents of a file share. */
struct rp_layout {
    enum rp_token_type type;
    int64_t eos;                  /* RP_EOS_NONE if the format needs none */
    uint64_t token_offset;        /* byte of the first token, if tokens are contiguous; else 0 */
    char column[RP_COLUMN_BYTES]; /* empty if the format has none */
    bool has_spans;               /* every document comes with its spans */
    struct rp_mask_origin mask;   /* the origin of the spans */
};

/* The output of a reader. */
struct rp_sink {
    const char *path; /* the token file, and its size */
    uint64_t file_bytes;
    struct rp_layout layout;
    uint64_t documents, tokens; /* so far */
    uint64_t token_max;         /* the largest id, by readers that read every token; else
                                   UINT64_MAX */
    /* Keep one document, which has been checked. */
    int (*keep)(void *context, uint64_t byte, uint32_t tokens, const struct rp_span *spans,
                size_t span_count, struct rp_error *error);
    /* By readers that read every token: each piece of the file in order, from its first byte to its
     * last. A piece begins at a multiple of RP_BLOCK_BYTES. May be NULL. */
    int (*piece)(void *context, const uint8_t *bytes, size_t byte_count, struct rp_error *error);
    void *context;
};

/** Begin the output: one call before the first document. -RP_E_FORMAT if another type was declared.
 */
RP_MUST_CHECK int rp_sink_begin(struct rp_sink *sink, const struct rp_layout *layout,
                                const struct rp_reader_options *options, struct rp_error *error);
/** Add the next document. `byte` may have any alignment. Its spans keep the rules of spans.h; NULL
 * if the layout has none. Refuses a document outside the file. */
RP_MUST_CHECK int rp_sink_document(struct rp_sink *sink, uint64_t byte, uint64_t tokens,
                                   const struct rp_span *spans, size_t span_count,
                                   struct rp_error *error);

/** -RP_E_FORMAT if a type was declared and another one was found. */
RP_MUST_CHECK int rp_readers_check_type(const char *path, enum rp_token_type declared,
                                        enum rp_token_type found, struct rp_error *error);

/** -RP_E_CORRUPT unless the file has whole tokens of this type only. */
RP_MUST_CHECK int rp_readers_check_width(const struct rp_probe *probe, enum rp_token_type type,
                                         struct rp_error *error);

/* The name of a companion file: `add` replaces `cut` at the end of the token file's name; without
 * `cut` at its end, there is no companion. A `cut` of "/" is the whole name of the file. */
struct rp_companion {
    const char *cut, *add;
};

struct rp_reader {
    enum rp_format format;
    const char *title;   /* in messages: "a numpy .npy file" */
    const char *folders; /* contents of such a folder, in messages; NULL: no folders */
    bool reads_tokens;   /* walk reads every token, so a large file needs a sidecar */
    bool claims_by_name; /* claim reads names and not bytes, so a sidecar takes precedence */
    bool holds_no_mask;  /* the format has no mask, not even in a companion file */

    /* Companion files without which walk fails, or knows less; ends with a NULL `add`. NULL:
     * none. */
    const struct rp_companion *companions;
    /* As `companions`, but `add` replaces `cut` at the beginning of the name. */
    const struct rp_companion *companions_by_beginning;

    /** 1: the file has this format, and `why` gives the evidence. 0: it has another one. Negative:
     * the file belongs to this family of formats but cannot be read in place, or it contradicts its
     * declaration; the error says how to continue. NULL: format.c finds the format. */
    int (*claim)(const struct rp_probe *probe, char why[256], struct rp_error *error);

    /** 1: the folder is a dataset of this format, and its token files were added in their order.
     * 0: it is not. NULL: folders have no meaning. */
    int (*expand)(const struct rp_folder *folder, struct rp_paths *files, struct rp_error *error);

    /** Emit every document of the file, in order. NULL: the format has an index that is mapped as
     * it is. */
    int (*walk)(const struct rp_probe *probe, const struct rp_reader_options *options,
                struct rp_sink *sink, struct rp_error *error);
};

/* Each in its own file of readers/. */
extern const struct rp_reader rp_reader_arrow, rp_reader_datatrove, rp_reader_litdata,
    rp_reader_llmc, rp_reader_mds, rp_reader_megatron, rp_reader_npy, rp_reader_olmo, rp_reader_raw;

/* ---- for the readers ------------------------------------------------------------------------ */

/** -RP_E_FORMAT: the file contradicts its declaration, or cannot be read in place. */
int rp_readers_refuse(const struct rp_probe *probe, const char *found, const char *hint,
                      struct rp_error *error);
/** The same, with the command that converts the file as the hint. */
int rp_readers_convert(const struct rp_probe *probe, const char *found, struct rp_error *error);

/* How well a name fits a column of token ids, from worst to best: a reader takes the best column,
 * and refuses two of equal rank. */
enum rp_id_rank { RP_ID_NONE, RP_ID_ANY, RP_ID_TOKENS, RP_ID_INPUT_IDS, RP_ID_DECLARED };
/** `declared` is the name that the user gave; NULL: none. */
enum rp_id_rank rp_readers_rank(const char *name, const char *declared);

#endif
