/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of each reply of a store, without a network. tests/python/test_remote.py has the
 * servers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bits.h"
#include "object/reply.h"

static const struct rp_expected known = {
    .name = "s3://b/k", .first = 100, .last = 199, .total = 1000, .identity = "\"e1\""};

static enum rp_verdict judge(const char *const *lines, const struct rp_expected *expected,
                             struct rp_error *error)
{
    struct rp_object_reply reply;
    rp_reply_begin(&reply);
    for (; *lines; lines++)
        rp_reply_header(&reply, *lines, strlen(*lines));
    return rp_reply_judge(&reply, expected, error);
}

#define REPLY(...) ((const char *const[]){__VA_ARGS__, NULL})
#define GOOD_RANGE "Content-Range: bytes 100-199/1000\r\n"
#define GOOD_ETAG "ETag: \"e1\"\r\n"

static void test_replies(void **state)
{
    struct rp_error error;
    static const struct {
        const char *lines[4];
        enum rp_verdict verdict;
        int code;
    } cases[] = {
        {{"HTTP/1.1 206 Partial\r\n", GOOD_RANGE, GOOD_ETAG}, RP_REPLY_GOOD, 0},
        {{"HTTP/1.1 200 OK\r\n", GOOD_RANGE, GOOD_ETAG}, RP_REPLY_GOOD, 0}, /* some S3 servers */
        {{"HTTP/1.1 200 OK\r\n", "Content-Length: 1000", GOOD_ETAG},
         RP_REPLY_WRONG,
         -RP_E_PROTOCOL},
        {{"HTTP/1.1 206 P\r\n", GOOD_ETAG}, RP_REPLY_WRONG, -RP_E_PROTOCOL},
        {{"HTTP/1.1 206 P\r\n", "Content-Range: bytes 0-99/1000", GOOD_ETAG},
         RP_REPLY_WRONG,
         -RP_E_PROTOCOL},
        {{"HTTP/1.1 206 P\r\n", "Content-Range: bytes 100-198/1000", GOOD_ETAG},
         RP_REPLY_WRONG,
         -RP_E_PROTOCOL},
        {{"HTTP/1.1 206 P\r\n", "Content-Range: bytes 100-199/999", GOOD_ETAG},
         RP_REPLY_WRONG,
         -RP_E_CHANGED},
        {{"HTTP/1.1 206 P\r\n", "Content-Range: bytes 100-199/*", GOOD_ETAG}, RP_REPLY_GOOD, 0},
        {{"HTTP/1.1 206 P\r\n", "Content-Range: bytes 100-199/*", "ETag: \"e2\""},
         RP_REPLY_WRONG,
         -RP_E_CHANGED},
        {{"HTTP/1.1 206 P\r\n", GOOD_RANGE, GOOD_ETAG, "Content-Encoding: gzip"},
         RP_REPLY_WRONG,
         -RP_E_PROTOCOL},
        {{"HTTP/1.1 206 P\r\n", GOOD_RANGE, GOOD_ETAG, "content-encoding: aws-chunked"},
         RP_REPLY_GOOD,
         0},
        {{"HTTP/1.1 206 P\r\n", GOOD_RANGE, "ETag: \"e2\""}, RP_REPLY_WRONG, -RP_E_CHANGED},
        {{"HTTP/1.1 206 P\r\n", GOOD_RANGE}, RP_REPLY_WRONG, -RP_E_CHANGED},
        {{"HTTP/1.1 404 Not Found\r\n"}, RP_REPLY_WRONG, -RP_E_CHANGED},
        {{"HTTP/1.1 412 P\r\n"}, RP_REPLY_WRONG, -RP_E_CHANGED},
        {{"HTTP/1.1 416 R\r\n", "Content-Range: bytes */50"}, RP_REPLY_WRONG, -RP_E_CHANGED},
        {{"HTTP/1.1 403 F\r\n"}, RP_REPLY_REFUSED, -EACCES},
        {{"HTTP/1.1 503 Slow Down\r\n", "Retry-After: 3"}, RP_REPLY_AGAIN, -RP_E_TIMEOUT},
        {{"HTTP/1.1 429 Too Many\r\n"}, RP_REPLY_AGAIN, -RP_E_TIMEOUT},
        {{"HTTP/1.1 301 Moved\r\n", "x-amz-bucket-region: eu-west-1"},
         RP_REPLY_WRONG,
         -RP_E_PROTOCOL},
    };
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        const char *lines[5] = {0};
        memcpy(lines, cases[i].lines, sizeof cases[i].lines);
        error.code = 0;
        assert_int_equal(judge(lines, &known, &error), cases[i].verdict);
        assert_int_equal(error.code, cases[i].code);
        if (error.code < 0)
            assert_non_null(strstr(error.message, "s3://b/k"));
    }
    assert_int_equal(
        judge(REPLY("HTTP/1.1 301 Moved", "x-amz-bucket-region: eu-west-1"), &known, &error),
        RP_REPLY_WRONG);
    assert_non_null(strstr(error.hint, "AWS_REGION=eu-west-1"));
}

