/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h — check a server's reply against the request.
 *
 * Status and If-Match are not enough: some servers answer 200 to a range and send the whole
 * object, and some ignore If-Match. So the range, the size and the identity of each reply are
 * compared with the expected ones before any byte of it is kept. */
#ifndef RP_OBJECT_REPLY_H
#define RP_OBJECT_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

#define RP_IDENTITY_BYTES 200u
#define RP_SIZE_UNKNOWN UINT64_MAX
#define RP_NEXT_BYTES 2048u

/* The headers of a reply. */
struct rp_object_reply {
    long status;
    bool has_range;                   /* Content-Range: bytes first-last/total */
    uint64_t first, last, total;      /* total: RP_SIZE_UNKNOWN if it is "*" */
    uint64_t length;                  /* Content-Length, or RP_SIZE_UNKNOWN */
    uint64_t retry_after_s;           /* 0 = not sent */
    char etag[RP_IDENTITY_BYTES];     /* "" = none */
    char modified[RP_IDENTITY_BYTES]; /* Last-Modified */
    char region[32];                  /* x-amz-bucket-region */
    char coding[32];                  /* Content-Encoding */
    char next[RP_NEXT_BYTES];         /* Link: <…?QUERY>; rel="next": the query. "" = none */
    bool is_link_cut; /* a next page may exist, but its query is too long, or has no end */
    char body[1024];  /* first bytes of a refusal */
    size_t body_bytes;
};

void rp_reply_begin(struct rp_object_reply *reply);
/** Take in one line of headers. */
void rp_reply_header(struct rp_object_reply *reply, const char *line, size_t bytes);
/** The identity of one content of the object: its ETag, else its Last-Modified date. */
const char *rp_reply_identity(const struct rp_object_reply *reply);

/* The expected reply. */
struct rp_expected {
    const char *name;       /* name of the object, for messages */
    bool is_page;           /* the whole reply, of any length; no range */
    bool is_head;           /* the first bytes of an object of unknown size and identity */
    uint64_t first, last;   /* the requested range */
    uint64_t total;         /* size of the object; RP_SIZE_UNKNOWN = take it from the reply */
    const char *identity;   /* NULL = take it from the reply */
    const char *keys_place; /* place of the keys of the signature; NULL = not signed */
};

enum rp_verdict {
    RP_REPLY_GOOD,    /* as requested */
    RP_REPLY_AGAIN,   /* the server is busy or broken: try again later */
    RP_REPLY_REFUSED, /* no right to read it: try once more with new keys */
    RP_REPLY_WRONG    /* never try again */
};
/** If the verdict is not good, *error has the reason; its message begins with the object's name. */
enum rp_verdict rp_reply_judge(const struct rp_object_reply *reply,
                               const struct rp_expected *expected, struct rp_error *error);

#endif
