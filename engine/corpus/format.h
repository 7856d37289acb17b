/* SPDX-License-Identifier: Apache-2.0 */
/* format.h — what a path is: which format, which files, and what the user or a sidecar declared
 * about it.
 *
 * Decided in this order: the declared format; an .idx beside a .bin; the magic of the file; the
 * sidecar; its name and what lies beside it. Raw tokens have no magic, so a file is raw only when
 * somebody said so. */
#ifndef RP_CORPUS_FORMAT_H
#define RP_CORPUS_FORMAT_H

#include "corpus/index/index.h"
#include "corpus/readers.h"
#include "object/remote.h"

struct rp_found {
    enum rp_format format;      /* never AUTO */
    enum rp_token_type type;    /* as declared by the user, else by the sidecar; NONE = neither */
    int64_t eos;                /* likewise; RP_EOS_NONE = neither */
    const char *column;         /* as declared; the string is the caller's. NULL = not */
    struct rp_mask_choice mask; /* likewise */
    char *token_path;           /* the file of tokens */
    char *index_path;           /* Megatron: its .idx; NULL for the others */
    const struct rp_remote *remote; /* of an object in a store; NULL: a file */
    bool data_missing;              /* the token file cannot be opened, and that was allowed */
    struct rp_index *sidecar;       /* NULL: there is none */
    struct rp_index_record record;  /* of the sidecar */
    char why[256];                  /* one sentence for people */
};

struct rp_find_options {
    const struct rp_source_spec *hints; /* NULL = nothing declared */
    const struct rp_remote *remote;     /* what the path is a URL of; NULL: it is a path */
    const char *index_dir;
    const char *sidecar_path; /* this one, and no other; NULL: it is searched for */
    bool allow_missing_data;
    bool replacing_sidecar; /* a damaged sidecar does not matter: it is about to be written again */
};

/** Fills *found; on failure there is nothing to release. */
RP_MUST_CHECK int rp_find(struct rp_found *found, const char *path,
                          const struct rp_find_options *options, struct rp_error *error);
void rp_found_release(struct rp_found *found);

/** What was declared, or is in a sidecar, as a reader wants it. */
struct rp_reader_options rp_found_options(const struct rp_found *found);

#endif
