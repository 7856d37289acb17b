/* SPDX-License-Identifier: Apache-2.0 */
/* web_identity.c — request keys from STS. The request and its reply are as in AWS's documentation:
 * docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html. */
#include "object/web_identity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/mem.h"
#include "object/endpoint.h"
#include "object/profile.h"
#include "object/sign.h"
#include "object/url.h"

#define TOKEN_BYTES_MAX (32u << 10)

void rp_web_identity_free(struct rp_web_identity *identity)
{
    free(identity->role);
    free(identity->token_file);
    free(identity->session);
    *identity = (struct rp_web_identity){0};
}

int rp_web_identity_find(struct rp_web_identity *identity, struct rp_error *error)
{
    const char *role = rp_environment("AWS_ROLE_ARN");
    const char *file = rp_environment("AWS_WEB_IDENTITY_TOKEN_FILE");
    const char *session = rp_environment("AWS_ROLE_SESSION_NAME");
    *identity = (struct rp_web_identity){0};
    if (!role != !file)
        return rp_fail(error, -RP_E_CONFIG, "set both, or unset it",
                       "credentials: a web identity: expected AWS_ROLE_ARN and "
                       "AWS_WEB_IDENTITY_TOKEN_FILE in the environment, found only %s",
                       role ? "AWS_ROLE_ARN" : "AWS_WEB_IDENTITY_TOKEN_FILE");
    identity->role = role ? strdup(role) : rp_profile_value("role_arn");
    identity->token_file = file ? strdup(file) : rp_profile_value("web_identity_token_file");
    identity->session = session ? strdup(session) : rp_profile_value("role_session_name");
    if (!identity->session)
        identity->session = rp_asprintf("ringpack-%lld", (long long)time(NULL));
    if (identity->token_file && !identity->role)
        return rp_fail(error, -RP_E_CONFIG, "add role_arn to it",
                       "credentials: the profile %.100s of ~/.aws has a web_identity_token_file, "
                       "and no role_arn",
                       rp_profile_name());
    return identity->role && identity->token_file && identity->session;
}

/* The URL of STS. AWS_ENDPOINT_URL is mostly a store, and must not get the token. */
static int find_service(char **url, struct rp_error *error)
{
    const char *given = rp_environment("AWS_ENDPOINT_URL_STS");
    char *region = rp_s3_region();
    int code = 0;
    if (!given && rp_environment("AWS_ENDPOINT_URL"))
        code = rp_fail(error, -RP_E_CONFIG,
                       "set AWS_ENDPOINT_URL_STS to the STS, and AWS_ENDPOINT_URL_S3 in the place "
                       "of AWS_ENDPOINT_URL",
                       "credentials: a web identity and AWS_ENDPOINT_URL are given: expected the "
                       "STS to be named");
    else
        *url = given
                   ? strdup(given)
                   : rp_asprintf("https://sts.%s.%s", region ? region : "", rp_aws_domain(region));
    free(region);
    return code < 0 ? code : *url ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
}

/* The text of an element of the reply, which has no attributes; the caller frees it. */
static char *element(const char *xml, const char *name)
{
    char open[32];
    snprintf(open, sizeof open, "<%s>", name);
    const char *begin = strstr(xml, open), *end = begin ? strchr(begin + strlen(open), '<') : NULL;
    begin = begin ? begin + strlen(open) : NULL;
    bool is_plain = end && strcspn(begin, "&\"\\") >= (size_t)(end - begin);
    return is_plain ? rp_asprintf("%.*s", (int)(end - begin), begin) : NULL;
}

/* Convert the XML to the JSON of the other places. */
static char *as_json(const char *xml)
{
    char *id = element(xml, "AccessKeyId"), *secret = element(xml, "SecretAccessKey");
    char *token = element(xml, "SessionToken"), *expires = element(xml, "Expiration");
    char *json = id && secret && token && expires
                     ? rp_asprintf("{\"AccessKeyId\":\"%s\",\"SecretAccessKey\":\"%s\","
                                   "\"SessionToken\":\"%s\",\"Expiration\":\"%s\"}",
                                   id, secret, token, expires)
                     : strdup("{}");
    free(id);
    rp_free_secret(secret);
    rp_free_secret(token);
    free(expires);
    return json;
}

static int fail_answer(long status, const char *answer, struct rp_error *error)
{
    char *code = answer ? element(answer, "Code") : NULL;
    bool may_pass = status == 0 || status == 429 || status >= 500 ||
                    (code &&
                     (!strcmp(code, "Throttling") || !strcmp(code, "IDPCommunicationError")));
    char said[32] = "no answer";
    if (status)
        snprintf(said, sizeof said, "HTTP status %ld", status);
    int made = rp_fail(error, may_pass ? -RP_E_TIMEOUT : -EACCES,
                       may_pass ? "check the network and the STS of the region (AWS_REGION)"
                                : "check the trust policy of the role, and that the token is its "
                                  "own",
                       "credentials: STS gives no keys for the web identity: %s%s%.64s", said,
                       code ? " " : "", code ? code : "");
    free(code);
    return made;
}

int rp_web_identity_ask(const struct rp_web_identity *identity, char **text_out,
                        struct rp_error *error)
{
    char *url = NULL, *token = NULL, *body = NULL, *answer = NULL;
    size_t bytes;
    long status = 0;
    int code = find_service(&url, error);
    if (code == 0)
        code = rp_file_read_all(identity->token_file, TOKEN_BYTES_MAX, &token, &bytes, error);
    if (code < 0) {
        free(url);
        return rp_fail_context(error, code, "credentials: the web identity");
    }
    token[strcspn(token, " \r\n")] = '\0';
    char *role = rp_percent_encode(identity->role, false);
    char *session = rp_percent_encode(identity->session, false);
    char *encoded = rp_percent_encode(token, false);
    if (role && session && encoded)
        body = rp_asprintf("Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=%s"
                           "&RoleSessionName=%s&WebIdentityToken=%s",
                           role, session, encoded);
    code = body ? rp_endpoint_post(url, body, &answer, &status, error)
                : rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
    if (code == 0 && status == 200)
        code = (*text_out = as_json(answer)) ? 1 : rp_fail(error, -ENOMEM, NULL, "out of memory");
    else if (code == 0)
        code = fail_answer(status, answer, error);
    free(url);
    free(role);
    free(session);
    rp_free_secret(token);
    rp_free_secret(encoded);
    rp_free_secret(body);
    rp_free_secret(answer);
    return code;
}
