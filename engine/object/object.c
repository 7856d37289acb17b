/* SPDX-License-Identifier: Apache-2.0 */
/* object.c — the URL and the bearer of each request to an object, signed again before they expire.
 */
#include "object/object.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/file.h"
#include "base/mem.h"
#include "object/credentials.h"
#include "object/google.h"
#include "object/profile.h"
#include "object/sign.h"
#include "object/url.h"

#define LIFETIME_S 3600u /* a signed URL's */
#define EARLY_S 600      /* make a new one this long before its end */
#define TOKEN_BYTES_MAX (16u << 10)

struct rp_object {
    struct rp_url url;
    char *id;

    pthread_mutex_t lock; /* guards the fields below */
    char *asked;          /* a signed URL, or the target of a redirect; NULL: to be made */
    const char *place;    /* origin of its keys */
    time_t expires;       /* expiry of that URL */
    bool has_moved;       /* the URL is the target of a redirect, which carries its own right */
    bool was_refused;
    struct rp_error failure; /* code 0: none */
};

int rp_object_open(struct rp_object **object_out, const char *url, struct rp_error *error)
{
    *object_out = NULL;
    struct rp_object *object = rp_calloc(1, sizeof *object);
    if (!object)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
    pthread_mutex_init(&object->lock, NULL);
    int code = rp_url_parse(&object->url, url, error);
    if (code == 0 && !(object->id = rp_url_id(url)))
        code = rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
    if (code < 0)
        rp_object_close(object);
    else
        *object_out = object;
    return code;
}

void rp_object_close(struct rp_object *object)
{
    if (!object)
        return;
    rp_url_free(&object->url);
    free(object->id);
    rp_free_secret(object->asked);
    pthread_mutex_destroy(&object->lock);
    free(object);
}

const char *rp_object_name(const struct rp_object *object)
{
    return object->url.name;
}

const char *rp_object_id(const struct rp_object *object)
{
    return object->id;
}

void rp_ask_free(struct rp_ask *ask)
{
    rp_free_secret(ask->url);
    rp_free_secret(ask->bearer);
    *ask = (struct rp_ask){0};
}

/* ---- rights ---------------------------------------------------------------------------------- */

/* Find it in the places of huggingface_hub. */
static char *hub_token(void)
{
    const char *given = rp_environment("HF_TOKEN"), *home = rp_environment("HF_HOME");
    if (!given)
        given = rp_environment("HUGGING_FACE_HUB_TOKEN");
    if (given)
        return strdup(given);
    const char *file = rp_environment("HF_TOKEN_PATH"), *user = rp_environment("HOME");
    const char *cache = rp_environment("XDG_CACHE_HOME");
    char *path = file    ? strdup(file)
                 : home  ? rp_asprintf("%s/token", home)
                 : cache ? rp_asprintf("%s/huggingface/token", cache)
                 : user  ? rp_asprintf("%s/.cache/huggingface/token", user)
                         : NULL;
    char *text = NULL;
    size_t bytes;
    if (path && rp_file_read_all(path, TOKEN_BYTES_MAX, &text, &bytes, NULL) == 0)
        text[strcspn(text, " \r\n")] = '\0';
    free(path);
    return text;
}

static char *plain_url(const struct rp_url *url, const char *query)
{
    const char *right = url->query ? url->query : rp_url_sas(url);
    return rp_asprintf("%s://%s%s%s%s%s%s", url->scheme, url->host, url->path,
                       query || right ? "?" : "", query ? query : "", query && right ? "&" : "",
                       right ? right : "");
}

/* The query of a bucket whose readers pay; its parameter is the last one in the order of bytes. The
 * caller frees it. */
static int add_payer(const struct rp_url *url, const char *query, char **made,
                     struct rp_error *error)
{
    const char *payer = url->store == RP_STORE_S3 ? rp_environment("AWS_REQUEST_PAYER") : NULL;
    *made = NULL;
    if (payer && strcasecmp(payer, "requester") != 0)
        return rp_fail(error, -RP_E_CONFIG, "set it to requester, or unset it",
                       "AWS_REQUEST_PAYER: expected requester, found `%.64s`", payer);
    if (!payer && !query)
        return 0;
    *made = rp_asprintf("%s%s%s", query ? query : "", query && payer ? "&" : "",
                        payer ? "x-amz-request-payer=requester" : "");
    return *made ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
}

static char *signed_url(const struct rp_url *url, const char *query,
                        const struct rp_credentials *keys, time_t *expires)
{
    time_t now = time(NULL), end = now + LIFETIME_S;
    if (keys->expires && keys->expires < end) /* the URL ends with its keys */
        end = keys->expires > now + EARLY_S ? keys->expires : now + EARLY_S;
    char *region = url->store == RP_STORE_GS ? strdup("auto") : rp_s3_region();
    struct rp_signer signer = {.key_id = keys->key_id,
                               .secret = keys->secret,
                               .session_token = keys->session_token,
                               .region = region};
    char *made = region ? rp_sign_url(&signer, url, query, now, (uint32_t)(end - now)) : NULL;
    free(region);
    *expires = end;
    return made;
}

