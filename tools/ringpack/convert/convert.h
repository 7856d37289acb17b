/* SPDX-License-Identifier: Apache-2.0 */
/* convert.h — `ringpack convert`: files of many forms become one Megatron dataset.
 *
 * Flow: inputs are expanded to a list of files in canonical order (inputs.c, listings.c), each with
 * a form (forms.c). Consecutive files make a task (tasks.c); threads take tasks (pool.c) and
 * convert the files of each (task.c) to a part: text and JSONL here (text.c, jsonl.c, trained.c),
 * with a worker process for a tokenizer (tokenizer.c); Megatron datasets here (megatron.c); every
 * other form by a worker process with the form's own library (documents.c). The parts are joined in
 * order (join.c). A single task writes the output itself. sides.h has side columns.
 *
 * A part is a Megatron dataset in PREFIX.parts, with a record (parts.c) of its hashes and of its
 * inputs and options. A record is written when its part is on the disk; a part whose record fits
 * is not made again. So a conversion continues after a kill, and machines can share one.
 *
 * The result depends only on the content and the order of the inputs: not on time, locale,
 * threads, the boundaries of tasks or who converted them. */
#ifndef RP_TOOLS_CONVERT_H
#define RP_TOOLS_CONVERT_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/file.h"
#include "base/hash.h"
#include "convert/sides.h"
#include "corpus/gunzip.h"
#include "corpus/mask.h"
#include "corpus/spanfile.h"
#include "corpus/tokenizer_id.h"
#include "object/fetch.h"

/* Returned by functions that say so; neither is an error. */
enum {
    RP_CONVERT_ENOUGH = 1, /* --max-tokens is reached: no more documents */
    RP_CONVERT_WIDER = 2,  /* an id does not fit u16: convert again as i32 */
};

/** The end of a message after an interrupt (interrupt.h). */
#define RP_CONVERT_IS_SAFE "the output was not written"

/** The hint for bad input. */
#define RP_CONVERT_MEND "mend or remove it, then type the same command again"
/** The same of RP_READ_JSON. */
#define RP_CONVERT_IS_VALUE                                                                        \
    "`.json` is read as JSON Lines: `--as text` makes a document of each file, `--glob` leaves "   \
    "files out, `jq -c` writes a value on one line"

/* forms.c */

enum rp_reading {
    RP_READ_TEXT,
    RP_READ_JSONL,
    RP_READ_JSON, /* by its name it may be one value: it is read as lines, or is an error */
    RP_READ_MEGATRON,
    RP_READ_WORKER,  /* a worker process reads it */
    RP_READ_REFUSED, /* it is never read: `refusal` says why */
};
struct rp_form {
    const char *name;
    enum rp_reading reading;
    const char *suffixes[10]; /* suffixes of file names; NULL ends the list */
    const char *infix; /* a name with it has this form too ("name.tfrecord-00000-of-00002") */
    const char *refusal;
};
/** By the name of a file; text if no other form matches. */
const struct rp_form *rp_form_of(const char *path);
/** By its own name; NULL if no readable form has it. */
const struct rp_form *rp_form_named(const char *name);

/* input_list.c, listings.c, inputs.c */

struct rp_input {
    char *path; /* or an object's name: the URL without the query */
    char *url;  /* an object's, in a store; NULL: it is a file */
    uint64_t bytes;
    uint64_t mtime_ns; /* object: identity of its content; several files: a hash */
    const struct rp_form *form;
    uint64_t begin, end; /* piece: it has the lines, or row groups, that begin there; else 0 */
    bool is_folder;      /* it, or a file that stands for its folder */
    bool named; /* by the user, so it must be readable; one found in a directory may be skipped */
};
struct rp_inputs {
    struct rp_input *files;
    size_t count, capacity;
    uint64_t bytes;
    uint64_t unreadable;      /* directories that could not be listed */
    uint64_t links;           /* links to files, left out: their content may be there as well */
    uint64_t hidden;          /* files and directories whose names begin with a dot, left out */
    uint64_t beside;          /* text and .json in a directory of another form, left out */
    const struct rp_form *as; /* the form of all of them; NULL: by name */
    const char *const *globs; /* select among the files of directories, by base name, or by path */
    size_t glob_count;        /* below the directory if they contain a slash; 0: all of them */
};
/** Add one file to the list. */
RP_MUST_CHECK int rp_inputs_add_file(struct rp_inputs *inputs, const char *path,
                                     const struct rp_form *form, bool named,
                                     struct rp_error *error);
