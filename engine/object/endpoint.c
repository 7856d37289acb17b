/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint — see endpoint.h. Addresses and headers are those of AWS's documentation: "Container
 * credential provider" and "Use the Instance Metadata Service". */
#include "object/endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "object/profile.h"
#include "object/curl.h"

#define ANSWER_BYTES_MAX (64u << 10)
#define TOKEN_BYTES_MAX (16u << 10)
#define CONNECT_MS 1000L
#define ANSWER_MS 5000L
#define INSTANCE "http://169.254.169.254"

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

/* The answer to one request, or NULL if there is none, or not 200. The caller frees it, with
 * rp_free_secret. */
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

/* "Authorization: …" for the container's endpoint, "" if it wants none, NULL when out of memory. */
static char *container_header(void)
{
    const char *given = rp_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const char *path = rp_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    char *read = NULL;
    size_t bytes;
    if (path && rp_file_read_all(path, TOKEN_BYTES_MAX, &read, &bytes, NULL) == 0)
        given = read;
    char *header = given ? rp_format("Authorization: %.*s", (int)strcspn(given, "\r\n"), given)
                         : strdup("");
    rp_free_secret(read);
    return header;
}

static char *ask_container(const struct rp_curl *curl, const char *relative, const char *full)
{
    char *url = relative ? rp_format("http://169.254.170.2%s", relative) : strdup(full);
    char *header = container_header();
    char *text = url && header ? ask(curl, "GET", url, *header ? header : NULL) : NULL;
    free(url);
    rp_free_secret(header);
    return text;
}

static char *ask_instance(const struct rp_curl *curl)
{
    static const char roles[] = "/latest/meta-data/iam/security-credentials/";
    const char *given = rp_environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *base = given ? given : INSTANCE;
    char *url = rp_format("%s/latest/api/token", base);
    char *token = url ? ask(curl, "PUT", url, "X-aws-ec2-metadata-token-ttl-seconds: 300") : NULL;
    char *header = token ? rp_format("X-aws-ec2-metadata-token: %s", token) : NULL;
    free(url);
    url = rp_format("%s%s", base, roles);
    char *role = url && header ? ask(curl, "GET", url, header) : NULL;
    free(url);
    url = role ? rp_format("%s%s%.*s", base, roles, (int)strcspn(role, "\r\n"), role) : NULL;
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
    const char *disabled = rp_environment("AWS_EC2_METADATA_DISABLED");
    const struct rp_curl *curl = rp_curl_load(error);
    if (!curl)
        return -RP_E_RESOURCE;
    if (relative || full) {
        *text_out = ask_container(curl, relative, full);
        *place_out = "the container's endpoint";
        return *text_out ? 1
                         : rp_fail(error, -RP_E_RESOURCE, "check the role of the task or pod",
                                   "credentials: the container's endpoint gave none");
    }
    *text_out = disabled && !strcasecmp(disabled, "true") ? NULL : ask_instance(curl);
    *place_out = "the instance's endpoint";
    return *text_out != NULL;
}
