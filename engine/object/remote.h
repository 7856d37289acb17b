/* SPDX-License-Identifier: Apache-2.0 */
/* remote.h — the shards of a corpus that are objects: how large they are, what identifies them, and
 * the small objects beside them.
 *
 * Token objects are read by ranges while the stream runs (io/io_http.c). The objects beside them
 * that are read at random, the index (NAME.idx) and the sidecar (NAME.bin.rpi), are fetched whole
 * at the start, into a directory of this machine, each under a name that is made of its URL
 * (rp_url_id) and its identity, with the hash of its content beside it (NAME.xxh3). A file that is
 * there and has its hash is not fetched again; one that differs from it is.
 *
 * And buckets: which objects a pattern stands for. */
#ifndef RP_OBJECT_REMOTE_H
#define RP_OBJECT_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

/* One shard. */
struct rp_remote {
    char *url;          /* of its tokens, as it was given: it may hold a secret */
    char *name;         /* the same for people */
    char *id;           /* rp_url_id: the name of its sidecar in an index_dir is made of it */
    uint64_t bytes;     /* of its tokens */
    char *identity;     /* their ETag, or when they were modified; "" if the server tells neither */
    char *index_path;   /* of its .idx, in the directory; NULL = there is none */
    char *sidecar_path; /* of its sidecar; NULL = there is none */
    bool is_identified; /* the server tells an identity of the tokens, the .idx and the .spans */
    bool has_spans; /* a file of spans is beside its tokens: a mask, which a sidecar holds too */
    /* Hashes of the identities of the objects beside it, with their sizes; 0 = there is none. */
    uint64_t index_hash, sidecar_hash, spans_hash;
};

/** Request shards, up to 32 at a time. A URL may be that of an object of tokens, of an .idx or a
 * sidecar beside it, or a Megatron prefix. directory: where small objects are kept; NULL:
 * $XDG_CACHE_HOME/ringpack or ~/.cache/ringpack. */
RP_MUST_CHECK int rp_remotes_open(struct rp_remote **remotes_out, const char *const *urls,
                                  size_t count, const char *directory, struct rp_error *error);
void rp_remotes_close(struct rp_remote *remotes, size_t count); /* NULL is fine */

/** Refuse URLs of one id that may be of different objects: a parameter that is taken for a right to
 * read, as `token`, can be what names the object on some servers. URLs of one id are fine if they
 * are the same, or if the server tells the same identity of both. */
RP_MUST_CHECK int rp_remotes_check(const struct rp_remote *remotes, size_t count,
                                   struct rp_error *error);

/** Why a shard cannot be used, which may be a fault of a file that was fetched for it: its message
 * begins with the name of the object. A NULL remote: it is as it was. Returns `code`. */
int rp_remote_context(const struct rp_remote *remote, int code, struct rp_error *error);

/** Fetch one object whole into `directory` (as above), where its name is made of its URL and its
 * identity; *path_out is the caller's. It is not fetched where it is already, and then *is_new is
 * false. */
RP_MUST_CHECK int rp_remote_fetch(const char *url, const char *directory, char **path_out,
                                  bool *is_new, struct rp_error *error);

/** The objects of a bucket whose URLs match a pattern of * ? [], or, of a URL that ends with a
 * slash, all directly below it; in bytewise order. `add` gets each as s3://BUCKET/KEY, or as the
 * URL of a blob of Azure, with the query of the pattern. Other patterns of https cannot be listed,
 * and are refused. */
RP_MUST_CHECK int rp_remote_list(const char *pattern,
                                 int (*add)(void *context, const char *url, struct rp_error *error),
                                 void *context, struct rp_error *error);

#endif