/** Add an object of a store; `url` may hold a secret. */
RP_MUST_CHECK int rp_inputs_add_object(struct rp_inputs *inputs, const char *url,
                                       const struct rp_remote_stat *stats,
                                       const struct rp_form *form, bool named,
                                       struct rp_error *error);
/** Drop the files of text and .json from `first` on if there are others: next to files of records
 * they are a README, a licence or a description, and no document of the corpus. */
void rp_inputs_leave_out_text(struct rp_inputs *inputs, size_t first);
/** Do the globs select a file, whose path below its directory is this? */
bool rp_inputs_select(const struct rp_inputs *inputs, const char *below);
void rp_inputs_release(struct rp_inputs *inputs);

/* pieces.c */

/** The inputs. Files that can be read from any place on are cut into pieces of this size. A piece
 * owns no memory. The caller frees the list. NULL: no memory. */
struct rp_input *rp_inputs_cut(const struct rp_inputs *inputs, uint64_t piece_bytes, size_t *count);
/** Lines that begin before a piece. */
RP_MUST_CHECK int rp_inputs_lines_before(const struct rp_input *input, uint64_t *lines,
                                         struct rp_error *error);

/** Add a file, or the files of a directory: those that its own listing names, in that order, or
 * every regular file below it, sorted bytewise by path. */
RP_MUST_CHECK int rp_inputs_add(struct rp_inputs *inputs, const char *path, struct rp_error *error);

/** Add the files that a directory's own listing names (index.json of MDS and litData, state.json of
 * Hugging Face datasets). 1 = done, 0 = it has none. */
RP_MUST_CHECK int rp_inputs_add_listing(struct rp_inputs *inputs, const char *directory,
                                        struct rp_error *error);

/* A consumer of the files of such a list. */
struct rp_named_files {
    const char *directory; /* for messages */
    /* Whether the directory has this name: a shard may be there compressed, or as it is. */
    bool (*is_there)(void *context, const char *name);
    int (*add)(void *context, const char *name, const struct rp_form *form, struct rp_error *error);
    void *context;
};
/** Pass on the files that the text of a list `file` (index.json, state.json) names. 1 = done, 0 =
 * it names none. */
RP_MUST_CHECK int rp_named_files_read(const struct rp_named_files *listing, const char *file,
                                      const char *text, size_t bytes, struct rp_error *error);

/* remote_inputs.c */

/** rp_inputs_add for a URL: an object, a pattern of objects in a bucket, or a folder, which ends
 * with a slash. Subfolders are not read. */
RP_MUST_CHECK int rp_inputs_add_url(struct rp_inputs *inputs, const char *url,
                                    struct rp_error *error);

/* output.c */

/* The trained tokens of a document, as runs that keep the rules of spans.h, except that the
 * first may begin at token 0: after a BOS, that token has a label. */
struct rp_trained {
    const struct rp_mask_origin *origin; /* NULL: there is no mask, and all tokens are trained */
    const struct rp_span *runs;
    uint32_t count;
};

/* Token ids of a document as they came: `width` bytes each, 2 or 4. */
struct rp_ids {
    const void *at;
    uint32_t width;
    size_t count;
    size_t padding; /* ids after them that the line has and its attention mask excludes */
    struct rp_trained trained;
    const struct rp_entries *sides; /* entries of each wanted column; NULL: they are in the queue */
    bool has_ends;                  /* none are put around it */
};

/* Ids that are put around every document; -1: none. */
struct rp_ends {
    int64_t bos, eos;
};

/* Bytes of an index: its header, a length, a position and a number for each document, and one
 * more. */
#define RP_OUTPUT_INDEX_BYTES(documents) (34 + 20 * (uint64_t)(documents) + 8)

#define RP_OUTPUT_IDS_NARROW 65499u /* ids below it fit u16: Megatron's own rule */

