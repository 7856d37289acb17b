/* SPDX-License-Identifier: Apache-2.0 */
/* credentials.c — find, keep and renew the keys of this process. */
#include "object/credentials.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "object/command.h"
#include "object/endpoint.h"
#include "object/profile.h"
#include "object/web_identity.h"

#define EARLY_S 300 /* renew them this long before they expire */
#define RENEW_S 10  /* the least time between two tries to renew refused or unavailable keys */
#define HINT                                                                                       \
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; a public bucket is read "    \
    "with AWS_NO_SIGN_REQUEST=1"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rp_credentials known; /* the process's keys */
static bool are_known;
static time_t known_since, failed_at;
static struct rp_error failure; /* the last try's error; code 0: it succeeded */

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

/* 2026-11-22T07:00:00Z; 0 if the text has another form. */
static time_t moment_of(const char *text)
{
    struct tm utc = {0};
    return text && strptime(text, "%Y-%m-%dT%H:%M:%S", &utc) ? timegm(&utc) : 0;
}

/* Parse the JSON of credential_process, the container and the instance: its form is the same but
 * for the name of the session's token. */
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

/* 1 = found, 0 = not configured; the same holds for the functions below. */
static int from_environment(struct rp_credentials *made, struct rp_error *error)
{
    const char *key_id = rp_environment("AWS_ACCESS_KEY_ID");
    const char *secret = rp_environment("AWS_SECRET_ACCESS_KEY");
    if (!key_id && !secret)
        return 0;
    if (!key_id || !secret)
        return rp_fail(error, -RP_E_CONFIG, "set both, or unset it",
                       "credentials: expected AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the "
                       "environment, found only %s",
                       key_id ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY");
    *made = (struct rp_credentials){.key_id = strdup(key_id),
                                    .secret = strdup(secret),
                                    .session_token = copy_of(rp_environment("AWS_SESSION_TOKEN")),
                                    .place = "the environment"};
    return 1;
}

/* Refuse rights of a profile that only AWS's own tools can get. Otherwise the next place would be
 * used, and that may have broader rights. */
static int refuse_unknown(struct rp_error *error)
{
    static const struct {
        const char *key, *what;
    } rights[] = {{"role_arn", "an assumed role"},
                  {"sso_session", "SSO"},
                  {"sso_start_url", "SSO"},
                  {"sso_account_id", "SSO"},
                  {"login_session", "a login of the console"}};
    struct rp_text_shell word;
    const char *name = rp_text_shell_word(&word, rp_profile_name());
    int code = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(rights) && code == 0; i++) {
        char *value = rp_profile_value(rights[i].key);
        char *token = i == 0 ? rp_profile_value("web_identity_token_file") : NULL;
        char hint[480];
        snprintf(hint, sizeof hint,
                 "write `credential_process = aws configure export-credentials --profile %.100s "
                 "--format process` into another profile of ~/.aws/config, and set AWS_PROFILE to "
                 "that one",
                 name);
        if (value && !token)
            code = rp_fail(error, -RP_E_CONFIG, hint,
                           "credentials: the profile %.100s of ~/.aws has %s: %s is not "
                           "implemented, and no other right is used in its place",
                           name, rights[i].key, rights[i].what);
        free(value);
        free(token);
    }
    return code;
}

static int from_web_identity(struct rp_credentials *made, struct rp_error *error)
{
    char *text = NULL;
    struct rp_web_identity identity;
    int code = rp_web_identity_find(&identity, error);
    if (code == 1)
        code = rp_web_identity_ask(&identity, &text, error);
    if (code == 1)
        code = take_json(made, text, "the web identity", error);
    rp_free_secret(text);
    rp_web_identity_free(&identity);
    return code < 0 ? code : made->key_id != NULL;
}

static int from_keys_of_profile(struct rp_credentials *made, struct rp_error *error)
{
    struct rp_profile_keys keys;
    rp_profile_keys(&keys);
    int code = keys.key_id && keys.secret ? 1 : 0;
    if (code == 1) {
        *made = (struct rp_credentials){.key_id = keys.key_id,
                                        .secret = keys.secret,
                                        .session_token = keys.session_token,
                                        .place = "the profile in ~/.aws"};
        return 1;
    }
    if (keys.key_id || keys.secret)
        code = rp_fail(error, -RP_E_CONFIG, "write both of them into the same file",
                       "credentials: the profile %.100s of ~/.aws: expected aws_access_key_id and "
                       "aws_secret_access_key, found only one of them",
                       rp_profile_name());
    free(keys.key_id);
    rp_free_secret(keys.secret);
    rp_free_secret(keys.session_token);
    return code;
}

