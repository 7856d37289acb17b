/* SPDX-License-Identifier: Apache-2.0 */
/* url.c — parse URLs, and find the hosts of stores. */
#include "object/url.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bits.h"
#include "base/mem.h"
#include "object/profile.h"
#include "object/sign.h"

static const struct {
    const char *prefix;
    enum rp_store store;
} schemes[] = {{"s3://", RP_STORE_S3},
               {"gs://", RP_STORE_GS},
               {"hf://", RP_STORE_HUB},
               {"https://", RP_STORE_HTTP},
               {"http://", RP_STORE_HTTP}};

bool rp_url_is(const char *text)
{
    const char *at = text;
    while (isalnum((unsigned char)*at) || (at > text && strchr("+-.", *at) && *at))
        at++;
    return at > text && !strncmp(at, "://", 3);
}

static size_t path_length(const char *text)
{
    bool has_query = !strncmp(text, "http", 4);
    return has_query ? strcspn(text, "?#") : strlen(text);
}

static bool has_bucket(const char *text)
{
    return !strncmp(text, "s3://", 5) || !strncmp(text, "gs://", 5) || !strncmp(text, "hf://", 5);
}

#define HUB "https://huggingface.co"
#define GOOGLE "https://storage.googleapis.com"

/* A value without a scheme is refused when a URL of the Hub is parsed. */
static const char *hub_endpoint(void)
{
    const char *given = rp_environment("HF_ENDPOINT");
    return given && strstr(given, "://") ? given : HUB;
}

const char *rp_url_hub_base(size_t *bytes)
{
    const char *host = strstr(hub_endpoint(), "://") + 3;
    const char *base = host + strcspn(host, "/");
    *bytes = strlen(base);
    while (*bytes && base[*bytes - 1] == '/')
        --*bytes;
    return base;
}

static bool is_endpoint_host(const char *host)
{
    const char *given = strstr(hub_endpoint(), "://") + 3;
    size_t length = strcspn(host, "/?#");
    return length == strcspn(given, "/") && !strncasecmp(host, given, length);
}

/* Is this the host of the Hugging Face Hub, or of HF_ENDPOINT? */
static bool is_hub_host(const char *host)
{
    static const char hub[] = "huggingface.co";
    size_t length = strcspn(host, "/?#");
    return is_endpoint_host(host) || (length == sizeof hub - 1 && !strncasecmp(host, hub, length));
}

bool rp_url_may_have_hub_token(const struct rp_url *url)
{
    bool is_asked_for = !strncasecmp(hub_endpoint(), "http://", 7) && is_endpoint_host(url->host);
    return is_hub_host(url->host) && (is_asked_for || !strcasecmp(url->scheme, "https"));
}

/* A file or a folder of a repository, and no page of it: https://HOST/…/resolve/REVISION/… */
static bool is_of_hub(const char *host)
{
    const char *resolve = strstr(host, "/resolve/");
    return is_hub_host(host) && resolve && resolve < host + strcspn(host, "?#");
}

bool rp_url_is_azure_host(const char *host)
{
    static const char suffix[] = ".blob.core.windows.net";
    size_t length = strcspn(host, ":/?#"), bytes = sizeof suffix - 1;
    return length > bytes && !strncasecmp(host + length - bytes, suffix, bytes);
}

/* A SAS is the right to one account. Other accounts, whose owners may name an object of theirs,
 * must not get it. */
static bool is_of_account(const struct rp_url *url)
{
    const char *account = rp_environment("AZURE_STORAGE_ACCOUNT_NAME");
    size_t label = strcspn(url->host, ".");
    bool is_ours = !account ||
                   (strlen(account) == label && !strncasecmp(url->host, account, label));
    return is_ours && !strcmp(url->scheme, "https");
}

const char *rp_url_sas(const struct rp_url *url)
{
    const char *sas = rp_environment("AZURE_STORAGE_SAS_TOKEN");
    if (!sas || url->query || url->store != RP_STORE_HTTP || !rp_url_is_azure_host(url->host) ||
        !is_of_account(url))
        return NULL;
    return *sas == '?' ? sas + 1 : sas;
}

