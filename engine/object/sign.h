/* SPDX-License-Identifier: Apache-2.0 */
/* sign.h — URLs that carry the right to read one object for a while: AWS Signature Version 4 in the
 * query ("presigned"), as S3, R2, MinIO and, with HMAC keys, Google's XML API take it. Only the
 * host is signed, so that one URL serves every range of its object.
 *
 * The rule: docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html. The result is a
 * secret: it is never logged. */
#ifndef RP_OBJECT_SIGN_H
#define RP_OBJECT_SIGN_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "object/url.h"

struct rp_signer {
    const char *key_id, *secret;
    const char *session_token; /* NULL = none */
    const char *region;
};

/** The scheme, host and path of `url` and a query, good for lifetime_s from `now` on. `query`
 * (NULL: none) is percent-encoded and sorted, and has lower-case names. The caller frees it; NULL
 * when out of memory. */
char *rp_sign_url(const struct rp_signer *signer, const struct rp_url *url, const char *query,
                  time_t now, uint32_t lifetime_s);

/** `text` with all but letters, digits and -._~ as %XX; slashes stay if keep_slashes. The caller
 * frees it; NULL when out of memory. */
char *rp_percent_encode(const char *text, bool keep_slashes);
/** `text` with each %XX as the byte that it stands for; other text stays. The caller frees it; NULL
 * when out of memory. */
char *rp_percent_decode(const char *text);

#endif
