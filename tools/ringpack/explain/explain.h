/* SPDX-License-Identifier: Apache-2.0 */
/* explain.h — `ringpack explain`: the contents of rows of a stream, for people and for programs.
 *
 * Flow: the command line names a stream (origin.h) and a query (cmd_explain.c). The plan is
 * walked (walk.h); each row becomes a struct rp_explained_row (rows.c), with the text of its
 * fragments where a tokenizer is known (texts.c, decoder.c), and is handed to a printer: table.c,
 * machine.c (JSON and CSV) or page.c. Only the corpus, its plan and its files are needed. */
#ifndef RP_TOOLS_EXPLAIN_H
#define RP_TOOLS_EXPLAIN_H

#include <jansson.h>
#include <stdio.h>

#include "corpus/sides.h"
#include "explain/origin.h"

/* The entries of a side column that a fragment has. */
struct rp_explained_entries {
    const char *name;
    const char *file;     /* NULL: a number of the document */
    uint64_t byte_offset; /* the entry of the fragment's first own token, in the file */
    uint32_t bytes;       /* size of an entry */
    const struct rp_tokenizer_id *tokenizer; /* whose ids the entries are; NULL: none declared */
    bool is_real;
    double real; /* a number of the document, by its type */
    int64_t integer;
};

/* A fragment, and where it comes from. Strings belong to the corpus, text and ids to the row. */
struct rp_explained {
    struct rp_fragment fragment;
    uint32_t number;      /* in the row */
    uint32_t place;       /* its first token in the row */
    uint64_t epoch;       /* its source's, from 0 */
    const char *source;   /* name */
    const char *file;     /* the file of its tokens */
    uint64_t byte_offset; /* its first token's, in the file */
    uint64_t file_row;    /* which document, or row of a table, of the file it is a part of */
    struct rp_explained_entries columns[RP_SIDES_MAX];
    uint32_t column_count;
    char *text;    /* UTF-8; NULL = not known */
    uint32_t *ids; /* first token ids; NULL = not known */
    uint32_t id_count;
    bool is_cut;  /* the text is not all of the fragment */
    bool matches; /* the search is for this one */
};

struct rp_explained_row {
    uint64_t row;
    struct rp_step_place place;
    bool has_position, is_past; /* before the position of the checkpoint or engine */
    bool is_dropped;            /* drop_last: it is of the last step, which is not full */
    bool is_withheld;           /* version 2: planned, and delivered without fragments (`skip`) */
    bool has_stage;
    uint32_t stage, seq_len; /* version 2: declared stage; places */
    uint32_t tokens, count;
    const struct rp_explained *parts; /* [count] */
};

/* A document that was looked for, in one epoch. */
struct rp_explained_document {
    uint32_t source;
    const char *name, *file;
    uint64_t document, tokens, byte_offset, file_row, epoch;
    uint64_t rows;   /* in how many rows it is */
    const char *why; /* it is in none: why; else NULL */
};

/* The facts that every printer has. */
struct rp_explain_head {
    const struct rp_config *config;
    const struct rp_steps *steps;
    const char *title; /* "step 3", "rows 5 to 7", ... */
    const char *text;  /* that was looked for; NULL = none */
    struct rp_hash128 identity;
    uint32_t seq_len, most_seq_len; /* places of the shortest and the longest rows */
};

/* Prints to `out`. Rows come in the order of the search. */
struct rp_printer {
    void (*begin)(struct rp_printer *printer);
    void (*row)(struct rp_printer *printer, const struct rp_explained_row *row);
    void (*document)(struct rp_printer *printer, const struct rp_explained_document *document);
    void (*end)(struct rp_printer *printer);
    FILE *out;
    const struct rp_explain_head *head;
    bool has_begun;
    uint64_t rows, documents; /* printed so far */
    json_t *kept;             /* the JSON printer's */
    uint32_t columns;         /* a table's */
};
extern const struct rp_printer rp_table_printer, rp_json_printer, rp_csv_printer, rp_page_printer;

/* decoder.c: a process that turns ids into text */

struct rp_decoder {
    pid_t child; /* 0: bytes, which need none */
    int socket;
};
/** `tokenizer` is "bytes" or the path of a tokenizer.json. */
RP_MUST_CHECK int rp_decoder_open(struct rp_decoder *decoder, const char *tokenizer,
                                  struct rp_error *error);
void rp_decoder_close(struct rp_decoder *decoder);
/** The text of ids: valid UTF-8, with U+FFFD for invalid bytes, and a NUL after it. The caller
 * frees it. */
RP_MUST_CHECK int rp_decoder_decode(struct rp_decoder *decoder, const uint32_t *ids, uint32_t count,
                                    char **text_out, struct rp_error *error);