bool rp_url_can_list(const char *text)
{
    const char *host = strstr(text, "://");
    bool is_http = !strncmp(text, "https://", 8) || !strncmp(text, "http://", 7);
    return has_bucket(text) ||
           (is_http && host && (rp_url_is_azure_host(host + 3) || is_of_hub(host + 3)));
}

bool rp_url_is_pattern(const char *text)
{
    const char *wild = has_bucket(text) ? "*?[" : "*[";
    return rp_url_can_list(text) && strcspn(text, wild) < path_length(text);
}

bool rp_url_has_suffix(const char *text, const char *suffix)
{
    size_t length = path_length(text), bytes = strlen(suffix);
    return length > bytes && !memcmp(text + length - bytes, suffix, bytes);
}

char *rp_url_companion(const char *text, size_t cut, const char *suffix)
{
    size_t length = path_length(text);
    return rp_asprintf("%.*s%s%s", (int)(length - cut), text, suffix, text + length);
}

char *rp_url_name(const char *text)
{
    size_t length = path_length(text);
    const char *host = strstr(text, "://");
    host = host ? host + 3 : text;
    const char *end = host + strcspn(host, "/?#");
    const char *at = memrchr(host, '@', (size_t)(end - host));
    if (has_bucket(text) || !at)
        return rp_asprintf("%.*s", (int)length, text);
    return rp_asprintf("%.*s%.*s", (int)(host - text), text,
                       (int)(length - (size_t)(at + 1 - text)), at + 1);
}

void rp_url_free(struct rp_url *url)
{
    free(url->name);
    free(url->scheme);
    free(url->host);
    free(url->path);
    rp_free_secret(url->query);
    free(url->bucket);
    free(url->key);
    *url = (struct rp_url){0};
}

/* ---- hosts of buckets ------------------------------------------------------------------------ */

/* The server that replaces AWS for S3: *endpoint, which the caller frees; NULL: none is configured.
 */
static int given_endpoint(char **endpoint, struct rp_error *error)
{
    bool is_ignored;
    const char *given = rp_environment("AWS_ENDPOINT_URL_S3");
    *endpoint = NULL;
    if (!given)
        given = rp_environment("AWS_ENDPOINT_URL");
    int code = rp_environment_flag("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", &is_ignored, error);
    if (code == 0 && !given && !is_ignored)
        code = rp_profile_check(error);
    if (code == 0 && !is_ignored)
        *endpoint = given ? strdup(given) : rp_profile_service_value("endpoint_url");
    return code;
}

char *rp_s3_region(void)
{
    const char *given = rp_environment("AWS_REGION");
    if (!given)
        given = rp_environment("AWS_DEFAULT_REGION");
    char *region = given ? strdup(given) : rp_profile_value("region");
    return region ? region : strdup("us-east-1");
}

const char *rp_aws_domain(const char *region)
{
    static const struct {
        const char *prefix, *domain;
    } partitions[] = {{"cn-", "amazonaws.com.cn"},    {"eusc-", "amazonaws.eu"},
                      {"us-iso-", "c2s.ic.gov"},      {"us-isob-", "sc2s.sgov.gov"},
                      {"us-isof-", "csp.hci.ic.gov"}, {"eu-isoe-", "cloud.adc-e.uk"}};
    for (size_t i = 0; region && i < RP_ARRAY_COUNT(partitions); i++)
        if (!strncmp(region, partitions[i].prefix, strlen(partitions[i].prefix)))
            return partitions[i].domain;
    return "amazonaws.com";
}

static int check_endpoint(const char *name, const char *endpoint, struct rp_error *error)
{
    bool is_http = !strncmp(endpoint, "http://", 7) || !strncmp(endpoint, "https://", 8);
    const char *host = is_http ? strstr(endpoint, "://") + 3 : endpoint;
    size_t shown = strcspn(endpoint, "?#");
    if (is_http && !memchr(host, '@', strcspn(host, "/")))
        return 0;
    if (is_http) /* it may hold a password */
        return rp_fail(error, -RP_E_CONFIG, "set it to https://HOST",
                       "%s: expected a URL of http or https, found one with a user", name);
    return rp_fail(error, -RP_E_CONFIG, "set it to https://HOST",
                   "%s: expected a URL of http or https, found `%.*s`", name,
                   (int)rp_min_u64(shown, 200), endpoint);
}