struct rp_output {
    struct rp_new_file tokens;
    char *token_path, *index_path;
    bool wide;    /* i32; u16 otherwise */
    bool replace; /* existing files */
    bool full;    /* all or nothing, under a name that users see: with the sidecar, and with */
    char *origin; /* the meaning of the ids, for PREFIX.tokens.json */
    uint8_t *buffer;
    size_t buffered;  /* bytes */
    int32_t *lengths; /* every document's */
    size_t documents, capacity;
    uint64_t token_count, token_max; /* the sink keeps the latter */
    struct rp_hasher hasher;         /* hashes the tokens written so far */
    char *span_path;
    struct rp_spanfile_writer spans; /* documents before spans.documents */
    bool has_spans;                  /* a document has a mask; those without are trained whole */
    struct rp_span *scratch;
    size_t scratch_capacity;
    const struct rp_wanted_sides *wanted;
    struct rp_side_writer *sides;             /* [wanted->count], each from the first document on */
    struct rp_hash128 token_hash, index_hash; /* once it is published */
};
/** Begin PREFIX.bin and PREFIX.idx. Existing files are refused unless `replace`. A part of a
 * conversion stays as it is opened; for the final output, `full` and `origin` are set then. */
RP_MUST_CHECK int rp_output_open(struct rp_output *output, const char *prefix, bool wide,
                                 bool replace, const struct rp_wanted_sides *wanted,
                                 struct rp_error *error);
/** Append a document. Ends are not added where the document has them already. */
RP_MUST_CHECK int rp_output_add(struct rp_output *output, const struct rp_ids *ids,
                                struct rp_ends ends, struct rp_error *error);
/** Append many documents at once, unchanged: their lengths, and all of their tokens. */
RP_MUST_CHECK int rp_output_append(struct rp_output *output, const int32_t *lengths,
                                   size_t documents, const struct rp_ids *ids,
                                   struct rp_error *error);
/** The spans of a document that was added; in ascending order of documents. Documents without a
 * call are trained whole, if any document has a mask. -RP_E_FORMAT: the documents before had a mask
 * of another name. */
RP_MUST_CHECK int rp_output_mask(struct rp_output *output, size_t document,
                                 const struct rp_mask_origin *origin, const struct rp_span *spans,
                                 uint32_t count, struct rp_error *error);
/** Write the index, publish the files and, if the output is full, build the sidecar: all of them,
 * or none. */
RP_MUST_CHECK int rp_output_publish(struct rp_output *output, struct rp_error *error);
void rp_output_discard(struct rp_output *output);
/** While the returned descriptor is open, no other conversion publishes files in the directory of
 * PREFIX (parts_lock.c). */
RP_MUST_CHECK int rp_output_lock(const char *prefix, struct rp_error *error);

struct rp_hashed_file {
    uint64_t bytes; /* 0: there is no file */
    struct rp_hash128 hash;
};
/** The size and the hash of a whole file (hashed_file.c). */
RP_MUST_CHECK int rp_hash_file(const char *path, struct rp_hashed_file *file,
                               struct rp_error *error);

/* tokenizer_file.c: a tokenizer by the word of --tokenizer */

/** A folder stands for the tokenizer.json in it, whose path *name becomes; the caller frees *made.
 */
RP_MUST_CHECK int rp_tokenizer_find(const char **name, char **made, struct rp_error *error);
/** Its name for people: the folder's if the file is a tokenizer.json. The caller frees it; NULL: no
 * memory. */
char *rp_tokenizer_title(const char *path);
/** Its name and hash, as PREFIX.tokens.json and side columns have them. */
RP_MUST_CHECK int rp_tokenizer_identify(const char *name, struct rp_tokenizer_id *id,
                                        struct rp_error *error);

/* output_sides.c: its side columns, opened, ended, published and discarded with it */
RP_MUST_CHECK int rp_output_sides_open(struct rp_output *output, struct rp_error *error);
/** The entries of a document, and zeros or its number for the tokens that are put around it. */
RP_MUST_CHECK int rp_output_sides_add(struct rp_output *output, const struct rp_ids *ids,
                                      bool begin, bool end, struct rp_error *error);
/** Append the entries of many documents to column i. */
RP_MUST_CHECK int rp_output_side_append(struct rp_output *output, uint32_t i,
                                        const struct rp_entries *entries, struct rp_error *error);
