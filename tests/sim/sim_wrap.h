/* SPDX-License-Identifier: Apache-2.0 */
/* sim_wrap.h — functions that the linker puts in the place of the system's: `--wrap=f` makes every
 * call of f one of __wrap_f, and f itself is __real_f.
 *
 * WRAP declares both. In the program itself (no fiber runs) each is the real one. */
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