static int get_keys(const struct rp_url *url, bool renew, const struct rp_patience *patience,
                    struct rp_credentials *keys, struct rp_error *error)
{
    *keys = (struct rp_credentials){0};
    if (url->store == RP_STORE_S3)
        return rp_credentials_get(keys, renew, patience, error);
    const char *key_id = rp_environment("GS_ACCESS_KEY_ID");
    const char *secret = rp_environment("GS_SECRET_ACCESS_KEY");
    if (url->store != RP_STORE_GS || (!key_id && !secret))
        return 0;
    if (!key_id || !secret)
        return rp_fail(error, -RP_E_CONFIG, "set both, or unset it",
                       "credentials: expected GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY in the "
                       "environment, found only one of them");
    *keys = (struct rp_credentials){
        .key_id = strdup(key_id), .secret = strdup(secret), .place = "the environment"};
    return 0;
}

/* Make the URL of a request; the lock is held. */
static int make_url(struct rp_object *object, const char *query, const struct rp_patience *patience,
                    char **made, struct rp_error *error)
{
    struct rp_credentials keys;
    char *paid = NULL;
    int code = get_keys(&object->url, object->was_refused, patience, &keys, error);
    if (code == 0)
        code = add_payer(&object->url, query, &paid, error);
    if (code < 0) {
        rp_credentials_free(&keys);
        return code;
    }
    object->expires = 0;
    object->place = keys.key_id                ? keys.place
                    : rp_url_sas(&object->url) ? "AZURE_STORAGE_SAS_TOKEN"
                                               : NULL;
    *made = keys.key_id && keys.secret ? signed_url(&object->url, paid, &keys, &object->expires)
                                       : plain_url(&object->url, query);
    object->has_moved = false;
    rp_credentials_free(&keys);
    free(paid);
    return *made ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
}

static bool is_fresh(const struct rp_object *object)
{
    return object->asked && !object->was_refused &&
           (object->expires == 0 || time(NULL) < object->expires - EARLY_S / 2);
}

/* Add the bearer of the URL, if it takes one; the lock is held. */
static int add_bearer(const struct rp_object *object, bool renew,
                      const struct rp_patience *patience, struct rp_ask *ask,
                      struct rp_error *error)
{
    enum rp_store store = object->url.store;
    bool is_hub = store == RP_STORE_HUB ||
                  (store == RP_STORE_HTTP && rp_url_may_have_hub_token(&object->url));
    if (object->has_moved)
        return 0;
    if (store == RP_STORE_GS && !object->place)
        return rp_google_token(renew, patience, &ask->bearer, &ask->place, error);
    ask->bearer = is_hub ? hub_token() : NULL;
    if (ask->bearer)
        ask->place = "HF_TOKEN, or of `hf auth login`";
    return 0;
}

int rp_object_ask(struct rp_object *object, const char *query, const struct rp_patience *patience,
                  struct rp_ask *ask, struct rp_error *error)
{
    *ask = (struct rp_ask){0};
    int code = 0;
    pthread_mutex_lock(&object->lock);
    bool renew = object->was_refused;
    if (query) {
        code = make_url(object, query, patience, &ask->url, error);
    } else if (!is_fresh(object)) {
        char *made = NULL;
        code = make_url(object, NULL, patience, &made, error);
        if (code == 0) {
            rp_free_secret(object->asked);
            object->asked = made;
        }
    }
    if (code == 0 && !query)
        ask->url = strdup(object->asked);
    ask->place = object->place;
    if (code == 0)
        code = add_bearer(object, renew, patience, ask, error);
    object->was_refused = code < 0 && renew;
    pthread_mutex_unlock(&object->lock);
    if (code == 0 && !ask->url)
        code = rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
    return code;
}

void rp_object_refused(struct rp_object *object, const char *url)
{
    pthread_mutex_lock(&object->lock);
    if (!object->asked || !strcmp(object->asked, url)) /* else a new one has been made already */
        object->was_refused = true;
    pthread_mutex_unlock(&object->lock);
}

void rp_object_moved(struct rp_object *object, const char *url)
{
    char *copy = strdup(url);
    pthread_mutex_lock(&object->lock);
    if (copy) {
        rp_free_secret(object->asked);
        object->asked = copy;
        object->expires = 0;
        object->has_moved = true;
        copy = NULL;
    }
    pthread_mutex_unlock(&object->lock);
    rp_free_secret(copy);
}

/* ---- failures -------------------------------------------------------------------------------- */

void rp_object_fail(struct rp_object *object, const struct rp_error *error)
{
    pthread_mutex_lock(&object->lock);
    if (object->failure.code == 0)
        object->failure = *error;
    pthread_mutex_unlock(&object->lock);
}

int rp_object_failure(struct rp_object *object, struct rp_error *error)
{
    pthread_mutex_lock(&object->lock);
    int code = object->failure.code;
    if (code < 0 && error)
        *error = object->failure;
    pthread_mutex_unlock(&object->lock);
    return code;
}