/* The body of S3's refusals. */
static enum rp_verdict judge_status(int status, const char *body, struct rp_error *error)
{
    struct rp_object_reply reply;
    char line[64];
    snprintf(line, sizeof line, "HTTP/1.1 %d No", status);
    rp_reply_begin(&reply);
    rp_reply_header(&reply, line, strlen(line));
    reply.body_bytes = strlen(body);
    memcpy(reply.body, body, reply.body_bytes);
    return rp_reply_judge(&reply, &known, error);
}

static enum rp_verdict judge_bad_request(const char *body, struct rp_error *error)
{
    return judge_status(400, body, error);
}

/* Every busy status waits, whoever made it up; one that a retry cannot mend does not. */
static void test_busy_stores_are_asked_again(void **state)
{
    static const struct {
        int status;
        const char *code;
        bool is_busy;
    } cases[] = {
        {500, "", true},
        {502, "", true},
        {507, "", true},
        {509, "", true},
        {520, "", true},
        {524, "", true},
        {530, "", true},
        {598, "", true},
        {501, "NotImplemented", false},
        {505, "", false},
        {600, "", false},
        {400, "RequestTimeout", true},
        {400, "InvalidRequest", false},
        {409, "OperationAborted", true},
        {409, "", true},
        {409, "BlobBeingRehydrated", false},
        {403, "AccessDenied", false},
        {403, "RequestLimitExceeded", true},
        {408, "", true},
        {423, "", true},
        {425, "", true},
        {429, "", true},
        {451, "", false},
    };
    struct rp_error error;
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        char body[128];
        snprintf(body, sizeof body, "<Error><Code>%s</Code></Error>", cases[i].code);
        bool waits = judge_status(cases[i].status, body, &error) == RP_REPLY_AGAIN;
        if (waits != cases[i].is_busy)
            fail_msg("%d %s", cases[i].status, cases[i].code);
    }
}

/* A hint is to be pasted into a shell, and the server writes a part of it. */
static void test_a_region_that_a_server_names_is_quoted(void **state)
{
    struct rp_error error;
    (void)state;
    (void)judge(REPLY("HTTP/1.1 301 Moved", "x-amz-bucket-region: x;reboot"), &known, &error);
    assert_non_null(strstr(error.hint, "AWS_REGION='x;reboot'"));
}

/* Only an object that is compressed by its name may be called so. */
static void test_codings_of_bytes(void **state)
{
    struct rp_expected named = known;
    struct rp_error error;
    (void)state;
    named.name = "s3://b/k.jsonl.gz";
    const char *const *lines = REPLY("HTTP/1.1 206 P", GOOD_RANGE, GOOD_ETAG,
                                     "Content-Encoding: gzip");
    assert_int_equal(judge(lines, &named, &error), RP_REPLY_GOOD);
    named.name = "s3://b/k.jsonl.zst";
    assert_int_equal(judge(lines, &named, &error), RP_REPLY_WRONG);
    assert_non_null(strstr(error.message, "found Content-Encoding: gzip"));
}

