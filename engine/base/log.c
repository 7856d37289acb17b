/* SPDX-License-Identifier: Apache-2.0 */
/* log.c — a line is formatted in a buffer and written with one write(2), so that lines of several
 * threads and processes do not mix. */
#include "base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static enum rp_log_level level_max = RP_LOG_INFO;

void rp_log_set_level(enum rp_log_level level)
{
    level_max = level;
}

void rp_log(enum rp_log_level level, const char *format, ...)
{
    static const char *const prefixes[] = {"error: ", "warning: ", ""};
    if (level > level_max)
        return;
    char line[1400];
    int used = snprintf(line, sizeof line - 1, "ringpack: %s", prefixes[level]);
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line + used, sizeof line - 1 - (size_t)used, format, arguments);
    va_end(arguments);
    size_t length = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&room, 1, 0) != 1) /* drop the line rather than wait for the reader of a pipe */
        return;
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written; /* there is nowhere to report a failure */
}
