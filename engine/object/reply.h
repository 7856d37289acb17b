/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h — what a server says about what it sends, and whether that is what was asked for.
 *
 * Status and If-Match alone are not enough: there are servers that answer 200 to a range and give
 * the whole object, and servers that ignore If-Match. So the range, the size and the identity of
 * each reply are compared with what is expected before a byte of it is kept. */
#ifndef RP_OBJECT_REPLY_H
#define RP_OBJECT_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

#define RP_IDENTITY_BYTES 200u
#define RP_SIZE_UNKNOWN UINT64_MAX
#define RP_NEXT_BYTES 2048u

/* What the headers say. */
struct rp_object_reply {
    long status;
    bool has_range;                   /* Content-Range: bytes first-last/total */
    uint64_t first, last, total;      /* total: RP_SIZE_UNKNOWN if it is "*" */
    uint64_t length;                  /* Content-Length, or RP_SIZE_UNKNOWN */
    uint64_t retry_after_s;           /* 0 = not said */
    char etag[RP_IDENTITY_BYTES];     /* "" = none */
    char modified[RP_IDENTITY_BYTES]; /* Last-Modified */
    char region[32];                  /* x-amz-bucket-region */
    char coding[32];                  /* Content-Encoding */
    char next[RP_NEXT_BYTES];         /* Link: <…?QUERY>; rel="next": the query. "" = none */
    bool is_link_cut; /* there may be a next page, but its query is too long, or has no end */
    char body[1024];  /* of a refusal, its begin */
    size_t body_bytes;
};

void rp_reply_begin(struct rp_object_reply *reply);
/** Take in one line of headers. */
void rp_reply_header(struct rp_object_reply *reply, const char *line, size_t bytes);
/** What tells one content of the object from another: its ETag, else when it was modified. */
const char *rp_reply_identity(const struct rp_object_reply *reply);

/* What a reply is compared with. */
struct rp_expected {
    const char *name;       /* of the object, for people */
    bool is_page;           /* all of what the server has to say, however long; no range */
    bool is_look;           /* the first bytes of an object that is not known yet */
    uint64_t first, last;   /* the range that was asked for */
    uint64_t total;         /* of the object, RP_SIZE_UNKNOWN = it is to be learned */
    const char *identity;   /* NULL = it is to be learned */
    const char *keys_place; /* where the keys of the signature came from; NULL = not signed */
};

enum rp_verdict {
    RP_REPLY_GOOD,    /* what was asked for */
    RP_REPLY_AGAIN,   /* a server that is busy or broken: ask again, later */
    RP_REPLY_REFUSED, /* no right to read it: once more with keys got anew */
    RP_REPLY_WRONG    /* never ask again */
};
/** *error says why, if the verdict is not good. Its message begins with the object's name. */
enum rp_verdict rp_reply_judge(const struct rp_object_reply *reply,
                               const struct rp_expected *expected, struct rp_error *error);

#endif