/* Bytes of HOST[:PORT] without the default port of its scheme: clients leave that out of the header
 * `Host`, which is signed. */
static size_t host_bytes(const char *scheme, const char *host, size_t length)
{
    size_t name = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (name >= length || host[name] != ':')
        return length;
    const char *digits = host + name + 1;
    size_t zeros = strspn(digits, "0"), count = length - name - 1 - rp_min_u64(zeros, length);
    const char *standard = !strncmp(scheme, "https", 5) ? "443" : "80";
    bool is_standard = count == strlen(standard) && !strncmp(digits + zeros, standard, count);
    return length == name + 1 || is_standard ? name : length;
}

/* Are buckets named in the host, or in the path? */
static int find_style(bool *is_virtual, bool *is_path, struct rp_error *error)
{
    const char *given = rp_environment("AWS_S3_ADDRESSING_STYLE");
    char *style = given ? strdup(given) : rp_profile_value("s3/addressing_style");
    *is_virtual = style && !strcasecmp(style, "virtual");
    *is_path = style && !strcasecmp(style, "path");
    int code = !style || *is_virtual || *is_path || !strcasecmp(style, "auto")
                   ? 0
                   : rp_fail(error, -RP_E_CONFIG, "set it to virtual, path or auto",
                             "AWS_S3_ADDRESSING_STYLE, or addressing_style of the profile: "
                             "expected virtual, path or auto, found `%.64s`",
                             style);
    free(style);
    return code;
}

static bool is_label(const char *text)
{
    size_t length = strlen(text);
    return length <= 63 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length &&
           text[0] != '-' && text[length - 1] != '-';
}

/* http://HOST[/BASE], perhaps from the variable `name` of the environment. */
static int take_endpoint(struct rp_url *url, const char *name, const char *endpoint,
                         const char *key, struct rp_error *error)
{
    bool is_virtual = false, is_path;
    int code = check_endpoint(name, endpoint, error);
    if (code == 0 && url->store == RP_STORE_S3)
        code = find_style(&is_virtual, &is_path, error);
    if (code == 0 && is_virtual && !is_label(url->bucket))
        code = rp_fail(error, -RP_E_CONFIG, "set AWS_S3_ADDRESSING_STYLE=path",
                       "%s: buckets are to be hosts (addressing_style: virtual), and this one's "
                       "name cannot be one",
                       url->name);
    if (code < 0)
        return code;
    const char *host = strstr(endpoint, "://") + 3;
    size_t length = strcspn(host, "/?#"), base_length = strcspn(host + length, "?#");
    const char *base = host + length;
    while (base_length && base[base_length - 1] == '/')
        base_length--;
    url->scheme = rp_asprintf("%.*s", (int)(host - 3 - endpoint), endpoint);
    if (url->store != RP_STORE_HUB) /* no request to it is signed, and hosts are compared */
        length = host_bytes(endpoint, host, length);
    url->host = rp_asprintf("%s%s%.*s", is_virtual ? url->bucket : "", is_virtual ? "." : "",
                            (int)length, host);
    url->path = is_virtual ? rp_asprintf("%.*s/%s", (int)base_length, base, key)
                           : rp_asprintf("%.*s/%s%s%s", (int)base_length, base, url->bucket,
                                         *key ? "/" : "", key);
    return 0;
}

/* A bucket with a dot in its name has no certificate of its own, and one with capitals is no host.
 */
