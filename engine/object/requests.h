/* SPDX-License-Identifier: Apache-2.0 */
/* requests.h — requests to stores: many at a time, by one thread, each retried until it is answered
 * or fails for good.
 *
 * A request is one range of one object, read into the caller's memory. If a request fails on the
 * way (a busy server, a broken connection, half a body, silence), this module retries it, with
 * pauses that double up to a limit and are drawn at random (full jitter), so that a thousand
 * readers do not return at the same moment. A wrong answer (reply.h) ends the request at once, and
 * so does the end of patience.
 *
 * Connections are kept, one for each request at most; HTTP/1.1, because requests that share one
 * connection share its speed. Invariant: memory of a request is written until rp_requests_wait
 * returns it, or rp_requests_close. Threads: the owner's only. */
#ifndef RP_OBJECT_REQUESTS_H
#define RP_OBJECT_REQUESTS_H

#include "object/object.h"
#include "object/reply.h"

#define RP_REDIRECTS_MAX 8L /* for one request */

enum rp_request_kind {
    RP_REQUEST_RANGE, /* bytes [offset, offset + bytes) of an object of known size and identity */
    RP_REQUEST_HEAD,  /* the first bytes of an object, its size and its identity */
    RP_REQUEST_PAGE   /* a reply of at most `bytes` to object and query */
};

struct rp_object_request {
    enum rp_request_kind kind;
    struct rp_object *object;
    const char *query; /* PAGE: sorted and encoded */
    uint64_t offset;
    uint32_t bytes;
    uint8_t *buffer;      /* [bytes] */
    uint64_t total;       /* RANGE: the required size of the object. HEAD: its size */
    const char *expected; /* RANGE: its required identity */

    uint32_t arrived;                 /* without a gap from the begin of the buffer */
    char identity[RP_IDENTITY_BYTES]; /* HEAD: the object's */
    char *next;                       /* PAGE: [RP_NEXT_BYTES], the query of the next; or NULL */
    struct rp_error error;            /* code 0: it is whole */
};

/** 50 ms to 20 s, 300 s, 20 s, unless RINGPACK_OBJECT_PATIENCE sets four other numbers in this
 * order, as "50,20000,300,20". `is_start`: a caller waits for the answer, so give up sooner. */
struct rp_patience rp_patience_standard(bool is_start);

struct rp_requests;
RP_MUST_CHECK int rp_requests_open(struct rp_requests **requests_out, uint32_t depth,
                                   const struct rp_patience *patience, struct rp_error *error);
/** Requests in flight are dropped: their memory is the caller's again. NULL is fine. */
void rp_requests_close(struct rp_requests *requests);

/** Begin one; fewer than depth are in flight. */
void rp_requests_start(struct rp_requests *requests, struct rp_object_request *request);
/* Conditions that end a wait. */
struct rp_requests_wait {
    unsigned wait_min;                  /* this many are done; all, if fewer are in flight */
    uint32_t most_ms;                   /* or this much time is over; 0 = no limit */
    bool (*is_stopping)(void *context); /* or it returns true, 10 calls/s; NULL = never */
    void *context;
};
/** Wait, and store up to max done requests; returns their number. */
unsigned rp_requests_wait(struct rp_requests *requests, struct rp_object_request **done,
                          unsigned max, const struct rp_requests_wait *wait);

/** Do all requests, `depth` at a time, with the patience of a start. Each has its own error; the
 * call fails only if no request can be started, or if the process is to end (base/stop.h). */
RP_MUST_CHECK int rp_requests_do(struct rp_object_request *requests, size_t count, uint32_t depth,
                                 struct rp_error *error);

/** The number of retries. */
uint64_t rp_requests_retries(const struct rp_requests *requests);

#endif