static int from_process(struct rp_credentials *made, const struct rp_patience *patience,
                        struct rp_error *error)
{
    char *line = rp_profile_value("credential_process"), *text = NULL;
    if (!line)
        return 0;
    const struct rp_command command = {.name = "credential_process",
                                       .line = line,
                                       .limit_s = RP_COMMAND_STALLS * patience->stall_s,
                                       .stopper = patience->stopper};
    int code = rp_command_output(&command, &text, error);
    if (code == 0)
        code = take_json(made, text, "credential_process", error);
    rp_free_secret(text);
    rp_free_secret(line);
    return code < 0 ? code : 1;
}

static int from_profile(struct rp_credentials *made, const struct rp_patience *patience,
                        struct rp_error *error)
{
    int code = rp_profile_check(error);
    if (code == 0)
        code = refuse_unknown(error);
    if (code == 0)
        code = from_web_identity(made, error);
    if (code == 0)
        code = from_keys_of_profile(made, error);
    if (code == 0)
        code = from_process(made, patience, error);
    if (code == 0 && strcmp(rp_profile_name(), "default") != 0 && !rp_profile_exists())
        code = rp_fail(error, -RP_E_CONFIG, "`aws configure list-profiles` lists those there are",
                       "credentials: AWS_PROFILE is %.100s, which is no profile of ~/.aws",
                       rp_profile_name());
    return code;
}

static int search(struct rp_credentials *made, const struct rp_patience *patience,
                  struct rp_error *error)
{
    bool is_unsigned;
    *made = (struct rp_credentials){.place = "nowhere: requests are not signed"};
    int code = rp_environment_flag("AWS_NO_SIGN_REQUEST", &is_unsigned, error);
    if (code < 0 || is_unsigned)
        return code;
    code = from_environment(made, error);
    if (code == 0)
        code = from_profile(made, patience, error);
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

/* Get new keys. A source that worked before may work again: a failing program and an endpoint
 * without a reply are retried, as a busy store is. */
static int get_anew(const struct rp_patience *patience, struct rp_error *error)
{
    struct rp_credentials made;
    int code = search(&made, patience, error);
    bool had_keys = are_known && known.key_id;
    if (code == 0 && had_keys && !made.key_id)
        code = rp_fail(error, -RP_E_TIMEOUT, HINT, "credentials: %s gave keys, and now gives none",
                       known.place);
    if (code < 0) {
        bool may_pass = had_keys && code != -RP_E_CONFIG && code != -RP_E_STOPPED;
        error->code = may_pass ? -RP_E_TIMEOUT : code;
        return error->code;
    }
    rp_credentials_free(&known);
    known = made;
    are_known = true;
    known_since = time(NULL);
    return 0;
}

/* Many requests want keys at once, so a try that failed just now is not repeated for each of them.
 */
static int get_or_recall(bool renew, const struct rp_patience *patience, struct rp_error *error)
{
    bool has_just_failed = failure.code < 0 && time(NULL) - failed_at < RENEW_S;
    if (!has_just_failed) {
        failure = (struct rp_error){.code = 0};
        struct rp_error found = {.code = 0};
        if (get_anew(patience, &found) == -RP_E_STOPPED) {
            *error = found;
            return found.code;
        }
        failure = found;
        failed_at = time(NULL);
    }
    bool are_good = are_known && known.key_id && !renew && time(NULL) < known.expires;
    if (failure.code == -RP_E_TIMEOUT && are_good) {
        if (!has_just_failed)
            rp_log(RP_LOG_WARNING, "%s; the last keys are used until they expire", failure.message);
        return 0;
    }
    if (failure.code < 0)
        *error = failure;
    return failure.code;
}

int rp_credentials_get(struct rp_credentials *credentials, bool renew,
                       const struct rp_patience *patience, struct rp_error *error)
{
    struct rp_error local;
    int code = 0;
    pthread_mutex_lock(&lock);
    bool may_renew = renew && time(NULL) - known_since >= RENEW_S;
    if (may_renew || !are_fresh())
        code = get_or_recall(may_renew, patience, error ? error : &local);
    if (code == 0)
        *credentials = (struct rp_credentials){.key_id = copy_of(known.key_id),
                                               .secret = copy_of(known.secret),
                                               .session_token = copy_of(known.session_token),
                                               .expires = known.expires,
                                               .place = known.place};
    pthread_mutex_unlock(&lock);
    return code;
}
