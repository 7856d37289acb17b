/* SPDX-License-Identifier: Apache-2.0 */
/* listener_kit.h — a run directory of the test's own, and listeners in it. */
#ifndef RP_TESTS_LISTENER_KIT_H
#define RP_TESTS_LISTENER_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "shm/socket.h"

static char base[] = "/tmp/rp-test-listener-XXXXXX";
static char run_dir[64];
static struct rp_error error;

static int enter(void **state)
{
    (void)state;
    rp_log_set_level(RP_LOG_ERROR);
    if (!mkdtemp(base))
        return -1;
    snprintf(run_dir, sizeof run_dir, "%s/run", base);
    return 0;
}

static int leave(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    return system(command);
}

static struct rp_listener open_listener(const char *run)
{
    struct rp_listener listener;
    if (rp_listener_open(&listener, run_dir, run, &error) != 0)
        fail_msg("%s", error.message);
    return listener;
}

#endif
