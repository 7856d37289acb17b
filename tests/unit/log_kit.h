/* SPDX-License-Identifier: Apache-2.0 */
/* log_kit.h — the log's text: log_heard() returns all of it since hear_log(). */
#ifndef RP_TESTS_LOG_KIT_H
#define RP_TESTS_LOG_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* needs those above */

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"

static int log_aside = -1;

static inline void hear_log(void)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    log_aside = dup(STDERR_FILENO);
    assert_int_equal(dup2(fileno(file), STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(fclose(file), 0);
    rp_log_set_level(RP_LOG_WARNING);
}

static inline const char *log_heard(void)
{
    static char text[8192];
    ssize_t bytes = pread(STDERR_FILENO, text, sizeof text - 1, 0);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    assert_int_equal(dup2(log_aside, STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(close(log_aside), 0);
    rp_log_set_level(RP_LOG_ERROR);
    return text;
}

#endif
