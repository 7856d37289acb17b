/* SPDX-License-Identifier: Apache-2.0 */
/* reply.c — parse the headers of a reply, and judge it. */
#include "object/reply.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bits.h"
#include "base/escape.h"
#include "base/text.h"

#define CHANGED_HINT                                                                               \
    "delivered and saved rows are valid; restore the object and start again, or begin another "    \
    "run if the change was meant"

#define VIRTUAL_HINT "this store wants https://BUCKET.HOST: set AWS_S3_ADDRESSING_STYLE=virtual"

void rp_reply_begin(struct rp_object_reply *reply)
{
    *reply = (struct rp_object_reply){.total = RP_SIZE_UNKNOWN, .length = RP_SIZE_UNKNOWN};
}

const char *rp_reply_identity(const struct rp_object_reply *reply)
{
    return reply->etag[0] ? reply->etag : reply->modified;
}

/* "bytes 0-99/1000", "bytes 0-99/ *", or, in a refusal, "bytes * /1000" (without the blanks). */
static void take_range(struct rp_object_reply *reply, const char *value)
{
    char total[24] = "";
    uint64_t first, last;
    if (sscanf(value, "bytes %" SCNu64 "-%" SCNu64 "/%23s", &first, &last, total) == 3) {
        reply->has_range = first <= last;
        reply->first = first;
        reply->last = last;
    } else if (sscanf(value, "bytes */%23s", total) != 1) {
        return;
    }
    if (!rp_text_u64(total, &reply->total))
        reply->total = RP_SIZE_UNKNOWN;
}

/* Link: <https://host/path?QUERY>; rel="next", <…>; rel="last" (RFC 8288). */
static void take_link(struct rp_object_reply *reply, const char *value)
{
    while ((value = strchr(value, '<'))) {
        const char *end = strchr(value, '>'), *query = strchr(value, '?');
        size_t rest = end ? strcspn(end, ",") : 0;
        const char *rel = end ? memmem(end, rest, "rel=", 4) : NULL;
        if (!end) {
            reply->is_link_cut = true;
            return;
        }
        if (rel && query && query < end && !strncmp(rel + 4 + (rel[4] == '"'), "next", 4)) {
            int bytes = snprintf(reply->next, sizeof reply->next, "%.*s", (int)(end - query - 1),
                                 query + 1);
            reply->is_link_cut |= (size_t)bytes >= sizeof reply->next;
        }
        value = end + rest;
    }
}

static void take_value(struct rp_object_reply *reply, const char *name, const char *value)
{
    const struct {
        const char *name;
        char *to;
        size_t bytes;
    } texts[] = {{"etag", reply->etag, sizeof reply->etag},
                 {"last-modified", reply->modified, sizeof reply->modified},
                 {"content-encoding", reply->coding, sizeof reply->coding},
                 {"x-amz-bucket-region", reply->region, sizeof reply->region}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(texts); i++)
        if (!strcasecmp(name, texts[i].name))
            snprintf(texts[i].to, texts[i].bytes, "%s", value);
    if (!strcasecmp(name, "content-range"))
        take_range(reply, value);
    if (!strcasecmp(name, "link"))
        take_link(reply, value);
    if (!strcasecmp(name, "content-length") && !rp_text_u64(value, &reply->length))
        reply->length = RP_SIZE_UNKNOWN;
    if (!strcasecmp(name, "retry-after") && !rp_text_u64(value, &reply->retry_after_s))
        reply->retry_after_s = 0; /* a date: the usual pause serves as well */
}

void rp_reply_header(struct rp_object_reply *reply, const char *line, size_t bytes)
{
    char text[512 + RP_NEXT_BYTES];
    size_t length = rp_min_u64(bytes, sizeof text - 1);
    memcpy(text, line, length);
    while (length && isspace((unsigned char)text[length - 1]))
        length--;
    text[length] = '\0';
    if (!strncmp(text, "HTTP/", 5)) { /* the reply before it was a redirect or interim (1xx) */
        rp_reply_begin(reply);
        const char *status = strchr(text, ' ');
        reply->status = status ? strtol(status, NULL, 10) : 0;
        return;
    }
    char *value = strchr(text, ':');
    if (!value)
        return;
    *value++ = '\0';
    if (bytes > sizeof text - 1 && !strcasecmp(text, "link"))
        reply->is_link_cut = true;
    take_value(reply, text, value + strspn(value, " \t"));
}

