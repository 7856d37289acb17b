/* SPDX-License-Identifier: Apache-2.0 */
/* made_up_machine.h — files of /proc and /sys as another machine may have them, below a folder. */
#ifndef RP_TESTS_MADE_UP_MACHINE_H
#define RP_TESTS_MADE_UP_MACHINE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* needs those above */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char machine[] = "/tmp/rp-test-machine-XXXXXX";

static inline void put(const char *path, const char *text)
{
    char command[512];
    snprintf(command, sizeof command, "mkdir -p $(dirname %s/%s) && printf %%b '%s' >%s/%s",
             machine, path, text, machine, path);
    assert_int_equal(system(command), 0);
}

static inline int new_machine(void **state)
{
    (void)state;
    return mkdtemp(strcpy(machine, "/tmp/rp-test-machine-XXXXXX")) ? 0 : -1;
}

static inline int remove_machine(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", machine);
    return system(command);
}

#endif
