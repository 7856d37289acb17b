/* SPDX-License-Identifier: Apache-2.0 */
/* mds.h — the parts of the MDS reader: the columns of a shard, and the place of the chosen one in a
 * sample. */
#ifndef RP_CORPUS_READERS_MDS_H
#define RP_CORPUS_READERS_MDS_H

#include "corpus/reader.h"

#define RP_MDS_VARIABLE_MAX 256u

/* A column of token ids, and the columns before it in a sample. */
struct rp_mds_column {
    char name[RP_COLUMN_BYTES];
    enum rp_token_type type;  /* NONE: declared, for bytes; else stated by every array */
    bool is_bytes;            /* ids without any header */
    bool has_type, has_shape; /* an array begins with its type, with its shape */
    bool is_variable;         /* its size is in the sample */
    uint32_t variable_before; /* columns of variable size before it */
    uint64_t fixed_before;    /* bytes of the columns of fixed size before it */
    uint64_t fixed_bytes;     /* its own size, if fixed */
};

struct rp_mds_header {
    struct rp_mds_column ids;
    uint32_t variable;    /* columns of variable size in all */
    uint64_t fixed_bytes; /* sum over all columns of fixed size */
};

/** Read the JSON of a shard, and choose its column of token ids: the declared one (may be NULL),
 * else input_ids, else tokens, else the only one of integers. -RP_E_FORMAT if none can be read in
 * place. */
RP_MUST_CHECK int rp_mds_read_header(const struct rp_probe *probe, const char *text, size_t bytes,
                                     const char *declared, struct rp_mds_header *header,
                                     struct rp_error *error);

/** Whether this is the JSON of an MDS shard. */
bool rp_mds_is_header(const char *text, size_t bytes);

/** The type with this number in the head of an array; NONE: it is no type of integers. */
enum rp_token_type rp_mds_type_of(uint8_t number);

/** expand of the reader (mds_folder.c). */
RP_MUST_CHECK int rp_mds_expand(const struct rp_folder *folder, struct rp_paths *files,
                                struct rp_error *error);

#endif