/* A server without ranges gives all of an object to the first look, and is found out by it. */
static void test_a_look_that_is_answered_with_the_whole_object(void **state)
{
    struct rp_expected look = {
        .name = "s3://b/k", .is_head = true, .last = 15, .total = RP_SIZE_UNKNOWN};
    struct rp_error error;
    (void)state;
    assert_int_equal(judge(REPLY("HTTP/1.1 200 OK", "Content-Length: 16"), &look, &error),
                     RP_REPLY_GOOD);
    assert_int_equal(judge(REPLY("HTTP/1.1 200 OK", "Content-Length: 17"), &look, &error),
                     RP_REPLY_WRONG);
    assert_non_null(strstr(error.message, "does not serve ranges"));
}

static void test_keys_that_are_over_are_got_anew(void **state)
{
    static const char *const old[] = {"<Error><Code>ExpiredToken</Code></Error>",
                                      "<Error><Code>TokenRefreshRequired</Code></Error>"};
    static const char *const other[] = {"<Error><Code>InvalidRequest</Code></Error>",
                                        "<Error><Code>ExpiredTokenX</Code></Error>",
                                        "<Error>ExpiredToken</Error>", ""};
    struct rp_error error;
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(old); i++) {
        assert_int_equal(judge_bad_request(old[i], &error), RP_REPLY_REFUSED);
        assert_int_equal(error.code, -EACCES);
        assert_non_null(strstr(error.message, "HTTP status 400"));
    }
    for (size_t i = 0; i < RP_ARRAY_COUNT(other); i++)
        assert_int_equal(judge_bad_request(other[i], &error), RP_REPLY_WRONG);
}

/* At the start no object is known yet: an absent one is no change. */
static void test_replies_to_the_head_request(void **state)
{
    struct rp_error error;
    struct rp_expected unknown = {.name = "s3://b/k", .last = 15, .total = RP_SIZE_UNKNOWN};
    (void)state;
    assert_int_equal(
        judge(REPLY("HTTP/1.1 206 P", "Content-Range: bytes 0-15/1000"), &unknown, &error),
        RP_REPLY_GOOD);
    assert_int_equal(
        judge(REPLY("HTTP/1.1 206 P", "Content-Range: bytes 0-9/10"), &unknown, &error),
        RP_REPLY_GOOD);
    assert_int_equal(judge(REPLY("HTTP/1.1 200 OK", "Content-Length: 1000"), &unknown, &error),
                     RP_REPLY_GOOD);
    assert_int_equal(judge(REPLY("HTTP/1.1 200 OK"), &unknown, &error), RP_REPLY_WRONG);
    assert_int_equal(
        judge(REPLY("HTTP/1.1 206 P", "Content-Range: bytes 0-15/*"), &unknown, &error),
        RP_REPLY_WRONG);
    assert_int_equal(error.code, -RP_E_PROTOCOL);
    assert_non_null(strstr(error.message, "how long the object is"));
    assert_int_equal(judge(REPLY("HTTP/1.1 404 N"), &unknown, &error), RP_REPLY_WRONG);
    assert_int_equal(error.code, -ENOENT);
    assert_int_equal(judge(REPLY("HTTP/1.1 416 R", "Content-Range: bytes */0"), &unknown, &error),
                     RP_REPLY_WRONG);
    assert_int_equal(error.code, -RP_E_EMPTY);
}