RP_MUST_CHECK int rp_output_sides_end(struct rp_output *output, struct rp_error *error);
RP_MUST_CHECK int rp_output_sides_publish(struct rp_output *output, struct rp_error *error);
void rp_output_sides_unlink(const struct rp_output *output);
void rp_output_sides_discard(struct rp_output *output);
/** Refuse columns of the tokens PREFIX.bin that are there: all of them, or to `replace` the tokens
 * those that are not wanted. */
RP_MUST_CHECK int rp_output_sides_check(const char *prefix, const struct rp_wanted_sides *wanted,
                                        bool replace, struct rp_error *error);

/* The choice of a tokenizer. The strings stay the caller's. */
struct rp_tokenizer_choice {
    const char *name;      /* "bytes", or the path of a tokenizer.json */
    const char *eos, *bos; /* token ids, the texts of tokens, or NULL */
    bool special_tokens;   /* the name of one in a text becomes the token, and is no text */
    bool skip_bad;         /* bad rows that its process reads */
};

/* worker.c, spawn.c: a process that runs tools/python/ringpack/_convert/worker.py, which has the
 * protocol */

struct rp_worker {
    pid_t child; /* 0: none */
    int socket;
    char subject[256]; /* its present input, for messages */
    uint64_t vocab_size;
    int64_t eos, bos; /* -1: not known */
};
enum rp_frame_kind {
    RP_FRAME_TEXTS = 1, /* documents that were made of text */
    RP_FRAME_IDS,       /* documents that were ids before */
    RP_FRAME_END,       /* the end of a file */
    RP_FRAME_REFUSED,   /* never seen by callers: it becomes an error */
    RP_FRAME_CHATS,     /* documents that have the ends which their template gives them */
};
struct rp_frame {
    enum rp_frame_kind kind;
    uint32_t documents, width;
    uint32_t share;    /* done share of the file, in 2^-32 */
    uint32_t dropped;  /* texts that were too small */
    uint32_t special;  /* names of special tokens in texts */
    uint32_t bad;      /* rows that were skipped */
    uint32_t *lengths; /* [documents] */
    uint8_t *ids;
    struct rp_mask_origin origin; /* their mask's; without a name: no mask */
    uint32_t *run_counts;         /* [documents] */
    struct rp_span *runs;
    uint32_t side_count;
    struct rp_entries sides[RP_SIDES_MAX]; /* entries of all documents, in `side_data` */
    uint8_t *side_data[RP_SIDES_MAX];
};
enum rp_ask {
    RP_ASK_TEXTS = 1,
    RP_ASK_FILE,
    RP_ASK_PAIRS,       /* lines of prompt and completion */
    RP_ASK_CHAT_PAIRS,  /* the same, as messages */
    RP_ASK_CHATS,       /* lines of messages */
    RP_ASK_PREFERENCES, /* lines of chosen and rejected, maybe with a prompt */
    RP_ASK_CHAT_PREFERENCES,
};
/** As rp_tokenizer_open. */
RP_MUST_CHECK int rp_worker_open(struct rp_worker *worker, const struct rp_tokenizer_choice *choice,
                                 uint32_t threads, struct rp_error *error);
RP_MUST_CHECK int rp_worker_send(struct rp_worker *worker, const void *data, size_t bytes,
                                 struct rp_error *error);
/** Receive a frame, with its lengths and ids; rp_frame_release in any case. */
RP_MUST_CHECK int rp_worker_receive(struct rp_worker *worker, struct rp_frame *frame,
                                    struct rp_error *error);
void rp_frame_release(struct rp_frame *frame);
/** `at_once`: it may be in the middle of a file that is not needed. */
void rp_worker_close(struct rp_worker *worker, bool at_once);

/* decompress.c: one more process, for one file of text */

struct rp_plain {
    const char *path;      /* the caller's */
    struct rp_gunzip text; /* the file, or a pipe from the worker */
    int packed;  /* the file that the worker reads; its offset is how far the worker is. -1: none */
    pid_t child; /* 0: none */
};
/** Open a file for reading, from a byte of it on; one that is a gzip archive, or whose name ends in
 * .zst, is decompressed on the way. Close it in any case. */
