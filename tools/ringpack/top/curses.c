/* SPDX-License-Identifier: Apache-2.0 */
#include "top/curses.h"

#include <dlfcn.h>

#define LIBRARY "libncursesw.so.6"

static struct rp_curses functions;

static const char *bind_all(void *library)
{
#define BIND(name)                                                                                 \
    *(void **)&functions.name = dlsym(library, #name);                                             \
    if (!functions.name)                                                                           \
        return #name;
    RP_CURSES_FUNCTIONS(BIND)
#undef BIND
    return NULL;
}

const struct rp_curses *rp_curses_load(struct rp_error *error)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const char *missing = library ? bind_all(library) : NULL;
    if (library && !missing)
        return &functions;
    (void)rp_fail(error, -RP_E_RESOURCE,
                  "install it (`apt-get install libncursesw6`), or use `ringpack ps`",
                  missing ? "cannot draw: %s has no %s" : "cannot draw: %s%s", LIBRARY,
                  missing ? missing : " was not found");
    return NULL;
}
