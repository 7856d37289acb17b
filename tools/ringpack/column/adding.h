/* SPDX-License-Identifier: Apache-2.0 */
/* adding.h — one `ringpack column` on an open corpus: finds the documents and shards of the
 * lists in a file. */
#ifndef RP_TOOLS_COLUMN_ADDING_H
#define RP_TOOLS_COLUMN_ADDING_H

#include "column/values.h"
#include "convert/wanted.h"
#include "corpus/corpus.h"

/* Tokens that `ringpack convert` put around documents, which have no value in lists. */
enum rp_inserted { RP_INSERTED_NONE, RP_INSERTED_EOS, RP_INSERTED_BOS, RP_INSERTED_BOTH };

/* The command line. */
struct rp_column_choice {
    struct rp_column_wanted column; /* NAME=FILE[:FIELD] */
    const char *source, *output, *type, *tokenizer;
    enum rp_inserted inserted;
    bool bf16, replace, quiet;
};

struct rp_adding {
    const struct rp_column_choice *choice;
    const struct rp_corpus *corpus;
    const struct rp_source *source;
    uint32_t first, shards; /* shards of the source */
    size_t folder;          /* bytes of the names of its shards, up to the folder that has all */
    struct rp_tokenizer_id tokenizer; /* whose ids the values are */
    struct rp_values *files;
    uint32_t file_count, file; /* all, and the one that is read */
    uint64_t row;              /* in that one */
    uint8_t *buffer;           /* [RP_COLUMN_BUFFER_BYTES] */
    /* Lists only. */
    uint64_t document, list; /* places in the source and in the file */
    struct rp_map lengths;   /* lengths of the read file's lists */
};
#define RP_COLUMN_BUFFER_BYTES (256u << 10)

/** Compare the lists with the documents of the source: their number, and the length of each. */
RP_MUST_CHECK int rp_adding_check_lists(struct rp_adding *adding, struct rp_error *error);
/** Write the entries of shard i of the source, in ascending order of i. */
RP_MUST_CHECK int rp_adding_write_lists(struct rp_adding *adding, struct rp_side_writer *writer,
                                        uint32_t i, struct rp_error *error);

#endif
