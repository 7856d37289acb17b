/* SPDX-License-Identifier: Apache-2.0 */
/* Objects in stores, without a network: signatures against published vectors, URLs, and what each
 * reply of a server is taken for. tests/python/test_remote.py has the servers. */
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
#include "base/sha256.h"
#include "object/remote.h"
#include "object/reply.h"
#include "object/sign.h"
#include "object/url.h"

static void check_digest(const uint8_t digest[RP_SHA256_BYTES], const char *expected)
{
    char text[2 * RP_SHA256_BYTES + 1];
    rp_sha256_hex(digest, text);
    assert_string_equal(text, expected);
}

/* The examples of FIPS 180-2, appendix B: one block, two blocks, a million letters. */
static void test_sha256(void **state)
{
    uint8_t digest[RP_SHA256_BYTES];
    (void)state;
    rp_sha256("abc", 3, digest);
    check_digest(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    rp_sha256(two, strlen(two), digest);
    check_digest(digest, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *many = malloc(1000000);
    memset(many, 'a', 1000000);
    rp_sha256(many, 1000000, digest);
    free(many);
    check_digest(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* RFC 4231, test cases 2 and 6: a short key, and one that is longer than a block. */
static void test_hmac(void **state)
{
    uint8_t digest[RP_SHA256_BYTES], key[131];
    (void)state;
    rp_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, digest);
    check_digest(digest, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    const char *text = "Test Using Larger Than Block-Size Key - Hash Key First";
    rp_hmac_sha256(key, sizeof key, text, strlen(text), digest);
    check_digest(digest, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

/* The example of AWS's "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)",
 * docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html. */
static void test_a_signed_url_is_as_aws_has_it(void **state)
{
    const struct rp_signer signer = {.key_id = "AKIAIOSFODNN7EXAMPLE",
                                     .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                     .region = "us-east-1"};
    (void)state;
    char *url = rp_sign_url(&signer, "https", "examplebucket.s3.amazonaws.com", "/test.txt", NULL,
                            1369353600 /* 2013-05-24T00:00:00Z */, 86400);
    assert_string_equal(
        url, "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
             "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
             "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
             "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
    free(url);
}

static void clear_environment(void)
{
    static const char *const names[] = {
        "AWS_ENDPOINT_URL",        "AWS_ENDPOINT_URL_S3",       "AWS_REGION",
        "AWS_DEFAULT_REGION",      "STORAGE_EMULATOR_HOST",     "HF_ENDPOINT",
        "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_ACCOUNT_NAME"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(names); i++)
        unsetenv(names[i]);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
}

static void test_where_a_url_leads(void **state)
{
    static const struct {
        const char *text, *endpoint, *scheme, *host, *path;
    } cases[] = {
        {"s3://b/k.bin", NULL, "https", "b.s3.us-east-1.amazonaws.com", "/k.bin"},
        {"s3://b.c/k.bin", NULL, "https", "s3.us-east-1.amazonaws.com", "/b.c/k.bin"},
        {"s3://b/a b+/c.bin", NULL, "https", "b.s3.us-east-1.amazonaws.com", "/a%20b%2B/c.bin"},
        {"s3://b/k", "http://127.0.0.1:9000", "http", "127.0.0.1:9000", "/b/k"},
        {"s3://b/k", "https://r2.example/", "https", "r2.example", "/b/k"},
        {"gs://b/k", NULL, "https", "storage.googleapis.com", "/b/k"},
        {"https://h:8443/p/x.bin", NULL, "https", "h:8443", "/p/x.bin"},
        {"hf://datasets/o/n/a b/x.bin", NULL, "https", "huggingface.co",
         "/datasets/o/n/resolve/main/a%20b/x.bin"},
        {"hf://datasets/o/n@v1/x@2.bin", NULL, "https", "huggingface.co",
         "/datasets/o/n/resolve/v1/x%402.bin"},
        {"hf://datasets/o/n@refs/convert/parquet/d/", NULL, "https", "huggingface.co",
         "/datasets/o/n/resolve/refs%2Fconvert%2Fparquet/d/"},
        {"hf://o/n@refs%2Fpr%2F7/x", "http://h:1/base/", "http", "h:1",
         "/base/o/n/resolve/refs%2Fpr%2F7/x"},
        {"hf://spaces/o/n/", NULL, "https", "huggingface.co", "/spaces/o/n/resolve/main"},
    };
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        struct rp_url url;
        struct rp_error error;
        clear_environment();
        if (cases[i].endpoint) {
            setenv("AWS_ENDPOINT_URL", cases[i].endpoint, 1);
            setenv("HF_ENDPOINT", cases[i].endpoint, 1);
        }
        assert_int_equal(rp_url_parse(&url, cases[i].text, &error), 0);
        assert_string_equal(url.scheme, cases[i].scheme);
        assert_string_equal(url.host, cases[i].host);
        assert_string_equal(url.path, cases[i].path);
        assert_string_equal(url.name, cases[i].text);
        rp_url_free(&url);
    }
}

static void test_the_query_of_a_url_is_not_shown(void **state)
{
    struct rp_url url;
    struct rp_error error;
    (void)state;
    assert_int_equal(rp_url_parse(&url, "https://a.blob.core.windows.net/c/x.bin?sig=S%2B", &error),
                     0);
    assert_string_equal(url.query, "sig=S%2B");
    assert_string_equal(url.name, "https://a.blob.core.windows.net/c/x.bin");
    rp_url_free(&url);
    char *beside = rp_url_beside("https://h/x.bin?sig=S", 4, ".idx");
    assert_string_equal(beside, "https://h/x.idx?sig=S");
    free(beside);
}

/* The SAS of an account goes to that account, and is not sent in the clear. */
static void test_where_the_sas_of_the_environment_is_sent(void **state)
{
    static const struct {
        const char *text, *account;
        bool is_sent;
    } cases[] = {
        {"https://mine.blob.core.windows.net/c/x.bin", NULL, true},
        {"https://mine.blob.core.windows.net/c/x.bin", "mine", true},
        {"https://MINE.blob.core.windows.net/c/x.bin", "mine", true},
        {"https://mine.blob.core.windows.net:443/c/x.bin", "mine", true},
        {"https://other.blob.core.windows.net/c/x.bin", "mine", false},
        {"https://min.blob.core.windows.net/c/x.bin", "mine", false},
        {"https://mine2.blob.core.windows.net/c/x.bin", "mine", false},
        {"http://mine.blob.core.windows.net/c/x.bin", NULL, false},
        {"http://mine.blob.core.windows.net/c/x.bin", "mine", false},
        {"https://mine.blob.core.windows.net/c/x.bin?sig=own", NULL, false},
        {"https://mine.blob.core.windows.net.example.org/c/x.bin", NULL, false},
        {"https://example.org/c/x.bin", NULL, false},
        {"s3://mine/c/x.bin", NULL, false},
    };
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        struct rp_url url;
        struct rp_error error;
        clear_environment();
        assert_int_equal(rp_url_parse(&url, cases[i].text, &error), 0);
        assert_null(rp_url_sas(&url));
        setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=S", 1);
        if (cases[i].account)
            setenv("AZURE_STORAGE_ACCOUNT_NAME", cases[i].account, 1);
        const char *sent = rp_url_sas(&url);
        assert_int_equal(sent != NULL, cases[i].is_sent);
        if (sent)
            assert_string_equal(sent, "sv=1&sig=S");
        rp_url_free(&url);
    }
    clear_environment();
}

static void test_an_endpoint_of_the_hub_without_a_scheme_is_refused(void **state)
{
    static const char *const urls[] = {"hf://datasets/o/n/x.bin",
                                       "https://hub.example/datasets/o/n/resolve/main/x.bin"};
    static const char *const endpoints[] = {"hub.example", "hub.example/hf", "ftp://hub.example",
                                            "://"};
    struct rp_url url;
    struct rp_error error;
    (void)state;
    clear_environment();
    for (size_t i = 0; i < RP_ARRAY_COUNT(endpoints); i++) {
        setenv("HF_ENDPOINT", endpoints[i], 1);
        for (size_t k = 0; k < RP_ARRAY_COUNT(urls); k++) {
            assert_int_equal(rp_url_parse(&url, urls[k], &error), -RP_E_CONFIG);
            assert_non_null(strstr(error.message, "HF_ENDPOINT"));
            assert_non_null(strstr(error.message, endpoints[i]));
            assert_non_null(strstr(error.hint, "https://HOST"));
        }
        assert_int_equal(rp_url_parse(&url, "https://h/x.bin", &error), 0); /* of no Hub */
        rp_url_free(&url);
    }
    clear_environment();
}

static void test_queries_tell_objects_apart_and_signatures_do_not(void **state)
{
    static const char bare[] = "https://h/x.bin";
    static const char *const rights[] = {
        "https://h/x.bin#there",
        "https://h/x.bin?",
        "https://h/x.bin?sv=1&st=2&se=3&sp=r&sr=b&sig=S%2B&rscd=attachment",
        "https://h/x.bin?X-Amz-Signature=a&X-Amz-Date=b&x-amz-expires=c&response-content-type=d",
        "https://h/x.bin?AWSAccessKeyId=a&Signature=b&Expires=1",
        "https://h/x.bin?Expires=1&Policy=a&Signature=b&Key-Pair-Id=c",
        "https://h/x.bin?X-Goog-Signature=a&X-Goog-Credential=b&&",
        "https://h/x.bin?x-oss-signature=a&x-oss-date=b&x-oss-expires=1&x-oss-security-token=c",
        "https://h/x.bin?q-sign-time=1&q-signature=a&x-cos-security-token=b&expires=2",
        "https://h/x.bin?AccessKeyId=a&Expires=1&Signature=b&x-obs-security-token=c",
        "https://h/x.bin?response-expires=1&response-cache-control=a&response-content-encoding=b",
        "https://h/x.bin?token=S3CR3T"};
    static const char *const objects[] = {
        bare,
        "https://h/x.bin?versionId=1&X-Amz-Date=9&X-Amz-Signature=b",
        "https://h/x.bin?X-Amz-Date=9&X-Amz-Signature=b&versionId=2",
        "https://h/x.bin?snapshot=2026&sig=c",
        "https://h/x.bin?st=1", /* not of Azure, which has `sig` */
        "https://h/x.bin?st=2",
        "https://h/x.bin?f=S3CR3T",
        "https://h/x.bin?f=S3CR3T&g",
        "https://h/x.bin?X-Amz-Date=9",
        "https://h/x.bin?response-format=json", /* of a program, not of a store */
        "https://h/x.bin?response-format=binary",
        "https://h/x.bin?x-oss-signature=a&x-oss-process=image/resize,w_1",
        "https://h/x.bin?x-oss-signature=a&x-oss-process=image/resize,w_2",
        "https://h/x.bin?expires=1", /* of no signature */
        "https://h/x.bin?expires=2",
        "https://h/y.bin",
        "s3://b/x.bin?a",
        "s3://b/x.bin?b"};
    char *ids[RP_ARRAY_COUNT(objects)];
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(rights); i++) {
        char *id = rp_url_id(rights[i]);
        assert_string_equal(id, bare);
        free(id);
    }
    for (size_t i = 0; i < RP_ARRAY_COUNT(objects); i++) {
        ids[i] = rp_url_id(objects[i]);
        assert_null(strstr(ids[i], "S3CR3T"));
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(ids[i], ids[k]);
    }
    char *other = rp_url_id("https://h/x.bin?X-Amz-Signature=other&versionId=1");
    assert_string_equal(other, ids[1]);
    free(other);
    for (size_t i = 0; i < RP_ARRAY_COUNT(objects); i++)
        free(ids[i]);
}

static void test_urls_of_one_id_must_be_of_one_object(void **state)
{
    static char token_a[] = "https://h/x?token=a", token_b[] = "https://h/x?token=b",
                name[] = "https://h/x", other_name[] = "https://h/y", tag[] = "tag",
                other_tag[] = "other", none[] = "";
    const struct rp_remote a = {.url = token_a, .name = name, .id = name, .identity = tag};
    struct rp_remote b = a, y = a;
    struct rp_error error = {0};
    (void)state;
    b.url = token_b;
    y.url = y.name = y.id = other_name;
    assert_int_equal(rp_remotes_check((struct rp_remote[]){a, y, b, a}, 4, &error), 0);
    b.bytes = 1;
    assert_int_equal(rp_remotes_check((struct rp_remote[]){a, y, b}, 3, &error), -RP_E_CONFIG);
    assert_null(strstr(error.message, "token=a"));
    b.bytes = 0;
    b.identity = other_tag;
    assert_int_equal(rp_remotes_check((struct rp_remote[]){b, y, a}, 3, &error), -RP_E_CONFIG);
    struct rp_remote unknown[] = {a, b};
    unknown[0].identity = unknown[1].identity = none;
    assert_int_equal(rp_remotes_check(unknown, 2, &error), -RP_E_CONFIG);
    unknown[1].url = token_a;
    assert_int_equal(rp_remotes_check(unknown, 2, &error), 0);
}

static void test_bad_urls_are_refused(void **state)
{
    static const char *const bad[] = {
        "ftp://h/x",  "s3://",           "s3:///k",           "https://",    "https://h",
        "https://h/", "https://u:p@h/x", "http://h/a b",      "http://h/\n", "x://",
        "hf://",      "hf://datasets/o", "hf://datasets/o/n", "hf://o/n@/x", "hf://datasets//n/x",
        "hf:///o/n"};
    (void)state;
    clear_environment();
    for (size_t i = 0; i < RP_ARRAY_COUNT(bad); i++) {
        struct rp_url url;
        struct rp_error error;
        assert_true(rp_url_is(bad[i]));
        assert_int_equal(rp_url_parse(&url, bad[i], &error), -RP_E_CONFIG);
        assert_null(strstr(error.message, "u:p"));
        assert_true(error.hint[0]);
    }
    assert_false(rp_url_is("corpus/x.bin"));
    assert_false(rp_url_is("/a://b"));
}

/* ---- replies --------------------------------------------------------------------------------- */

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
        {{"HTTP/1.1 206 P\r\n", "Content-Range: bytes 100-199/*", GOOD_ETAG},
         RP_REPLY_WRONG,
         -RP_E_CHANGED},
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

/* What S3 says in the body of a status 400. */
static enum rp_verdict judge_bad_request(const char *body, struct rp_error *error)
{
    struct rp_object_reply reply;
    rp_reply_begin(&reply);
    rp_reply_header(&reply, "HTTP/1.1 400 Bad Request", 24);
    reply.body_bytes = strlen(body);
    memcpy(reply.body, body, reply.body_bytes);
    return rp_reply_judge(&reply, &known, error);
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

/* At the start nothing is known yet: what is not there is no change. */
static void test_replies_to_the_first_look(void **state)
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

/* Of a redirect and of "100 Continue" nothing is kept. Numbers that do not fit are none. */
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

/* What a page says is the next; "cut": its link cannot be followed, and the page is refused. */
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
    memset(query, 'a', sizeof query - 1); /* of a long line the begin names another page */
    snprintf(line, sizeof line, "Link: <https://h/x?p=1>; rel=prev, <https://h/%s?p>; rel=next",
             query);
    line[sizeof line - 1] = '\0';
    check_next(line, "cut");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_hmac),
        cmocka_unit_test(test_a_signed_url_is_as_aws_has_it),
        cmocka_unit_test(test_where_a_url_leads),
        cmocka_unit_test(test_the_query_of_a_url_is_not_shown),
        cmocka_unit_test(test_where_the_sas_of_the_environment_is_sent),
        cmocka_unit_test(test_an_endpoint_of_the_hub_without_a_scheme_is_refused),
        cmocka_unit_test(test_queries_tell_objects_apart_and_signatures_do_not),
        cmocka_unit_test(test_urls_of_one_id_must_be_of_one_object),
        cmocka_unit_test(test_bad_urls_are_refused),
        cmocka_unit_test(test_replies),
        cmocka_unit_test(test_keys_that_are_over_are_got_anew),
        cmocka_unit_test(test_replies_to_the_first_look),
        cmocka_unit_test(test_headers_of_earlier_replies_and_nonsense),
        cmocka_unit_test(test_the_next_page_of_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
