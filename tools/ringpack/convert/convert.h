/* SPDX-License-Identifier: Apache-2.0 */
/* convert.h — `ringpack convert`: text and JSONL become one Megatron dataset.
 *
 * Flow: inputs are expanded to a list of files in canonical order (inputs.c); each file is
 * read (text.c, jsonl.c) and its documents go through the tokenizer (tokenizer.c)
 * to the output (sink.c, output.c), which exists under its name only when it is whole.
 *
 * The result depends on the content and the order of the inputs alone: not on time, locale or
 * threads. */
#ifndef RP_TOOLS_CONVERT_H
#define RP_TOOLS_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/file.h"

/* Returned, where a function says so, when --max-tokens is reached: no error, but no more
 * documents. */
#define RP_CONVERT_ENOUGH 1

/** What a message says after an interrupt (interrupt.h). */
#define RP_CONVERT_IS_SAFE "nothing was written"

/* inputs.c */

struct rp_input {
    char *path;
    uint64_t bytes;
    bool named; /* by the user, so it must be readable; one found in a directory may be skipped */
};
struct rp_inputs {
    struct rp_input *files;
    size_t count, capacity;
    uint64_t bytes;
    uint64_t unreadable; /* directories that could not be listed */
};
/** Add a file, or every regular file below a directory, sorted bytewise by path. `globs` (may be
 * empty) select among the latter, by base name, or by path below the directory if they contain a
 * slash. */
RP_MUST_CHECK int rp_inputs_add(struct rp_inputs *inputs, const char *path,
                                const char *const *globs, size_t glob_count,
                                struct rp_error *error);
void rp_inputs_release(struct rp_inputs *inputs);

/* output.c */

struct rp_output {
    struct rp_new_file tokens;
    char *token_path, *index_path;
    bool wide; /* i32; u16 otherwise */
    uint8_t *buffer;
    size_t buffered;  /* bytes */
    int32_t *lengths; /* of every document */
    size_t documents, capacity;
    uint64_t token_count;
};
/** Begin PREFIX.bin and PREFIX.idx. u16 if vocab_size < 65500, else i32: Megatron's own rule.
 * Existing files are refused unless `replace`. */
RP_MUST_CHECK int rp_output_open(struct rp_output *output, const char *prefix, uint64_t vocab_size,
                                 bool replace, struct rp_error *error);
/** Append a document; `eos` < 0: none is appended, and none where the document ends with it
 * already. */
RP_MUST_CHECK int rp_output_add(struct rp_output *output, const uint32_t *tokens, size_t count,
                                int64_t eos, struct rp_error *error);
/** Write the index, publish both files, build the sidecar: all of it, or nothing stays. */
RP_MUST_CHECK int rp_output_publish(struct rp_output *output, struct rp_error *error);
void rp_output_discard(struct rp_output *output);

/* tokenizer.c */

typedef int rp_sink(void *context, const uint32_t *tokens, size_t count, struct rp_error *error);

struct rp_tokenizer {
    uint64_t vocab_size;
    int64_t eos; /* -1: not known */
    rp_sink *sink;
    void *context;
    pid_t child; /* 0: bytes, done here */
    int socket;
    uint8_t *batch; /* texts to the child, not yet sent */
    size_t batch_bytes, batch_capacity;
    uint32_t batch_texts;
    uint32_t *ids;
    size_t ids_capacity;
    const char *path;
};
/** `name` is "bytes" or the path of a tokenizer.json; `eos` is a token id, the text of a token, or
 * NULL. */
RP_MUST_CHECK int rp_tokenizer_open(struct rp_tokenizer *tokenizer, const char *name,
                                    const char *eos, rp_sink *sink, void *context,
                                    struct rp_error *error);
/** Tokenise a text. Its tokens reach the sink now or later, in the order of the texts. Returns what
 * the sink returned. */
RP_MUST_CHECK int rp_tokenizer_add(struct rp_tokenizer *tokenizer, const char *text, size_t bytes,
                                   struct rp_error *error);
/** Everything that was added has reached the sink. */
RP_MUST_CHECK int rp_tokenizer_flush(struct rp_tokenizer *tokenizer, struct rp_error *error);
void rp_tokenizer_close(struct rp_tokenizer *tokenizer);

/* text.c, jsonl.c */

struct rp_counts {
    uint64_t files, binary, not_utf8, too_small, unreadable;
};

struct rp_convert {
    struct rp_tokenizer tokenizer;
    struct rp_output output;
    struct rp_counts counts;
    uint64_t vocab_size, max_tokens, min_bytes, split_bytes;
    int64_t eos; /* appended to every document; -1 = none */
    bool append_eos;
    bool eos_declared; /* by --eos: tokens that somebody else made need it */
    bool drop_labels;  /* labels and masks beside the tokens are left out, and that is meant */
    const char *path;  /* of the file being read, for messages */
    uint64_t line;     /* of a JSONL file; 0 in a text file */
};

/** Read a file of text, plain or gzip, into documents. May return RP_CONVERT_ENOUGH. */
RP_MUST_CHECK int rp_convert_text(struct rp_convert *convert, const struct rp_input *input,
                                  struct rp_error *error);
/** Read a JSONL file, plain or gzip: one document a line. May return RP_CONVERT_ENOUGH. */
RP_MUST_CHECK int rp_convert_jsonl(struct rp_convert *convert, const struct rp_input *input,
                                   struct rp_error *error);
/** The sink of the tokenizer, and of tokens that need none: check them, count them, write them. */
int rp_convert_sink(void *convert, const uint32_t *tokens, size_t count, struct rp_error *error);

/** Whether `text` is UTF-8 (no surrogates, nothing overlong, nothing above U+10FFFF). */
bool rp_convert_is_utf8(const char *text, size_t bytes);

#endif
