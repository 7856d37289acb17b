/* SPDX-License-Identifier: Apache-2.0 */
/* remote.h — the shards of a corpus that are objects: their sizes, their identities, and their
 * companion objects.
 *
 * Token objects are read by ranges while the stream runs (io/io_http.c). Companion objects that are
 * read at random, the index (NAME.idx) and the sidecar (NAME.bin.rpi), are fetched whole at the
 * start, into a directory of this machine. Each file's name is made of its URL (rp_url_id) and its
 * identity; the hash of its content is in NAME.xxh3. A file that matches its hash is not fetched
 * again; one that differs is.
 *
 * The module also lists the objects of a bucket that match a pattern. */
#ifndef RP_OBJECT_REMOTE_H
#define RP_OBJECT_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

/* One shard. */
struct rp_remote {
    char *url;          /* URL of its tokens, as given: it may hold a secret */
    char *name;         /* the URL for messages */
    char *id;           /* rp_url_id: the name of its sidecar in an index_dir is made of it */
    uint64_t bytes;     /* size of its tokens */
    char *identity;     /* their ETag or Last-Modified date; "" if the server sends neither */
    char *index_path;   /* the .idx, in the directory; NULL = no .idx */
    char *sidecar_path; /* the sidecar, in the directory; NULL = no sidecar */
    bool is_identified; /* the server sends an identity of the tokens, the .idx and the .spans */
    bool has_spans;     /* it has a file of spans: a mask, which a sidecar holds as well */
    /* Hashes of identity and size of the companion objects; 0 = no such object. */
    uint64_t index_hash, sidecar_hash, spans_hash;
};

/** Request shards, up to 32 at a time. A URL names an object of tokens, its .idx or its sidecar, or
 * a Megatron prefix. directory: for small objects; NULL: $XDG_CACHE_HOME/ringpack or
 * ~/.cache/ringpack. */
RP_MUST_CHECK int rp_remotes_open(struct rp_remote **remotes_out, const char *const *urls,
                                  size_t count, const char *directory, struct rp_error *error);
void rp_remotes_close(struct rp_remote *remotes, size_t count); /* NULL is fine */

/** Refuse URLs of one id that may be of different objects: a parameter that counts as a right to
 * read, as `token`, may name the object on some servers. URLs of one id pass if they are equal, or
 * if the server sends the same identity for both. */
RP_MUST_CHECK int rp_remotes_check(const struct rp_remote *remotes, size_t count,
                                   struct rp_error *error);

/** Add a shard's name to the error that makes it unusable, because the fault may be in a file
 * fetched for it: the message then begins with the name of the object. A NULL remote leaves the
 * error unchanged. Returns `code`. */
int rp_remote_context(const struct rp_remote *remote, int code, struct rp_error *error);

/** Fetch one object whole into `directory` (as above), to a file named after its URL and its
 * identity; the caller frees *path_out. If the file exists already, the object is not fetched and
 * *is_new is false. */
RP_MUST_CHECK int rp_remote_fetch(const char *url, const char *directory, char **path_out,
                                  bool *is_new, struct rp_error *error);

/** List the objects of a bucket whose URLs match a pattern of * ? [], or, for a URL that ends with
 * a slash, all objects directly below it; in bytewise order. `add` gets each as s3://BUCKET/KEY, or
 * as the URL of an Azure blob, with the query of the pattern. Other https patterns cannot be
 * listed, and are refused. */
RP_MUST_CHECK int rp_remote_list(const char *pattern,
                                 int (*add)(void *context, const char *url, struct rp_error *error),
                                 void *context, struct rp_error *error);

#endif
