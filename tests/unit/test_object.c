/* SPDX-License-Identifier: Apache-2.0 */
/* Objects in stores, without a network: signatures against published vectors, and URLs. */
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
    const struct rp_url file = {
        .scheme = "https", .host = "examplebucket.s3.amazonaws.com", .path = "/test.txt"};
    char *url = rp_sign_url(&signer, &file, NULL, 1369353600 /* 2013-05-24T00:00:00Z */, 86400);
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
        "AWS_ENDPOINT_URL",   "AWS_ENDPOINT_URL_S3",     "AWS_REGION",
        "AWS_DEFAULT_REGION", "AWS_S3_ADDRESSING_STYLE", "STORAGE_EMULATOR_HOST",
        "HF_ENDPOINT",        "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_ACCOUNT_NAME"};
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
        {"s3://b/k", "http://h:80", "http", "h", "/b/k"},
        {"s3://b/k", "http://h:080/x", "http", "h", "/x/b/k"},
        {"s3://b/k", "http://h:443", "http", "h:443", "/b/k"},
        {"s3://b/k", "https://[::1]:443/", "https", "[::1]", "/b/k"},
        {"s3://b/k", "https://[::1]:8443", "https", "[::1]:8443", "/b/k"},
        {"s3://b/k", "http://h:", "http", "h", "/b/k"},
        {"s3://B_c/k", NULL, "https", "s3.us-east-1.amazonaws.com", "/B_c/k"},
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

/* By the region, and by the way of naming buckets. */
static void test_where_a_bucket_is(void **state)
{
    static const struct {
        const char *region, *style, *endpoint, *host, *path;
    } cases[] = {
        {"cn-north-1", NULL, NULL, "b.s3.cn-north-1.amazonaws.com.cn", "/k"},
        {"eusc-de-east-1", NULL, NULL, "b.s3.eusc-de-east-1.amazonaws.eu", "/k"},
        {"us-gov-west-1", NULL, NULL, "b.s3.us-gov-west-1.amazonaws.com", "/k"},
        {"us-isob-east-1", NULL, NULL, "b.s3.us-isob-east-1.sc2s.sgov.gov", "/k"},
        {"us-east-1", "path", NULL, "s3.us-east-1.amazonaws.com", "/b/k"},
        {"us-east-1", "virtual", "https://h:443/x/", "b.h", "/x/k"},
        {"us-east-1", "auto", "https://h:9", "h:9", "/b/k"},
        {"us-east-1", "both", NULL, NULL, NULL},
        {"evil.example/", NULL, NULL, NULL, NULL},
        {"evil.example#", NULL, NULL, NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        struct rp_url url;
        struct rp_error error;
        clear_environment();
        setenv("AWS_REGION", cases[i].region, 1);
        if (cases[i].style)
            setenv("AWS_S3_ADDRESSING_STYLE", cases[i].style, 1);
        if (cases[i].endpoint)
            setenv("AWS_ENDPOINT_URL", cases[i].endpoint, 1);
        int code = rp_url_parse(&url, "s3://b/k", &error);
        assert_int_equal(code, cases[i].host ? 0 : -RP_E_CONFIG);
        if (code < 0)
            continue;
        assert_string_equal(url.host, cases[i].host);
        assert_string_equal(url.path, cases[i].path);
        rp_url_free(&url);
    }
    clear_environment();
}

/* A part of a signed host or path has no letter that would end either. */
static void test_names_that_are_no_buckets_and_hosts(void **state)
{
    static const char *const urls[] = {
        "s3://evil.example#/k",
        "s3://a@evil.example/k",
        "s3://b?x/k",
        "s3://b%2f/k",
        "s3://../k",
        "s3://b..c/k",
        "s3://-b/k",
        "s3://b:80/k",
        "s3://b\\c/k",
        "gs://b&c/k",
        "s3://b\xc3\xa9/k",
        "hf://datasets/o?x/n/k",
        "hf://datasets/o/../n/k",
        "https://h\\@g/k",
        "https://h,g/k",
        "https://h;g/k",
    };
    (void)state;
    clear_environment();
    for (size_t i = 0; i < RP_ARRAY_COUNT(urls); i++) {
        struct rp_url url;
        struct rp_error error;
        if (rp_url_parse(&url, urls[i], &error) != -RP_E_CONFIG)
            fail_msg("%s", urls[i]);
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
    char *beside = rp_url_companion("https://h/x.bin?sig=S", 4, ".idx");
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
        assert_int_equal(rp_url_parse(&url, "https://h/x.bin", &error), 0); /* not the Hub's */
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
        "https://h/x.bin?response-format=json", /* a program's, not a store's */
        "https://h/x.bin?response-format=binary",
        "https://h/x.bin?x-oss-signature=a&x-oss-process=image/resize,w_1",
        "https://h/x.bin?x-oss-signature=a&x-oss-process=image/resize,w_2",
        "https://h/x.bin?expires=1", /* no signature's */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_hmac),
        cmocka_unit_test(test_a_signed_url_is_as_aws_has_it),
        cmocka_unit_test(test_where_a_url_leads),
        cmocka_unit_test(test_where_a_bucket_is),
        cmocka_unit_test(test_names_that_are_no_buckets_and_hosts),
        cmocka_unit_test(test_the_query_of_a_url_is_not_shown),
        cmocka_unit_test(test_where_the_sas_of_the_environment_is_sent),
        cmocka_unit_test(test_an_endpoint_of_the_hub_without_a_scheme_is_refused),
        cmocka_unit_test(test_queries_tell_objects_apart_and_signatures_do_not),
        cmocka_unit_test(test_urls_of_one_id_must_be_of_one_object),
        cmocka_unit_test(test_bad_urls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