static int place_on_aws(struct rp_url *url, const char *key, struct rp_error *error)
{
    bool is_virtual, is_path;
    char *region = rp_s3_region();
    int code = find_style(&is_virtual, &is_path, error);
    if (code == 0 && region && (!is_label(region) || !*region))
        code = rp_fail(error, -RP_E_CONFIG, "set AWS_REGION to a region, as us-east-1",
                       "AWS_REGION, or region of the profile: expected a region of AWS, found "
                       "`%.64s`",
                       region);
    url->scheme = strdup("https");
    if (code == 0 && region && (is_path || !is_label(url->bucket))) {
        url->host = rp_asprintf("s3.%s.%s", region, rp_aws_domain(region));
        url->path = rp_asprintf("/%s/%s", url->bucket, key);
    } else if (code == 0 && region) {
        url->host = rp_asprintf("%s.s3.%s.%s", url->bucket, region, rp_aws_domain(region));
        url->path = rp_asprintf("/%s", key);
    }
    free(region);
    return code;
}

static int place_in_bucket(struct rp_url *url, struct rp_error *error)
{
    int code = 0;
    char *key = rp_percent_encode(url->key, true), *endpoint = NULL;
    const char *google = rp_environment("STORAGE_EMULATOR_HOST"); /* as Google's own clients */
    static const char *const names[] = {[RP_STORE_S3] = "AWS_ENDPOINT_URL",
                                        [RP_STORE_GS] = "STORAGE_EMULATOR_HOST",
                                        [RP_STORE_HUB] = "HF_ENDPOINT"};
    const char *hub = rp_environment("HF_ENDPOINT");
    if (url->store == RP_STORE_S3)
        code = given_endpoint(&endpoint, error);
    else
        endpoint = url->store == RP_STORE_HUB ? strdup(hub ? hub : HUB)
                                              : strdup(google ? google : GOOGLE);
    if (code == 0 && key && endpoint)
        code = take_endpoint(url, names[url->store], endpoint, key, error);
    else if (code == 0 && key && url->store == RP_STORE_S3)
        code = place_on_aws(url, key, error);
    free(key);
    free(endpoint);
    return code;
}

/* ---- parts of URLs --------------------------------------------------------------------------- */

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* The name of a bucket becomes a part of a host or of a path, and is signed with it. */
static bool is_bucket(const char *text, size_t length)
{
    return length > 0 && length <= 255 && isalnum((unsigned char)*text) &&
           strspn(text, NAME_LETTERS "-._") >= length && !memmem(text, length, "..", 2);
}

static int split_bucket(struct rp_url *url, const char *rest, struct rp_error *error)
{
    size_t length = strcspn(rest, "/");
    if (length == 0)
        return rp_fail(error, -RP_E_CONFIG, "write s3://BUCKET/KEY",
                       "%s: expected a bucket and a key, found no bucket", url->name);
    if (!is_bucket(rest, length))
        return rp_fail(error, -RP_E_CONFIG, "copy the name of the bucket from the store",
                       "%.200s: expected a name of a bucket (letters, digits, dots, dashes and "
                       "underscores), found another character in it",
                       url->name);
    url->bucket = rp_asprintf("%.*s", (int)length, rest);
    url->key = strdup(rest + length + (rest[length] == '/'));
    return url->bucket && url->key ? place_in_bucket(url, error) : 0;
}

/* Bytes of a revision: refs/convert/parquet and refs/pr/7 have three names. */
static size_t revision_bytes(const char *text)
{
    size_t bytes = strcspn(text, "/");
    for (int more = strncmp(text, "refs/", 5) ? 0 : 2; more > 0 && text[bytes]; more--)
        bytes += 1 + strcspn(text + bytes + 1, "/");
    return bytes;
}

