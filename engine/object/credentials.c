/* SPDX-License-Identifier: Apache-2.0 */
/* credentials — see credentials.h. */
#include "object/credentials.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "object/curl.h"
#include "object/endpoint.h"
#include "object/profile.h"

#define EARLY_S 300 /* they are got again so long before they expire */
#define RENEW_S 10  /* and refused ones not more often than this */
#define OUTPUT_BYTES_MAX (64u << 10)
#define HINT                                                                                       \
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; a public bucket is read "    \
    "with AWS_NO_SIGN_REQUEST=1"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rp_credentials known; /* of the process */
static bool are_known;
static time_t known_since;

static char *copy_of(const char *text)
{
    return text ? strdup(text) : NULL;
}

void rp_credentials_free(struct rp_credentials *credentials)
{
    free(credentials->key_id);
    rp_free_secret(credentials->secret);
    rp_free_secret(credentials->session_token);
    *credentials = (struct rp_credentials){0};
}

/* 2026-11-22T07:00:00Z; 0 if it is none. */
static time_t moment_of(const char *text)
{
    struct tm utc = {0};
    return text && strptime(text, "%Y-%m-%dT%H:%M:%S", &utc) ? timegm(&utc) : 0;
}

/* What credential_process, the container and the instance answer: the same JSON, but for the name
 * of the session's token. */
static int take_json(struct rp_credentials *made, const char *text, const char *place,
                     struct rp_error *error)
{
    json_t *root = json_loads(text, 0, NULL);
    const char *key_id = json_string_value(json_object_get(root, "AccessKeyId"));
    const char *secret = json_string_value(json_object_get(root, "SecretAccessKey"));
    const char *token = json_string_value(json_object_get(root, "SessionToken"));
    if (!token)
        token = json_string_value(json_object_get(root, "Token"));
    int code = 0;
    if (!key_id || !secret)
        code = rp_fail(error, -RP_E_FORMAT, HINT,
                       "credentials: %s: expected a JSON object with AccessKeyId and "
                       "SecretAccessKey, found something else",
                       place);
    else
        *made = (struct rp_credentials){
            .key_id = strdup(key_id),
            .secret = strdup(secret),
            .session_token = copy_of(token),
            .expires = moment_of(json_string_value(json_object_get(root, "Expiration"))),
            .place = place};
    json_decref(root);
    return code;
}

static bool from_environment(struct rp_credentials *made)
{
    const char *key_id = rp_environment("AWS_ACCESS_KEY_ID");
    const char *secret = rp_environment("AWS_SECRET_ACCESS_KEY");
    if (!key_id || !secret)
        return false;
    *made = (struct rp_credentials){.key_id = strdup(key_id),
                                    .secret = strdup(secret),
                                    .session_token = copy_of(rp_environment("AWS_SESSION_TOKEN")),
                                    .place = "the environment"};
    return true;
}

static int run_process(struct rp_credentials *made, const char *command, struct rp_error *error)
{
    char *text = rp_calloc(1, OUTPUT_BYTES_MAX);
    FILE *output = text ? popen(command, "re") : NULL;
    if (!output) {
        free(text);
        return rp_fail(error, -errno, HINT, "credentials: credential_process cannot be started: %s",
                       strerror(errno));
    }
    size_t bytes = fread(text, 1, OUTPUT_BYTES_MAX - 1, output);
    int status = pclose(output);
    int code = status == 0 ? take_json(made, text, "credential_process", error)
                           : rp_fail(error, -RP_E_RESOURCE, "run it by hand to see why",
                                     "credentials: credential_process failed (status %d)", status);
    explicit_bzero(text, bytes); /* to its end, also where there is a NUL in it */
    free(text);
    return code;
}

/* 1 = found, 0 = the profile has none. */
static int from_profile(struct rp_credentials *made, struct rp_error *error)
{
    char *key_id = rp_profile_value("aws_access_key_id");
    char *secret = rp_profile_value("aws_secret_access_key");
    char *process = rp_profile_value("credential_process");
    int code = 0;
    if (key_id && secret) {
        *made = (struct rp_credentials){.key_id = key_id,
                                        .secret = secret,
                                        .session_token = rp_profile_value("aws_session_token"),
                                        .place = "the profile in ~/.aws"};
        key_id = secret = NULL;
        code = 1;
    } else if (process) {
        code = run_process(made, process, error);
        code = code < 0 ? code : 1;
    } else if (rp_environment("AWS_PROFILE") && !rp_profile_exists()) {
        code = rp_fail(error, -RP_E_CONFIG, "`aws configure list-profiles` lists those there are",
                       "credentials: AWS_PROFILE is %s, which is no profile of ~/.aws",
                       rp_environment("AWS_PROFILE"));
    }
    free(key_id);
    rp_free_secret(secret);
    free(process);
    return code;
}

static int look_for(struct rp_credentials *made, struct rp_error *error)
{
    *made = (struct rp_credentials){.place = "nowhere: requests are not signed"};
    if (rp_environment("AWS_NO_SIGN_REQUEST") || from_environment(made))
        return 0;
    int code = from_profile(made, error);
    if (code != 0)
        return code < 0 ? code : 0;
    const char *place;
    char *text = NULL;
    code = rp_endpoint_ask(&text, &place, error);
    if (code == 1)
        code = take_json(made, text, place, error);
    rp_free_secret(text);
    return code;
}

static bool are_fresh(void)
{
    return are_known && (known.expires == 0 || time(NULL) < known.expires - EARLY_S);
}

int rp_credentials_get(struct rp_credentials *credentials, bool renew, struct rp_error *error)
{
    int code = 0;
    pthread_mutex_lock(&lock);
    bool may_renew = renew && time(NULL) - known_since >= RENEW_S;
    if (may_renew || !are_fresh()) {
        struct rp_credentials made;
        code = look_for(&made, error);
        if (code == 0) {
            rp_credentials_free(&known);
            known = made;
            are_known = true;
            known_since = time(NULL);
        }
    }
    if (code == 0)
        *credentials = (struct rp_credentials){.key_id = copy_of(known.key_id),
                                               .secret = copy_of(known.secret),
                                               .session_token = copy_of(known.session_token),
                                               .expires = known.expires,
                                               .place = known.place};
    pthread_mutex_unlock(&lock);
    return code;
}
