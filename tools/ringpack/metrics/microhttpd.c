/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/microhttpd.h"

#include <dlfcn.h>

#define LIBRARY "libmicrohttpd.so.12"

static struct rp_microhttpd functions;

static const char *bind_all(void *library)
{
#define BIND(name)                                                                                 \
    *(void **)&functions.name = dlsym(library, "MHD_" #name);                                      \
    if (!functions.name)                                                                           \
        return "MHD_" #name;
    RP_MICROHTTPD_FUNCTIONS(BIND)
#undef BIND
    return NULL;
}

const struct rp_microhttpd *rp_microhttpd_load(struct rp_error *error)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const char *missing = library ? bind_all(library) : NULL;
    if (library && !missing)
        return &functions;
    (void)rp_fail(
        error, -RP_E_RESOURCE,
        "install it (`apt-get install libmicrohttpd12`), or use `ringpack metrics --once`",
        missing ? "cannot serve metrics: %s has no %s" : "cannot serve metrics: %s%s", LIBRARY,
        missing ? missing : " was not found");
    return NULL;
}
