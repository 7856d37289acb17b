/* SPDX-License-Identifier: Apache-2.0 */
/* curl.c — load libcurl and its functions by name. */
#include "object/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* Which SSL library it uses makes no difference here. */
static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct rp_curl functions;
static char refusal[256]; /* "" = it is loaded */

static const char *bind_all(void *library)
{
#define BIND(name)                                                                                 \
    *(void **)&functions.name = dlsym(library, "curl_" #name);                                     \
    if (!functions.name)                                                                           \
        return "curl_" #name;
    RP_CURL_FUNCTIONS(BIND)
#undef BIND
    return NULL;
}

static void load(void)
{
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof names[0]; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(refusal, sizeof refusal, "libcurl.so.4 was not found");
        return;
    }
    const char *missing = bind_all(library);
    if (missing)
        snprintf(refusal, sizeof refusal, "libcurl.so.4 is too old: it has no %s", missing);
    else if (functions.global_init(CURL_GLOBAL_ALL) != CURLE_OK)
        snprintf(refusal, sizeof refusal, "libcurl.so.4 could not be initialised");
}

const struct rp_curl *rp_curl_load(struct rp_error *error)
{
    pthread_once(&once, load);
    if (!refusal[0])
        return &functions;
    (void)rp_fail(error, -RP_E_RESOURCE, "install libcurl (`apt-get install libcurl4`)",
                  "URLs cannot be read: %s", refusal);
    return NULL;
}