RP_MUST_CHECK int rp_plain_open(struct rp_plain *plain, const char *path, uint64_t begin,
                                struct rp_error *error);
/** The next bytes, at most `bytes`. *got_out is 0 after the last one, unless the archive is damaged
 * or ends early. */
RP_MUST_CHECK int rp_plain_read(struct rp_plain *plain, void *to, size_t bytes, size_t *got_out,
                                struct rp_error *error);
/** Bytes of the file that are done, from `begin` on; 0: not known. */
uint64_t rp_plain_done(const struct rp_plain *plain);
void rp_plain_close(struct rp_plain *plain);

#define RP_WORKER_WORDS 6u
/** Start the worker script, with arguments (the first NULL ends them) after its name and these
 * descriptors as stdin and stdout. No module is imported from the current directory. */
RP_MUST_CHECK int rp_worker_spawn(pid_t *child, const char *const arguments[RP_WORKER_WORDS],
                                  int input, int output, struct rp_error *error);

/* tokenizer.c */

typedef int rp_sink(void *context, const struct rp_ids *ids, struct rp_error *error);

/** Hand every document of a frame to a sink; returns the sink's result. */
RP_MUST_CHECK int rp_frame_deliver(const struct rp_frame *frame, rp_sink *sink, void *context,
                                   struct rp_error *error);

struct rp_tokenizer {
    struct rp_tokenizer_choice choice; /* without a name it is not open */
    uint32_t threads;
    uint64_t vocab_size;
    int64_t eos, bos; /* -1: not known */
    rp_sink *sink;
    void *context;
    uint64_t special, bad;   /* counts of the frames of texts */
    struct rp_worker worker; /* started when it is needed; text becomes bytes without it */
    uint8_t *batch;          /* texts to the worker, not yet sent */
    size_t batch_bytes, batch_capacity;
    uint32_t batch_texts;
    enum rp_ask batch_ask;  /* their kind */
    const char *batch_path; /* lines: their file's */
    uint16_t *ids;
    size_t ids_capacity;
};
/** `threads` that it may use, 0 = as it likes. */
RP_MUST_CHECK int rp_tokenizer_open(struct rp_tokenizer *tokenizer,
                                    const struct rp_tokenizer_choice *choice, uint32_t threads,
                                    rp_sink *sink, void *context, struct rp_error *error);
/** Tokenise a text. Its tokens reach the sink now or later, in the order of the texts. Returns the
 * sink's result. */
RP_MUST_CHECK int rp_tokenizer_add(struct rp_tokenizer *tokenizer, const char *text, size_t bytes,
                                   struct rp_error *error);
/* A line of JSONL that the worker reads. `path` lives as long as the tokenizer. */
struct rp_chat {
    const char *path, *text;
    uint64_t line;
    size_t bytes;
    enum rp_ask ask;
};
/** The same for such a line. */
RP_MUST_CHECK int rp_tokenizer_add_chat(struct rp_tokenizer *tokenizer, const struct rp_chat *chat,
                                        struct rp_error *error);
/** Everything that was added has reached the sink. */
RP_MUST_CHECK int rp_tokenizer_flush(struct rp_tokenizer *tokenizer, struct rp_error *error);
/** Text that was added since the last flush never reaches the sink. */
void rp_tokenizer_forget(struct rp_tokenizer *tokenizer);
/** Its worker runs, and works on `subject`, which messages name. */
RP_MUST_CHECK int rp_tokenizer_worker(struct rp_tokenizer *tokenizer, const char *subject,
                                      struct rp_error *error);
void rp_tokenizer_close(struct rp_tokenizer *tokenizer);

/* text.c, jsonl.c, megatron.c, documents.c, sink.c */

struct rp_counts {
    uint64_t files, binary, not_utf8, too_small, unreadable;
    uint64_t as_bytes; /* texts that became bytes because no tokenizer was named */
    uint64_t as_ids;   /* rows of ids among inputs whose texts become bytes so */
    uint64_t special;  /* names of special tokens in texts */
    uint64_t bad;      /* rows and lines that were skipped */
    uint64_t paired;   /* documents that are a half of a pair */
};
#define RP_COUNTS (sizeof(struct rp_counts) / sizeof(uint64_t))