/* No part of a redirect or of "100 Continue" is kept. Numbers that do not fit are none. */
static void test_headers_of_earlier_replies_and_nonsense(void **state)
{
    struct rp_error error;
    (void)state;
    assert_int_equal(
        judge(REPLY("HTTP/1.1 302 Found", "ETag: \"e9\"", "HTTP/1.1 206 P", GOOD_RANGE, GOOD_ETAG),
              &known, &error),
        RP_REPLY_GOOD);
    static const char *const nonsense[] = {"Content-Range: bytes 99999999999999999999-1/1000",
                                           "Content-Range: bytes 199-100/1000",
                                           "Content-Range: bytes",
                                           "Content-Range: items 100-199/1000",
                                           "Content-Range:",
                                           ":",
                                           ""};
    for (size_t i = 0; i < RP_ARRAY_COUNT(nonsense); i++)
        assert_int_equal(judge(REPLY("HTTP/1.1 206 P", nonsense[i], GOOD_ETAG), &known, &error),
                         RP_REPLY_WRONG);
}

/* The next page that a page names; "cut": its link cannot be followed, and the page is refused. */
static void check_next(const char *line, const char *expected)
{
    const struct rp_expected page = {.name = "a list", .is_page = true};
    struct rp_error error = {0};
    struct rp_object_reply reply;
    rp_reply_begin(&reply);
    rp_reply_header(&reply, "HTTP/1.1 200 OK", 15);
    rp_reply_header(&reply, line, strlen(line));
    enum rp_verdict verdict = rp_reply_judge(&reply, &page, &error);
    if (!strcmp(expected, "cut")) {
        assert_int_equal(verdict, RP_REPLY_WRONG);
        assert_int_equal(error.code, -RP_E_PROTOCOL);
        return;
    }
    assert_int_equal(verdict, RP_REPLY_GOOD);
    assert_string_equal(reply.next, expected);
}

static void test_the_next_page_of_a_list(void **state)
{
    (void)state;
    check_next("Link: <https://h/api/x?cursor=a%3D&limit=2>; rel=\"next\"\r\n",
               "cursor=a%3D&limit=2");
    check_next("link: <https://h/x?p=1>; rel=prev, <https://h/x?p=3>; rel=next", "p=3");
    static const char *const none[] = {"Link: <https://h/x?p=1>; rel=\"prev\"",
                                       "Link: <https://h/x>; rel=next",
                                       "Link: <>",
                                       "Link: ",
                                       "Link: x?p=1>; rel=next",
                                       "Link: <https://h/x?p=1>; re",
                                       "Link: <https://h/x?p=1>; rel="};
    for (size_t i = 0; i < RP_ARRAY_COUNT(none); i++)
        check_next(none[i], "");
    check_next("Link: <https://h/x?p=1", "cut");
    char query[4096], line[sizeof query + 64];
    static const size_t lengths[] = {RP_NEXT_BYTES - 1, RP_NEXT_BYTES, RP_NEXT_BYTES + 600,
                                     sizeof query - 1};
    for (size_t i = 0; i < RP_ARRAY_COUNT(lengths); i++) {
        memset(query, 'a', lengths[i]);
        query[lengths[i]] = '\0';
        snprintf(line, sizeof line, "Link: <https://h/x?%s>; rel=next", query);
        check_next(line, lengths[i] < RP_NEXT_BYTES ? query : "cut");
    }
    memset(query, 'a', sizeof query - 1); /* the beginning of a long line names another page */
    snprintf(line, sizeof line, "Link: <https://h/x?p=1>; rel=prev, <https://h/%s?p>; rel=next",
             query);
    line[sizeof line - 1] = '\0';
    check_next(line, "cut");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replies),
        cmocka_unit_test(test_busy_stores_are_asked_again),
        cmocka_unit_test(test_a_region_that_a_server_names_is_quoted),
        cmocka_unit_test(test_codings_of_bytes),
        cmocka_unit_test(test_a_look_that_is_answered_with_the_whole_object),
        cmocka_unit_test(test_keys_that_are_over_are_got_anew),
        cmocka_unit_test(test_replies_to_the_head_request),
        cmocka_unit_test(test_headers_of_earlier_replies_and_nonsense),
        cmocka_unit_test(test_the_next_page_of_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