/* texts.c: the ids and the text of fragments */

#define RP_DECODERS_MAX 16u

/* The hash of a tokenizer file, which is computed once. */
struct rp_tokenizer_hash {
    char *path;
    char hex[RP_HASH_HEX_BYTES]; /* empty: the file cannot be read */
};

struct rp_texts {
    const struct rp_corpus *corpus;
    const char *tokenizer; /* --tokenizer; NULL = the tokenizer that the shards name */
    struct rp_row_form form;
    struct rp_decoder decoders[RP_DECODERS_MAX];
    char *decoder_names[RP_DECODERS_MAX];
    size_t decoder_count;
    struct rp_tokenizer_hash hashes[RP_DECODERS_MAX];
    size_t hash_count;
    uint32_t shard;    /* the one that is open */
    int fd;            /* -1: none */
    int shard_decoder; /* its decoder; -1: not known */
    bool has_warned, has_warned_tokenizer;
    bool is_without; /* the tokenizer that a shard names cannot be used here */
    uint32_t *ids;   /* the last read fragment's */
    size_t id_capacity;
};
/** `form`: of the rows that fragments are from. */
void rp_texts_open(struct rp_texts *texts, const struct rp_corpus *corpus, const char *tokenizer,
                   const struct rp_row_form *form);
void rp_texts_close(struct rp_texts *texts);
/** Read a fragment into texts->ids, with its inserted tokens. Returns 1; 0 if its file cannot be
 * read here, which is reported once. */
RP_MUST_CHECK int rp_texts_read(struct rp_texts *texts, const struct rp_fragment *fragment,
                                struct rp_error *error);
/** The text of the last read: 1 with *text_out, which the caller frees; 0 if no tokenizer is known.
 */
RP_MUST_CHECK int rp_texts_text(struct rp_texts *texts, uint32_t length, char **text_out,
                                struct rp_error *error);

/* last_step.c */

struct rp_last_step {
    struct rp_plan *plan; /* NULL: none was needed yet */
    void *token;
    uint64_t whole_until; /* steps that end at this row or before it are full */
};
/** Whether drop_last leaves out the row that rp_walk_next has just planned: 1, 0 or an error. */
RP_MUST_CHECK int rp_last_step_drops(struct rp_last_step *last, const struct rp_walk *walk,
                                     const struct rp_steps *steps, uint64_t row,
                                     struct rp_error *error);
void rp_last_step_free(struct rp_last_step *last);

/* rows.c */

#define RP_DROPPED_TEXT "not delivered (drop_last)"
#define RP_WITHHELD_TEXT "withheld (skip)"

/* Makes rows; `parts` is used again for each. */
struct rp_row_maker {
    const struct rp_walk *walk;
    const struct rp_steps *steps;
    const struct rp_origin *origin;
    struct rp_texts *texts;     /* NULL = without text */
    const char *wanted;         /* a text that fragments must contain; NULL = all match */
    const struct rp_draw *draw; /* or a document whose parts match; NULL = all match */
    uint64_t limit;             /* characters of text, or ids, of a fragment */
    struct rp_explained *parts;
    uint32_t part_count;
    size_t capacity;
    struct rp_last_step last;
};
/** Explain the row that rp_walk_next has just planned. *out is valid until the next call. Returns
 * how many fragments match. */
RP_MUST_CHECK int rp_explain_row(struct rp_row_maker *maker, const struct rp_row *row,
                                 struct rp_explained_row *out, struct rp_error *error);
void rp_explain_free(struct rp_row_maker *maker);

/* words.c: text of strangers, for a terminal and for a page */

/** Write the characters of `text` that fit into `columns` of a terminal; control characters and
 * those that change the direction of a line are written as escapes, invalid UTF-8 as U+FFFD.
 * Returns the columns used. */
uint32_t rp_words_terminal(FILE *out, const char *text, uint32_t columns);
/** Write a text into a page, also into an attribute in double quotes. */
void rp_words_html(FILE *out, const char *text);
/** The last `bytes` bytes of a path that is too long for a line, or less, so that no character is
 * cut. */
const char *rp_words_tail(const char *path, size_t bytes);
#define RP_COLUMN_WORDS_BYTES 512u
/** A side column in one line: its name, and the place of its entries or its number. The beginning
 * of a long path is left out, so that the line has about `bytes` bytes, at most 400. */
void rp_words_column(const struct rp_explained_entries *column, size_t bytes,
                     char words[RP_COLUMN_WORDS_BYTES]);
/** The end of a text that follows its first `limit` characters. */
const char *rp_words_after(const char *text, uint64_t limit);
/** Copy a text, with U+FFFD for invalid UTF-8. NULL when out of memory. */
char *rp_words_utf8(const char *text, size_t bytes);

#endif
