/* SPDX-License-Identifier: Apache-2.0 */
/* format.h — finds the format, the files and the sidecar of a path, and completes the user's
 * declaration from the sidecar.
 *
 * The format is decided by the first of these: the declared format; a .bin with an .idx; the magic
 * of the file; the sidecar; its name and its companion files. Raw tokens have no magic, so a file
 * is raw only if it was declared raw. */
#ifndef RP_CORPUS_FORMAT_H
#define RP_CORPUS_FORMAT_H

#include "corpus/index/index.h"
#include "corpus/readers.h"
#include "object/remote.h"

struct rp_found {
    enum rp_format format;      /* never AUTO */
    enum rp_token_type type;    /* as declared by the user, else by the sidecar; NONE = neither */
    int64_t eos;                /* likewise; RP_EOS_NONE = neither */
    const char *column;         /* as declared, NULL = not; the string is the caller's */
    struct rp_mask_choice mask; /* likewise */
    char *token_path;           /* the file of tokens */
    char *index_path;           /* Megatron: its .idx; NULL for the others */
    const struct rp_remote *remote; /* set for an object in a store; NULL: a file */
    bool data_missing;              /* the token file cannot be opened, and need not be */
    struct rp_index *sidecar;       /* NULL: no sidecar */
    struct rp_index_record record;  /* the sidecar's */
    char why[256];                  /* the evidence for the format, for people */
};

struct rp_find_options {
    const struct rp_source_spec *hints; /* NULL: none */
    const struct rp_remote *remote;     /* the object, if the path is its URL; NULL: a file */
    const char *index_dir;
    const char *sidecar_path; /* the only sidecar to try; NULL: search for one */
    bool allow_missing_data;
    bool replacing_sidecar; /* a damaged sidecar is ignored: it will be overwritten */
};

/** Find the format, the files and the sidecar of a shard. On failure the caller has none to
 * release. */
RP_MUST_CHECK int rp_find_shard(struct rp_found *found, const char *path,
                                const struct rp_find_options *options, struct rp_error *error);
void rp_found_release(struct rp_found *found);

/** The declared values, or those from a sidecar, for a reader. */
struct rp_reader_options rp_found_options(const struct rp_found *found);

#endif
