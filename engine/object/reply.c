/* SPDX-License-Identifier: Apache-2.0 */
/* reply — see reply.h. */
#include "object/reply.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bits.h"
#include "base/defect.h"
#include "base/text.h"

#define CHANGED_HINT                                                                               \
    "what was delivered and saved is valid; restore the object and start again, or begin another " \
    "run if the change was meant"

void rp_reply_begin(struct rp_object_reply *reply)
{
    *reply = (struct rp_object_reply){.total = RP_SIZE_UNKNOWN, .length = RP_SIZE_UNKNOWN};
}

const char *rp_reply_identity(const struct rp_object_reply *reply)
{
    return reply->etag[0] ? reply->etag : reply->modified;
}

/* "bytes 0-99/1000", "bytes 0-99/ *", or "bytes * /1000" (without the blanks) of a refusal. */
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
        reply->retry_after_s = 0; /* a date: the usual pause is as good */
}

void rp_reply_header(struct rp_object_reply *reply, const char *line, size_t bytes)
{
    char text[512 + RP_NEXT_BYTES];
    size_t length = rp_min_u64(bytes, sizeof text - 1);
    memcpy(text, line, length);
    while (length && isspace((unsigned char)text[length - 1]))
        length--;
    text[length] = '\0';
    if (!strncmp(text, "HTTP/", 5)) { /* the reply before it was a redirect, or said to go on */
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

/* What an S3 server calls the reason: <Code>NoSuchBucket</Code>. Nothing else of the body is shown:
 * it may repeat what was signed. */
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
    bool has_none = reply->total == 0 || reply->total == RP_SIZE_UNKNOWN; /* not all say it */
    if (reply->status == 416 && has_none && expected->total == RP_SIZE_UNKNOWN)
        (void)rp_fail(error, -RP_E_EMPTY, "remove it from the list of shards, or write it again",
                      "%s: found an empty object", expected->name);
    else if (expected->identity || expected->total != RP_SIZE_UNKNOWN)
        (void)rp_fail(error, -RP_E_CHANGED, CHANGED_HINT, "%s: %s: %s", expected->name,
                      reply->status == 404 || reply->status == 410 ? "is gone"
                                                                   : "is not what it was",
                      reason);
    else
        (void)rp_fail(error, -ENOENT, "check the bucket, the key and the endpoint",
                      "%s: not found (%s)", expected->name, reason);
    return RP_REPLY_WRONG;
}

/* S3 says 400 to keys of a session that is over: with new ones the same request is good. */
static bool are_keys_old(const struct rp_object_reply *reply, const char *reason)
{
    static const char *const codes[] = {" ExpiredToken", " TokenRefreshRequired"};
    const char *found = strchr(reason + strlen("HTTP status "), ' ');
    for (size_t i = 0; i < RP_ARRAY_COUNT(codes) && found && reply->status == 400; i++)
        if (!strcmp(found, codes[i]))
            return true;
    return false;
}

static enum rp_verdict judge_refusal(const struct rp_object_reply *reply,
                                     const struct rp_expected *expected, struct rp_error *error)
{
    char reason[128], hint[160] = "check the URL and the endpoint";
    find_reason(reply, reason, sizeof reason);
    switch (are_keys_old(reply, reason) ? 403 : reply->status) {
    case 408:
    case 425:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
        (void)rp_fail(error, -RP_E_TIMEOUT, NULL, "%s: %s", expected->name, reason);
        return RP_REPLY_AGAIN;
    case 401:
    case 403:
        (void)rp_fail(error, -EACCES,
                      "check the keys, their rights to read, and the machine's clock",
                      "%s: the store refuses to give it: %s; %s%s", expected->name, reason,
                      expected->keys_place ? "the keys are those of " : "the request had no keys",
                      expected->keys_place ? expected->keys_place : "");
        return RP_REPLY_REFUSED;
    case 404:
    case 410:
    case 412:
    case 416:
        return judge_missing(reply, expected, reason, error);
    default:
        if (reply->region[0])
            snprintf(hint, sizeof hint, "set AWS_REGION=%s, where the bucket is", reply->region);
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
    if (expected->total != RP_SIZE_UNKNOWN && total != expected->total) {
        (void)fail_changed(expected, "bytes", was, is, error);
        return RP_REPLY_WRONG;
    }
    const char *found = rp_reply_identity(reply);
    if (expected->identity && strcmp(found, expected->identity) != 0 &&
        !RP_DEFECT(ignore_changed_objects)) {
        (void)fail_changed(expected, "its ETag", expected->identity, *found ? found : "none",
                           error);
        return RP_REPLY_WRONG;
    }
    return RP_REPLY_GOOD;
}

/* Without its next page a list would be taken for whole. */
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

enum rp_verdict rp_reply_judge(const struct rp_object_reply *reply,
                               const struct rp_expected *expected, struct rp_error *error)
{
    bool is_whole = reply->status == 200 && !reply->has_range && expected->first == 0 &&
                    (expected->total == RP_SIZE_UNKNOWN || expected->last + 1 == expected->total);
    if (reply->status < 200 || reply->status > 206)
        return judge_refusal(reply, expected, error);
    if (expected->is_page)
        return judge_page(reply, expected, error);
    if (is_whole && reply->length != RP_SIZE_UNKNOWN)
        return judge_identity(reply, expected, reply->length, error);
    if (!reply->has_range && !RP_DEFECT(ignore_content_range)) {
        (void)rp_fail(error, -RP_E_PROTOCOL,
                      "serve it from a store that does, or copy the object to a disk",
                      "%s: the server does not serve ranges: expected status 206 and a "
                      "Content-Range, found status %ld",
                      expected->name, reply->status);
        return RP_REPLY_WRONG;
    }
    uint64_t last = expected->last;
    if (expected->total == RP_SIZE_UNKNOWN && reply->total != RP_SIZE_UNKNOWN)
        last = rp_min_u64(last, reply->total - 1); /* of an object that is shorter */
    if ((reply->first != expected->first || reply->last != last) &&
        !RP_DEFECT(ignore_content_range)) {
        (void)rp_fail(error, -RP_E_PROTOCOL, "check the server, and what lies in front of it",
                      "%s: wrong range: expected bytes %" PRIu64 " to %" PRIu64 ", found %" PRIu64
                      " to %" PRIu64,
                      expected->name, expected->first, last, reply->first, reply->last);
        return RP_REPLY_WRONG;
    }
    if (expected->total == RP_SIZE_UNKNOWN && reply->total == RP_SIZE_UNKNOWN) {
        (void)rp_fail(error, -RP_E_PROTOCOL, "check the server, and what lies in front of it",
                      "%s: the server does not say how long the object is: expected a number at "
                      "the end of its Content-Range, found *",
                      expected->name);
        return RP_REPLY_WRONG;
    }
    return judge_identity(reply, expected, reply->total, error);
}
