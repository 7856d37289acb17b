/* SPDX-License-Identifier: Apache-2.0 */
/* url_id.c — the id of the object of a URL (url.h).
 *
 * A query has two parts: the right to read (a signature, which is another one tomorrow), and the
 * choice of the bytes (`versionId`, or a program behind the path). Only the latter counts. Each
 * kind of signature has a required parameter, and optional ones that count only with it: `st`
 * without `sig` is not the start of a right of Azure. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/bits.h"
#include "base/hash.h"
#include "base/mem.h"
#include "object/url.h"

/* Names of parameters; a name that ends with a dash is a prefix. Case does not count. */
static const struct {
    const char *signature, *others[25];
} rights[] = {
    {"X-Amz-Signature", {"X-Amz-"}},
    {"X-Goog-Signature", {"X-Goog-"}},
    {"x-oss-signature", /* not x-oss-process, which chooses other bytes */
     {"x-oss-signature-version", "x-oss-credential", "x-oss-date", "x-oss-expires",
      "x-oss-additional-headers", "x-oss-security-token"}},
    {"q-signature", {"q-", "x-cos-security-token"}},
    {"Signature",
     {"AWSAccessKeyId", "GoogleAccessId", "OSSAccessKeyId", "AccessKeyId", "Policy", "Key-Pair-Id",
      "x-amz-security-token", "x-obs-security-token", "security-token"}},
    {"sig", /* Azure: a SAS of an account, a service or a user's delegation */
     {"sv",  "ss",    "srt",   "sr",  "st",  "se",  "sp",  "sip",   "spr",   "si",   "ses",
      "sdd", "skoid", "sktid", "skt", "ske", "sks", "skv", "saoid", "suoid", "scid", "tn"}},
    {"token", {NULL}},
    {"access_token", {NULL}},
};

/* Headers of the reply that the signer has chosen: they change no byte of the object. */
static const char *const headers[] = {"response-content-type",
                                      "response-content-language",
                                      "response-expires",
                                      "response-cache-control",
                                      "response-content-disposition",
                                      "response-content-encoding",
                                      "rscc",
                                      "rscd",
                                      "rsce",
                                      "rscl",
                                      "rsct"};

static bool is_named(const char *parameter, size_t length, const char *name)
{
    size_t bytes = strlen(name);
    bool is_beginning = name[bytes - 1] == '-';
    return (is_beginning ? length > bytes : length == bytes) &&
           !strncasecmp(parameter, name, bytes);
}

static bool has_parameter(const char *query, size_t bytes, const char *name)
{
    for (const char *at = query, *end = query + bytes; at < end;) {
        size_t length = strcspn(at, "&#");
        if (is_named(at, rp_min_u64(strcspn(at, "="), length), name))
            return true;
        at += length + 1;
    }
    return false;
}

/* Does this parameter of the query leave the bytes of the object unchanged? */
static bool is_of_right(const char *query, size_t bytes, const char *parameter, size_t length)
{
    for (size_t i = 0; i < RP_ARRAY_COUNT(headers); i++)
        if (is_named(parameter, length, headers[i]))
            return true;
    bool is_expiry = is_named(parameter, length, "Expires"); /* belongs to signatures of any kind */
    for (size_t i = 0; i < RP_ARRAY_COUNT(rights); i++) {
        bool is_it = is_expiry || is_named(parameter, length, rights[i].signature);
        for (const char *const *other = rights[i].others; *other && !is_it; other++)
            is_it = is_named(parameter, length, *other);
        if (is_it && has_parameter(query, bytes, rights[i].signature))
            return true;
    }
    return false;
}

char *rp_url_id(const char *text)
{
    char *name = rp_url_name(text);
    const char *query = strncmp(text, "http", 4) ? NULL : strchr(text, '?');
    if (!name || !query || memchr(text, '#', (size_t)(query - text)))
        return name;
    size_t bytes = strcspn(++query, "#");
    struct rp_hasher hasher;
    bool is_part = false;
    rp_hasher_begin(&hasher);
    for (const char *at = query, *end = query + bytes; at < end;) {
        size_t length = strcspn(at, "&#");
        if (length && !is_of_right(query, bytes, at, rp_min_u64(strcspn(at, "="), length))) {
            rp_hasher_add(&hasher, at, length);
            rp_hasher_add(&hasher, "&", 1);
            is_part = true;
        }
        at += length + 1;
    }
    struct rp_hash128 hash = rp_hasher_finish(&hasher);
    if (!is_part)
        return name;
    char *id = rp_asprintf("%s?%016" PRIx64, name, hash.high ^ hash.low);
    free(name);
    return id;
}
