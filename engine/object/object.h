/* SPDX-License-Identifier: Apache-2.0 */
/* object.h — one object in a store, and the right to read it.
 *
 *   S3      presigned URLs (sign.h) with the keys of credentials.h, or without a signature
 *   GS      presigned with GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY (HMAC), else the bearer of
 *           google.h, else neither
 *   Azure   *.blob.core.windows.net: AZURE_STORAGE_SAS_TOKEN, unless the URL has a query; by https
 *           only, and if AZURE_STORAGE_ACCOUNT_NAME is set, for that account only
 *   Hub     hf://, huggingface.co, or the host of HF_ENDPOINT: the bearer HF_TOKEN, or the token
 *           that `hf auth login` keeps. Later requests go directly to the target of a redirect
 *
 * The URL on the wire may carry a secret: only this module and libcurl see it, and messages have
 * the name of the object instead. Threads: any. */
#ifndef RP_OBJECT_OBJECT_H
#define RP_OBJECT_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/stop.h"

struct rp_object;

/** Open an object, without network access. The object may be a bucket, for listing. */
RP_MUST_CHECK int rp_object_open(struct rp_object **object_out, const char *url,
                                 struct rp_error *error);
void rp_object_close(struct rp_object *object); /* NULL is fine */

/** The URL for messages. */
const char *rp_object_name(const struct rp_object *object);
/** The id of its URL: rp_url_id. */
const char *rp_object_id(const struct rp_object *object);

/* Pauses and time limits of requests and of the commands that print keys. */
struct rp_patience {
    uint32_t pause_ms, pause_max_ms; /* the first pause, and the longest */
    uint32_t give_up_s;              /* failing this long without a piece */
    uint32_t stall_s; /* stall limit: a connection is dropped after this long below 1 KiB/s;
                         commands that print keys have three times as long */
    struct rp_stopper stopper; /* ends commands that print keys */
};

/* URL and bearer on the wire. */
struct rp_ask {
    char *url;
    char *bearer;      /* NULL = none */
    const char *place; /* place of the keys, for messages; NULL: no keys */
};
/** Make the URL and the bearer of a request to the object. `query` (may be NULL) belongs to a
 * listing: sorted, encoded, lower-case names. rp_ask_free releases the result. -RP_E_TIMEOUT: keys
 * are unavailable for now. */
RP_MUST_CHECK int rp_object_ask(struct rp_object *object, const char *query,
                                const struct rp_patience *patience, struct rp_ask *ask,
                                struct rp_error *error);
void rp_ask_free(struct rp_ask *ask);

/** The store refused a request with this URL: sign the next one again, with new keys. */
void rp_object_refused(struct rp_object *object, const char *url);
/** A request was redirected to this URL: use it until it is refused. */
void rp_object_moved(struct rp_object *object, const char *url);

/** Keep the error of a read that failed for good; rp_object_failure returns it, or 0 if no read
 * failed so. */
void rp_object_fail(struct rp_object *object, const struct rp_error *error);
RP_MUST_CHECK int rp_object_failure(struct rp_object *object, struct rp_error *error);

#endif