/* The treatment of text. */
enum rp_text_rule {
    RP_TEXT_REFUSED, /* no tokenizer is named, and bytes would be mixed with ids of another one */
    RP_TEXT_BYTES,   /* no tokenizer is named */
    RP_TEXT_TOKENS,
};

/* One thread's conversion. */
struct rp_convert {
    struct rp_tokenizer tokenizer;
    struct rp_output output;
    struct rp_counts counts;
    uint64_t vocab_size; /* 0: not declared */
    uint64_t max_tokens, min_bytes, split_bytes;
    const char *column; /* NULL: the usual one */
    const char *dtype;  /* type of ids in bytes; NULL: not declared */
    int64_t eos, bos;   /* put around every document; -1 = none */
    bool append_eos;
    bool skip_bad;
    bool bad_line; /* the error concerns only this line */
    enum rp_text_rule text;
    bool eos_declared;          /* by --eos: tokens from elsewhere need it */
    struct rp_mask_choice mask; /* for columns next to the tokens; "none": every token is
                                   trained */
    struct rp_span_list runs;   /* a JSONL line's, or a Megatron document's */
    struct rp_mask_origin line_mask;
    const struct rp_wanted_sides *sides;
    struct rp_side_queue queue;
    uint64_t line_base; /* lines before the piece that is read, once something is wrong in it */
    bool may_be_value;  /* the file being read is RP_READ_JSON */
    const char *path;   /* the file being read, for messages */
    const char *prefix; /* the output's: objects of stores are next to it while they are read */
    uint64_t line;      /* in a JSONL file; 0 in a text file */
    bool in_rows;       /* `line` is the row of another form, counted from 0 */
    _Atomic uint64_t *done_bytes, *done_tokens; /* for the progress; may be NULL */
    uint64_t told_bytes, told_tokens;           /* the read file's; the output's */
};

/** Read a file into documents. May return RP_CONVERT_ENOUGH or RP_CONVERT_WIDER. */
RP_MUST_CHECK int rp_convert_text(struct rp_convert *convert, const struct rp_input *input,
                                  struct rp_error *error);
/** JSONL: one document a line. */
RP_MUST_CHECK int rp_convert_jsonl(struct rp_convert *convert, const struct rp_input *input,
                                   struct rp_error *error);
/** Find the trained ids of a line, u32 each. */
RP_MUST_CHECK int rp_trained_line(struct rp_convert *convert, json_t *object, struct rp_ids *ids,
                                  struct rp_error *error);
/** A Megatron dataset: `input->path` is its index, its token file or its prefix. Ends are added
 * only with --eos or --bos. */
RP_MUST_CHECK int rp_convert_megatron(struct rp_convert *convert, const struct rp_input *input,
                                      struct rp_error *error);
/** Any form that a worker process reads. */
RP_MUST_CHECK int rp_convert_documents(struct rp_convert *convert, const struct rp_input *input,
                                       struct rp_error *error);
/** The sink of the tokenizer, and of tokens that need none: check them, count them, write them. */
int rp_convert_sink(void *convert, const struct rp_ids *ids, struct rp_error *error);
/** Refuse an output of pairs and other documents. */
RP_MUST_CHECK int rp_convert_fail_mixed(const char *path, struct rp_error *error);
/** Text is about to become tokens: may it? It is counted. */
RP_MUST_CHECK int rp_convert_take_text(struct rp_convert *convert, struct rp_error *error);
/** Leave out and count a bad row or line, and print the first errors. Returns 0. */
int rp_convert_skip(struct rp_convert *convert, const struct rp_error *error);
/** Refuse a line, which may be skipped. */
int rp_convert_fail_line(struct rp_convert *convert, int code, const char *expected,
                         const char *found, struct rp_error *error);
/** The kind of a value, for messages. */
const char *rp_convert_json_kind(const json_t *value);
/** The bytes of a byte order mark that a text begins with. */
size_t rp_convert_mark_bytes(const char *text, size_t bytes);
/** Report `bytes` of the file being read as done. */
void rp_convert_tell(struct rp_convert *convert, uint64_t bytes);

#endif
