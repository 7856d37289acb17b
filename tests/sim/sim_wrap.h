/* SPDX-License-Identifier: Apache-2.0 */
/* sim_wrap.h — replace functions of the system. The linker option `--wrap=f` makes every call of f
 * a call of __wrap_f, and the original is __real_f. CMakeLists.txt finds the functions by WRAP.
 *
 * WRAP declares both. While no fiber runs, a wrapper must call the original. */
#ifndef RP_TESTS_SIM_WRAP_H
#define RP_TESTS_SIM_WRAP_H

#include <errno.h>

#include "sim.h"

#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

/* -1 with errno, as system calls fail. */
static inline int fail_with(int code)
{
    errno = code;
    return -1;
}

#endif
