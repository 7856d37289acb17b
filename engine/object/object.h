/* SPDX-License-Identifier: Apache-2.0 */
/* object.h — one object in a store, and the right to read it.
 *
 *   S3      presigned URLs (sign.h) with the keys of credentials.h, or without a signature
 *   GS      presigned with GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY (HMAC), else the bearer of
 *           google.h, else neither
 *   Azure   *.blob.core.windows.net: AZURE_STORAGE_SAS_TOKEN, unless the URL has a query; by https,
 *           and of AZURE_STORAGE_ACCOUNT_NAME alone, where that is set
 *   Hub     hf://, huggingface.co, or the host of HF_ENDPOINT: the bearer HF_TOKEN, or the token
 *           that `hf auth login` keeps. The target of a redirect is asked directly from then on
 *
 * The URL on the wire may carry a secret: it stays in here and in libcurl, and messages have the
 * name of the object instead. Threads: any. */
#ifndef RP_OBJECT_OBJECT_H
#define RP_OBJECT_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/stop.h"

struct rp_object;

/** Nothing is asked of the network. The object may be a bucket, for listing. */
RP_MUST_CHECK int rp_object_open(struct rp_object **object_out, const char *url,
                                 struct rp_error *error);
void rp_object_close(struct rp_object *object); /* NULL is fine */

/** The URL as people see it. */
const char *rp_object_name(const struct rp_object *object);
/** What tells it from other objects: rp_url_id. */
const char *rp_object_id(const struct rp_object *object);

/* How long to go on with requests, and with what they need. */
struct rp_patience {
    uint32_t pause_ms, pause_max_ms; /* the first pause, and the longest */
    uint32_t give_up_s;              /* without a piece that arrived */
    uint32_t stall_s; /* a connection that brings less than 1 KiB/s is given up; commands that print
                         keys have three times as long */
    struct rp_stopper stopper; /* ends commands that print keys */
};

/* What to put on the wire. */
struct rp_ask {
    char *url;
    char *bearer;      /* NULL = none */
    const char *place; /* where the keys came from, for people; NULL: there are none */
};
/** How to ask for the object now; `query` (may be NULL) is sorted and encoded, of lower-case names:
 * a listing's. rp_ask_free releases it. -RP_E_TIMEOUT: keys cannot be had for a time. */
RP_MUST_CHECK int rp_object_ask(struct rp_object *object, const char *query,
                                const struct rp_patience *patience, struct rp_ask *ask,
                                struct rp_error *error);
void rp_ask_free(struct rp_ask *ask);

/** The store refused a request that was asked for so: sign anew, with keys that are got anew. */
void rp_object_refused(struct rp_object *object, const char *url);
/** A request was redirected to this place: ask there until it is refused. */
void rp_object_moved(struct rp_object *object, const char *url);

/** Keep why a read of the object failed for good, and tell it: 0 if none did. */
void rp_object_fail(struct rp_object *object, const struct rp_error *error);
RP_MUST_CHECK int rp_object_failure(struct rp_object *object, struct rp_error *error);

#endif
