/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.c — request keys from the container's or the instance's endpoint. Addresses and headers
 * are from AWS's documentation: "Container credential provider" and "Use the Instance Metadata
 * Service". */
#include "object/endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/mem.h"
#include "object/profile.h"
#include "object/curl.h"

#define ANSWER_BYTES_MAX (64u << 10)
#define TOKEN_BYTES_MAX (16u << 10)
#define CONNECT_MS 1000L
#define ANSWER_MS 5000L
#define INSTANCE "http://169.254.169.254"
#define INSTANCE_6 "http://[fd00:ec2::254]"

struct answer {
    char *text; /* [ANSWER_BYTES_MAX], with a NUL */
    size_t bytes;
};

static size_t take_part(char *data, size_t size, size_t count, void *context)
{
    struct answer *answer = context;
    size_t bytes = size * count;
    if (bytes >= ANSWER_BYTES_MAX - answer->bytes)
        return 0;
    memcpy(answer->text + answer->bytes, data, bytes);
    answer->bytes += bytes;
    answer->text[answer->bytes] = '\0';
    return bytes;
}

/* The body of one reply, or NULL if no reply came, or its status is not 200. The caller frees it
 * with rp_free_secret. */
static char *ask(const struct rp_curl *curl, const char *method, const char *url,
                 const char *header)
{
    struct answer answer = {.text = rp_calloc(1, ANSWER_BYTES_MAX)};
    struct curl_slist *headers = header ? curl->slist_append(NULL, header) : NULL;
    CURL *easy = answer.text ? curl->easy_init() : NULL;
    long status = 0;
    if (easy && (headers || !header)) {
        curl->easy_setopt(easy, CURLOPT_URL, url);
        curl->easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
        curl->easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
        curl->easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
        curl->easy_setopt(easy, CURLOPT_PROXY, "");
        curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
        curl->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
        curl->easy_setopt(easy, CURLOPT_TIMEOUT_MS, ANSWER_MS);
        curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_part);
        curl->easy_setopt(easy, CURLOPT_WRITEDATA, &answer);
        if (curl->easy_perform(easy) == CURLE_OK)
            curl->easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    }
    if (easy)
        curl->easy_cleanup(easy);
    curl->slist_free_all(headers);
    if (status == 200)
        return answer.text;
    rp_free_secret(answer.text);
    return NULL;
}

/* "Authorization: …" for the container's endpoint, "" if it needs none, NULL when out of memory. */
static char *container_header(void)
{
    const char *given = rp_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const char *path = rp_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    char *read = NULL;
    size_t bytes;
    if (path && rp_file_read_all(path, TOKEN_BYTES_MAX, &read, &bytes, NULL) == 0)
        given = read;
    char *header = given ? rp_asprintf("Authorization: %.*s", (int)strcspn(given, "\r\n"), given)
                         : strdup("");
    rp_free_secret(read);
    return header;
}

/* Over http, keys go only to this machine, or to the addresses that ECS and EKS have for it. Any
 * other host could belong to a stranger. */
static bool is_local(const char *url)
{
    static const char *const hosts[] = {"localhost", "[::1]", "169.254.170.2", "169.254.170.23",
                                        "[fd00:ec2::23]"};
    const char *host = url + strlen("http://");
    size_t length = *host == '[' ? strcspn(host, "]/") + 1 : strcspn(host, ":/?#");
    for (size_t i = 0; i < RP_ARRAY_COUNT(hosts); i++)
        if (strlen(hosts[i]) == length && !strncasecmp(host, hosts[i], length))
            return true;
    return !strncmp(host, "127.", 4) && strspn(host, "0123456789.") == length;
}

static int ask_container(const struct rp_curl *curl, const char *relative, const char *full,
                         char **text_out, struct rp_error *error)
{
    if (!relative && !strncasecmp(full, "http://", 7) && !is_local(full))
        return rp_fail(error, -RP_E_CONFIG, "name it by https, or by an address of this machine",
                       "credentials: AWS_CONTAINER_CREDENTIALS_FULL_URI is an http URL of another "
                       "host, where keys would be read by others");
    char *url = relative ? rp_asprintf("http://169.254.170.2%s", relative) : strdup(full);
    char *header = container_header();
    *text_out = url && header ? ask(curl, "GET", url, *header ? header : NULL) : NULL;
    free(url);
    rp_free_secret(header);
    return *text_out ? 1
                     : rp_fail(error, -RP_E_RESOURCE, "check the role of the task or pod",
                               "credentials: the container's endpoint gave none");
}

static char *ask_instance(const struct rp_curl *curl)
{
    static const char roles[] = "/latest/meta-data/iam/security-credentials/";
    const char *given = rp_environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *mode = rp_environment("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    const char *base = given ? given : mode && !strcasecmp(mode, "IPv6") ? INSTANCE_6 : INSTANCE;
    char *url = rp_asprintf("%s/latest/api/token", base);
    char *token = url ? ask(curl, "PUT", url, "X-aws-ec2-metadata-token-ttl-seconds: 300") : NULL;
    char *header = token ? rp_asprintf("X-aws-ec2-metadata-token: %s", token) : NULL;
    free(url);
    url = rp_asprintf("%s%s", base, roles);
    char *role = url && header ? ask(curl, "GET", url, header) : NULL;
    free(url);
    url = role ? rp_asprintf("%s%s%.*s", base, roles, (int)strcspn(role, "\r\n"), role) : NULL;
    char *text = url ? ask(curl, "GET", url, header) : NULL;
    free(url);
    rp_free_secret(token);
    rp_free_secret(header);
    free(role);
    return text;
}

int rp_endpoint_ask(char **text_out, const char **place_out, struct rp_error *error)
{
    const char *relative = rp_environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = rp_environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    bool is_disabled;
    const struct rp_curl *curl = rp_curl_load(error);
    if (!curl)
        return -RP_E_RESOURCE;
    *text_out = NULL;
    *place_out = relative || full ? "the container's endpoint" : "the instance's endpoint";
    if (relative || full)
        return ask_container(curl, relative, full, text_out, error);
    int code = rp_environment_flag("AWS_EC2_METADATA_DISABLED", &is_disabled, error);
    if (code < 0 || is_disabled)
        return code;
    *text_out = ask_instance(curl);
    return *text_out != NULL;
}

int rp_endpoint_post(const char *url, const char *body, char **answer_out, long *status_out,
                     struct rp_error *error)
{
    const struct rp_curl *curl = rp_curl_load(error);
    struct answer answer = {.text = rp_calloc(1, ANSWER_BYTES_MAX)};
    CURL *easy = curl && answer.text ? curl->easy_init() : NULL;
    const char *authorities = rp_environment_authorities();
    *answer_out = answer.text;
    *status_out = 0;
    if (!easy)
        return curl ? rp_fail(error, -ENOMEM, NULL, "out of memory for a request") : -RP_E_RESOURCE;
    curl->easy_setopt(easy, CURLOPT_URL, url);
    curl->easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    curl->easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, ANSWER_MS);
    curl->easy_setopt(easy, CURLOPT_TIMEOUT_MS, 2 * ANSWER_MS);
    curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_part);
    curl->easy_setopt(easy, CURLOPT_WRITEDATA, &answer);
    if (authorities)
        curl->easy_setopt(easy, CURLOPT_CAINFO, authorities);
    if (curl->easy_perform(easy) == CURLE_OK)
        curl->easy_getinfo(easy, CURLINFO_RESPONSE_CODE, status_out);
    curl->easy_cleanup(easy);
    return 0;
}
