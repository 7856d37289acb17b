/* SPDX-License-Identifier: Apache-2.0 */
/* arrow.h — the parts of the Arrow reader: a schema, and the rows of a record batch.
 *
 * A record batch is metadata and a body. The metadata has a node (rows, nulls) for every field and
 * a list of buffers (offset in the body, bytes), both in the order of the schema, children after
 * their parents. So a column's position in these lists is found once, in the schema. */
#ifndef RP_CORPUS_READERS_ARROW_H
#define RP_CORPUS_READERS_ARROW_H

#include "corpus/readers/arrow_flat.h"
#include "corpus/reader.h"

enum rp_arrow_list { RP_ARROW_LIST, RP_ARROW_LARGE_LIST, RP_ARROW_FIXED_SIZE_LIST };

/* A column of lists of integers. */
struct rp_arrow_column {
    enum rp_arrow_list list;
    uint32_t list_size;      /* FIXED_SIZE_LIST */
    enum rp_token_type type; /* integers; NONE: booleans, which are bits */
    uint32_t node, buffer;   /* its first node and its first buffer */
    uint32_t views;          /* columns of string or binary views before it; a batch has the number
                                of the buffers of each */
};

struct rp_arrow_schema {
    struct rp_arrow_column ids, attention, trained;
    bool has_attention;           /* a column `attention_mask`: its zeros are padding */
    bool has_trained;             /* a mask: a column that says which tokens are trained */
    struct rp_mask_origin origin; /* the mask's */
    char name[RP_COLUMN_BYTES];
};

/** Read the schema at position `table`, and choose its column of token ids: the declared one, else
 * input_ids, else tokens, else the only list of integers. Choose its mask: the declared one, else
 * labels, else the one of completion_mask, assistant_masks and loss_mask that exists; two are
 * refused. */
RP_MUST_CHECK int rp_arrow_read_schema(struct rp_flat *flat, uint64_t table,
                                       const struct rp_probe *probe,
                                       const struct rp_reader_options *options,
                                       struct rp_arrow_schema *schema, struct rp_error *error);

/* The bytes of the file that were read last for one buffer. */
struct rp_arrow_window {
    const struct rp_probe *probe;
    uint64_t first, count;
    uint8_t *bytes; /* [RP_ARROW_WINDOW_BYTES] */
    uint8_t *row;   /* copy of a row longer than the window, or of one whose entries were bits */
    size_t row_capacity;
};
#define RP_ARROW_WINDOW_BYTES (128u << 10)
enum {
    RP_ARROW_OFFSETS,
    RP_ARROW_VALIDITY,
    RP_ARROW_ATTENTION_OFFSETS,
    RP_ARROW_ATTENTION,
    RP_ARROW_TOKENS,
    RP_ARROW_TRAINED_OFFSETS,
    RP_ARROW_TRAINED,
    RP_ARROW_WINDOWS
};

struct rp_arrow_batch {
    const struct rp_arrow_schema *schema;
    struct rp_flat *flat;
    uint64_t table;                  /* the RecordBatch's */
    uint64_t body, body_bytes;       /* in the file, inside it */
    uint64_t number;                 /* the batch's, counted in the file */
    uint64_t first_row;              /* the batch's, counted in the file */
    struct rp_arrow_window *windows; /* [RP_ARROW_WINDOWS]; each follows one buffer */
    struct rp_span_list *spans;      /* the newest row's */
    uint64_t *mask_bytes_left; /* bytes of masks, of both kinds, that a start may still read */
};

/** Emit the rows of a record batch; *rows_out is their number. */
RP_MUST_CHECK int rp_arrow_emit_batch(struct rp_arrow_batch *batch, struct rp_sink *sink,
                                      uint64_t *rows_out, struct rp_error *error);

/** expand of the reader (arrow_folder.c). */
RP_MUST_CHECK int rp_arrow_expand(const struct rp_folder *folder, struct rp_paths *files,
                                  struct rp_error *error);

/** -RP_E_CORRUPT: a part of the file contradicts another. */
int rp_arrow_damaged(const struct rp_probe *probe, const char *what, uint64_t number,
                     struct rp_error *error);

#endif
