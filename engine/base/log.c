/* SPDX-License-Identifier: Apache-2.0 */
/* log.c — a line is formatted in a buffer and written with one write(2), so that lines of several
 * threads and processes do not mix. */
#include "base/log.h"

#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/escape.h"
#include "base/hide.h"
#include "base/utc.h"

#define MESSAGE_BYTES 1360
#define LINE_BYTES 2800 /* a JSON line, whose message may have escapes; longer ones are cut */

struct name {
    const char *text;
    enum rp_log_level level;
};

static const struct name events[] = {
#define RP_LOG_NAME(name, level, meaning) {#name, RP_LOG_##level},
    RP_LOG_EVENTS(RP_LOG_NAME)
#undef RP_LOG_NAME
};

static enum rp_log_level level_max = RP_LOG_INFO;
static enum rp_log_format form = RP_LOG_PLAIN;

void rp_log_set_level(enum rp_log_level level)
{
    level_max = level;
}

/* systemd names the device and the inode of the socket that it gave to a service as stderr. Another
 * stderr that the service was given later is not the journal. */
static bool is_journal(void)
{
    const char *named = getenv("JOURNAL_STREAM");
    struct stat info;
    char own[64];
    if (!named || fstat(STDERR_FILENO, &info) < 0)
        return false;
    snprintf(own, sizeof own, "%ju:%ju", (uintmax_t)info.st_dev, (uintmax_t)info.st_ino);
    return strcmp(named, own) == 0;
}

void rp_log_set_format(enum rp_log_format format)
{
    form = format == RP_LOG_TEXT && is_journal() ? RP_LOG_JOURNAL : format;
}

/* A JSON string without its quotes. Bytes above 127, which need not be UTF-8, become question
 * marks.
 */
static void escape(char *out, size_t room, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c && room > 8; c++) {
        int used = *c == '"' || *c == '\\'   ? snprintf(out, room, "\\%c", *c)
                   : *c < 0x20 || *c == 0x7f ? snprintf(out, room, "\\u%04x", *c)
                                             : snprintf(out, room, "%c", *c < 0x80 ? *c : '?');
        out += used;
        room -= (size_t)used;
    }
    *out = 0;
}

/* Returns the length of the line, with its newline. */
static size_t format_line(char line[LINE_BYTES], enum rp_log_level level, const char *event,
                          const char *message)
{
    static const char *const prefixes[] = {"error: ", "warning: ", ""};
    static const char *const levels[] = {"error", "warning", "info"};
    static const int priorities[] = {3, 4, 6}; /* priorities in syslog(3) */
    char time[RP_UTC_BYTES] = "", escaped[LINE_BYTES - 200];
    if (form == RP_LOG_TEXT || form == RP_LOG_JSON)
        rp_utc_now(time);
    int used = 0;
    switch (form) {
    case RP_LOG_JSON:
        escape(escaped, sizeof escaped, message);
        used = snprintf(line, LINE_BYTES,
                        "{\"time\": \"%s\", \"level\": \"%s\", \"event\": \"%s\", \"pid\": %ld, "
                        "\"message\": \"%s\"}\n",
                        time, levels[level], event, (long)getpid(), escaped);
        break;
    case RP_LOG_JOURNAL:
        rp_escape(escaped, sizeof escaped, message, "");
        used = snprintf(line, LINE_BYTES, "<%d>%s\n", priorities[level], escaped);
        break;
    case RP_LOG_TEXT:
    case RP_LOG_PLAIN:
        rp_escape(escaped, sizeof escaped, message, "");
        used = snprintf(line, LINE_BYTES, "%s%sringpack: %s%s\n", time, time[0] ? " " : "",
                        prefixes[level], escaped);
        break;
    }
    return (size_t)used;
}

static void put(enum rp_log_level level, const char *event, const char *format, va_list arguments)
{
    char message[MESSAGE_BYTES], line[LINE_BYTES];
    if (level > level_max)
        return;
    vsnprintf(message, sizeof message, format, arguments);
    rp_hide_in_sentence(message);
    size_t length = format_line(line, level, event, message);
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&room, 1, 0) != 1) /* drop the line rather than wait for the reader of a pipe */
        return;
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written; /* there is nowhere to report a failure */
}

void rp_log(enum rp_log_level level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put(level, "", format, arguments);
    va_end(arguments);
}

void rp_log_event(enum rp_log_event event, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put(events[event].level, events[event].text, format, arguments);
    va_end(arguments);
}