/* ---- judging --------------------------------------------------------------------------------- */

/* The reason of an S3 server: <Code>NoSuchBucket</Code>. The rest of the body is not shown: it may
 * repeat the signed text. */
static void find_reason(const struct rp_object_reply *reply, char *text, size_t bytes)
{
    char body[sizeof reply->body + 1];
    memcpy(body, reply->body, reply->body_bytes);
    body[reply->body_bytes] = '\0';
    const char *code = strstr(body, "<Code>");
    size_t length = code ? strspn(code + 6, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
                         : 0;
    snprintf(text, bytes, "HTTP status %ld%s%.*s", reply->status, length ? " " : "",
             (int)rp_min_u64(length, 64), code ? code + 6 : "");
}

static int fail_changed(const struct rp_expected *expected, const char *what, const char *was,
                        const char *is, struct rp_error *error)
{
    return rp_fail(error, -RP_E_CHANGED, CHANGED_HINT, "%s: has changed: %s: expected %s, found %s",
                   expected->name, what, was, is);
}

static enum rp_verdict judge_missing(const struct rp_object_reply *reply,
                                     const struct rp_expected *expected, const char *reason,
                                     struct rp_error *error)
{
    bool has_none = reply->total == 0 || reply->total == RP_SIZE_UNKNOWN; /* some servers omit it */
    if (reply->status == 416 && has_none && expected->total == RP_SIZE_UNKNOWN)
        (void)rp_fail(error, -RP_E_EMPTY, "remove it from the list of shards, or write it again",
                      "%s: found an empty object", expected->name);
    else if (expected->identity || expected->total != RP_SIZE_UNKNOWN)
        (void)rp_fail(error, -RP_E_CHANGED, CHANGED_HINT, "%s: %s: %s", expected->name,
                      reply->status == 404 || reply->status == 410 ? "is gone" : "has changed",
                      reason);
    else
        (void)rp_fail(error, -ENOENT, "check the bucket, the key and the endpoint",
                      "%s: not found (%s)", expected->name, reason);
    return RP_REPLY_WRONG;
}

/* S3 answers 400 to keys of an expired session: with new keys the same request succeeds. */
static bool are_keys_old(const struct rp_object_reply *reply, const char *reason)
{
    static const char *const codes[] = {" ExpiredToken", " TokenRefreshRequired"};
    const char *found = strchr(reason + strlen("HTTP status "), ' ');
    for (size_t i = 0; i < RP_ARRAY_COUNT(codes) && found && reply->status == 400; i++)
        if (!strcmp(found, codes[i]))
            return true;
    return false;
}

/* Is the server busy or broken for a while? Every status of 5xx counts, also the statuses made up
 * by proxies (509, 520 to 530, 598), but for 501 and 505, which mean that a request is not
 * understood. Stores have further reasons, with other statuses. */
static bool is_busy(const struct rp_object_reply *reply, const char *code)
{
    static const char *const codes[] = {"RequestTimeout",
                                        "OperationAborted",
                                        "SlowDown",
                                        "ServiceUnavailable",
                                        "InternalError",
                                        "Throttling",
                                        "ThrottlingException",
                                        "TooManyRequests",
                                        "RequestLimitExceeded",
                                        "BandwidthLimitExceeded",
                                        "PriorRequestNotComplete",
                                        "ConditionalRequestConflict",
                                        "ServerBusy",
                                        "OperationTimedOut"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(codes); i++)
        if (!strcmp(code, codes[i]))
            return true;
    switch (reply->status) {
    case 408:
    case 423:
    case 425:
    case 429:
        return true;
    case 409: /* with a code, it is permanent: an object in an archive, for instance */
        return !*code;
    case 501:
    case 505:
        return false;
    default:
        return reply->status >= 500 && reply->status <= 599;
    }
}

/* The hint for a refused right, by the code of the store. */
static const char *refusal_hint(const char *code)
{
    static const struct {
        const char *code, *hint;
    } hints[] = {
        {"SecondLevelDomainForbidden", VIRTUAL_HINT}, /* OSS */
        {"PathStyleDomainForbidden", VIRTUAL_HINT},   /* COS */
        {"InvalidPathAccess", VIRTUAL_HINT},          /* TOS */
        {"RequestTimeTooSkewed", "set the machine's clock: it differs from the store's"},
        {"AccessDenied",
         "check the keys and their rights to read; of a bucket whose readers pay, set "
         "AWS_REQUEST_PAYER=requester"},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(hints); i++)
        if (!strcmp(code, hints[i].code))
            return hints[i].hint;
    return "check the keys, their rights to read, and the machine's clock";
}

static enum rp_verdict judge_refusal(const struct rp_object_reply *reply,
                                     const struct rp_expected *expected, struct rp_error *error)
{
    char reason[128], hint[RP_HINT_PATH_BYTES + 64] = "check the URL and the endpoint";
    find_reason(reply, reason, sizeof reason);
    const char *code = strchr(reason + strlen("HTTP status "), ' ');
    code = code ? code + 1 : "";
    if (is_busy(reply, code)) {
        (void)rp_fail(error, -RP_E_TIMEOUT, NULL, "%s: %s", expected->name, reason);
        return RP_REPLY_AGAIN;
    }
    switch (are_keys_old(reply, reason) ? 403 : reply->status) {
    case 401:
    case 403:
        (void)rp_fail(error, -EACCES, refusal_hint(code),
                      "%s: the store refuses to give it: %s; %s%s", expected->name, reason,
                      expected->keys_place ? "the keys are from " : "the request had no keys",
                      expected->keys_place ? expected->keys_place : "");
        return RP_REPLY_REFUSED;
    case 404:
    case 410:
    case 412:
    case 416:
        return judge_missing(reply, expected, reason, error);
    default:
        if (reply->region[0])
            snprintf(hint, sizeof hint, "set AWS_REGION=%s, the region of the bucket",
                     RP_TEXT_SHELL_WORD(reply->region));
        (void)rp_fail(error, -RP_E_PROTOCOL, hint, "%s: the server refuses the request: %s",
                      expected->name, reason);
        return RP_REPLY_WRONG;
    }
}

static enum rp_verdict judge_identity(const struct rp_object_reply *reply,
                                      const struct rp_expected *expected, uint64_t total,
                                      struct rp_error *error)
{
    char was[24], is[24];
    snprintf(was, sizeof was, "%" PRIu64, expected->total);
    snprintf(is, sizeof is, "%" PRIu64, total);
    /* "*": the server does not send it. The identity shows that the object is the same. */
    bool is_said = total != RP_SIZE_UNKNOWN || !expected->identity;
    if (expected->total != RP_SIZE_UNKNOWN && total != expected->total && is_said) {
        (void)fail_changed(expected, "bytes", was, is, error);
        return RP_REPLY_WRONG;
    }
    const char *found = rp_reply_identity(reply);
    if (expected->identity && strcmp(found, expected->identity) != 0) {
        (void)fail_changed(expected, "its ETag", expected->identity, *found ? found : "none",
                           error);
        return RP_REPLY_WRONG;
    }
    return RP_REPLY_GOOD;
}

/* Without its next page a list would pass for complete. */
static enum rp_verdict judge_page(const struct rp_object_reply *reply,
                                  const struct rp_expected *expected, struct rp_error *error)
{
    if (!reply->is_link_cut)
        return RP_REPLY_GOOD;
    (void)rp_fail(error, -RP_E_PROTOCOL, "name each object, or a folder with fewer objects",
                  "%s: a list of objects: expected a link to the next page with a query of at most "
                  "%u bytes, found one that is longer, or has no end",
                  expected->name, RP_NEXT_BYTES - 1);
    return RP_REPLY_WRONG;
}

static int fail_ranges(const struct rp_object_reply *reply, const struct rp_expected *expected,
                       struct rp_error *error)
{
    return rp_fail(error, -RP_E_PROTOCOL,
                   "serve it from a store that does, or copy the object to a disk",
                   "%s: the server does not serve ranges: expected status 206 and a "
                   "Content-Range, found status %ld",
                   expected->name, reply->status);
}

/* Bytes that were encoded on the way are not the bytes of the object. A file whose name shows that
 * it is compressed is stored so: a server may repeat it in the header. */
static bool is_as_stored(const struct rp_object_reply *reply, const char *name)
{
    static const struct {
        const char *coding, *ending;
    } as_named[] = {{"gzip", ".gz"},  {"x-gzip", ".gz"}, {"gzip", ".tgz"},
                    {"zstd", ".zst"}, {"br", ".br"},     {"bzip2", ".bz2"}};
    const char *coding = reply->coding;
    if (!*coding || !strcasecmp(coding, "identity") || !strcasecmp(coding, "aws-chunked"))
        return true; /* clients leave it at objects: the coding of an upload */
    for (size_t i = 0; i < RP_ARRAY_COUNT(as_named); i++)
        if (!strcasecmp(coding, as_named[i].coding) && rp_text_has_suffix(name, as_named[i].ending))
            return true;
    return false;
}

static int fail_encoded(const struct rp_object_reply *reply, const struct rp_expected *expected,
                        struct rp_error *error)
{
    char coding[RP_ESCAPED_BYTES(sizeof reply->coding)];
    rp_escape(coding, sizeof coding, reply->coding, "");
    return rp_fail(error, -RP_E_PROTOCOL,
                   "turn compression off in the server, or in the proxy in front of it; if the "
                   "object was stored with a Content-Encoding, store it without",
                   "%s: expected the bytes as they are stored, found Content-Encoding: %s",
                   expected->name, coding);
}

enum rp_verdict rp_reply_judge(const struct rp_object_reply *reply,
                               const struct rp_expected *expected, struct rp_error *error)
{
    bool is_whole = reply->status == 200 && !reply->has_range && expected->first == 0 &&
                    (expected->total == RP_SIZE_UNKNOWN || expected->last + 1 == expected->total);
    if (reply->status < 200 || reply->status > 206)
        return judge_refusal(reply, expected, error);
    if (!is_as_stored(reply, expected->name)) {
        (void)fail_encoded(reply, expected, error);
        return RP_REPLY_WRONG;
    }
    if (expected->is_page)
        return judge_page(reply, expected, error);
    /* More than the requested first bytes: no later range would be answered either. */
    if (is_whole && expected->is_head && reply->length != RP_SIZE_UNKNOWN &&
        reply->length > expected->last + 1) {
        (void)fail_ranges(reply, expected, error);
        return RP_REPLY_WRONG;
    }
    if (is_whole && reply->length != RP_SIZE_UNKNOWN)
        return judge_identity(reply, expected, reply->length, error);
    if (!reply->has_range) {
        (void)fail_ranges(reply, expected, error);
        return RP_REPLY_WRONG;
    }
    uint64_t last = expected->last;
    if (expected->total == RP_SIZE_UNKNOWN && reply->total != RP_SIZE_UNKNOWN)
        last = rp_min_u64(last, reply->total - 1); /* the object may be shorter */
    if (reply->first != expected->first || reply->last != last) {
        (void)rp_fail(error, -RP_E_PROTOCOL, "check the server and its proxies",
                      "%s: wrong range: expected bytes %" PRIu64 " to %" PRIu64 ", found %" PRIu64
                      " to %" PRIu64,
                      expected->name, expected->first, last, reply->first, reply->last);
        return RP_REPLY_WRONG;
    }
    if (expected->total == RP_SIZE_UNKNOWN && reply->total == RP_SIZE_UNKNOWN) {
        (void)rp_fail(error, -RP_E_PROTOCOL, "check the server and its proxies",
                      "%s: the server does not say how long the object is: expected a number at "
                      "the end of its Content-Range, found *",
                      expected->name);
        return RP_REPLY_WRONG;
    }
    return judge_identity(reply, expected, reply->total, error);
}