/* Split datasets/OWNER/NAME[@REVISION]/KEY; the server's form is …/resolve/REVISION/KEY. */
static int split_hub(struct rp_url *url, const char *rest, struct rp_error *error)
{
    size_t kind = !strncmp(rest, "datasets/", 9) ? 9 : !strncmp(rest, "spaces/", 7) ? 7 : 0;
    size_t owner = kind + strcspn(rest + kind, "/@");
    size_t name = rest[owner] == '/' ? owner + 1 + strcspn(rest + owner + 1, "/@") : owner;
    bool has_revision = rest[name] == '@';
    const char *at = rest + name + has_revision;
    size_t bytes = has_revision ? revision_bytes(at) : 0;
    const char *key = at + bytes;
    bool is_name = strspn(rest + kind, NAME_LETTERS "-._/") >= name - kind &&
                   !memmem(rest, name, "..", 2);
    if (owner == kind || name <= owner + 1 || *key != '/' || (has_revision && bytes == 0) ||
        !is_name)
        return rp_fail(error, -RP_E_CONFIG, "write hf://datasets/OWNER/NAME[@REVISION]/PATH",
                       "%s: expected a repository of the Hub and a path in it", url->name);
    char *given = rp_asprintf("%.*s", (int)bytes, at),
         *plain = rp_percent_decode(given ? given : "");
    char *revision = plain ? rp_percent_encode(has_revision ? plain : "main", false) : NULL;
    if (revision)
        url->bucket = rp_asprintf("%.*s/resolve/%s", (int)name, rest, revision);
    url->key = strdup(key + 1);
    free(given);
    free(plain);
    free(revision);
    return url->bucket && url->key ? place_in_bucket(url, error) : 0;
}

static int split_http(struct rp_url *url, const char *text, const char *rest,
                      struct rp_error *error)
{
    size_t host = strcspn(rest, "/?#"), end = strcspn(rest, "?#");
    if (memchr(rest, '@', host))
        return rp_fail(error, -RP_E_CONFIG, "take them out of the URL",
                       "%s: URLs with a user or a password are not read", url->name);
    if (host == 0 || end <= host + 1)
        return rp_fail(error, -RP_E_CONFIG, "write https://HOST/PATH",
                       "%s: expected a host and a path", url->name);
    size_t plain = 0; /* libcurl judges letters of other scripts */
    while (plain < host &&
           ((unsigned char)rest[plain] >= 128 || strchr(NAME_LETTERS "-._:[]%", rest[plain])))
        plain++;
    if (plain < host)
        return rp_fail(error, -RP_E_CONFIG, "write https://HOST/PATH",
                       "%.200s: expected a name of a host, found another character in it",
                       url->name);
    const char *hub = rp_environment("HF_ENDPOINT"), *resolve = strstr(rest, "/resolve/");
    int code = hub && resolve && resolve < rest + end ? check_endpoint("HF_ENDPOINT", hub, error)
                                                      : 0;
    if (code < 0) /* such a URL may belong to that Hub, whose token would not be sent */
        return code;
    url->scheme = rp_asprintf("%.*s", (int)(rest - 3 - text), text);
    url->host = rp_asprintf("%.*s", (int)host, rest);
    url->path = rp_asprintf("%.*s", (int)(end - host), rest + host);
    if (rest[end] == '?')
        url->query = rp_asprintf("%.*s", (int)strcspn(rest + end + 1, "#"), rest + end + 1);
    return 0;
}

int rp_url_parse(struct rp_url *url, const char *text, struct rp_error *error)
{
    *url = (struct rp_url){.name = rp_url_name(text)};
    const char *rest = NULL;
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0] && !rest; i++)
        if (!strncmp(text, schemes[i].prefix, strlen(schemes[i].prefix))) {
            url->store = schemes[i].store;
            rest = text + strlen(schemes[i].prefix);
        }
    int code = 0;
    for (const char *at = text; url->name && *at && code == 0; at++)
        if (iscntrl((unsigned char)*at) || (*at == ' ' && url->store == RP_STORE_HTTP))
            code = rp_fail(error, -RP_E_CONFIG, "write %20 for a space",
                           "%.*s…: expected a URL without spaces and control characters",
                           (int)rp_min_u64((uint64_t)(at - text), strlen(url->name)), url->name);
    if (code == 0 && url->name && !rest)
        code = rp_fail(error, -RP_E_CONFIG, "copy it to a disk, or to a store of that kind",
                       "%s: expected a path, or a URL of s3, gs, hf, https or http", url->name);
    if (code == 0 && url->name)
        code = url->store == RP_STORE_HTTP  ? split_http(url, text, rest, error)
               : url->store == RP_STORE_HUB ? split_hub(url, rest, error)
                                            : split_bucket(url, rest, error);
    if (code == 0 && (!url->name || !url->scheme || !url->host || !url->path))
        code = rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
    if (code < 0)
        rp_url_free(url);
    return code;
}
