/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_util.c — errors, numbers and progress, printed in the same way by every verb. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/errno_name.h"
#include "base/escape.h"
#include "base/text.h"
#include "cmd.h"

static const char *error_name(int code)
{
    switch (-code) {
#define RP_ERROR_NAME(name, value, text)                                                           \
    case value:                                                                                    \
        return #name;
        RP_ERROR_CODES(RP_ERROR_NAME)
#undef RP_ERROR_NAME
    default:
        return rp_errno_name(-code);
    }
}

/* The hint for an error that has none of its own. */
static const char *usual_hint(int code)
{
    switch (-code) {
    case RP_E_CONFIG:
        return "no engine was started; `ringpack config keys` lists the keys and their values";
    case RP_E_USAGE:
        return "`ringpack help VERB` lists the options of a verb";
    case RP_E_VERSION:
        return "use the version of ringpack that wrote it, or write it again with this one";
    case RP_E_FORMAT:
    case RP_E_CORRUPT:
        return "`ringpack inspect PATH` prints the format of a file; restore it or write it again";
    case RP_E_STOPPED:
        return "start it again when you like";
    case ENOENT:
        return "check the path, and whether its file system is mounted";
    case ENOTDIR:
        return "give the path of a directory";
    case EISDIR:
        return "give the path of a file: a directory is there";
    case EACCES:
        return "check the permissions of the file and of every directory above it";
    case EROFS:
        return "write to another file system: this one is mounted read-only";
    case ENAMETOOLONG:
        return "give a shorter path: a name has at most 255 bytes, a path 4095";
    case ENOSPC:
        return "make room (`df -h`, `df -i`), or write to another file system";
    case ENOMEM:
        return "free memory, or lower prefetch_bytes, prefetch_factor or batch_size";
    default:
        return "`ringpack doctor` checks this machine";
    }
}

int rp_cmd_report(const struct rp_error *error)
{
    fflush(stdout);
    const char *message = error->message[0] ? error->message : rp_strerror(error->code);
    const char *hint = error->hint[0] ? error->hint : usual_hint(error->code);
    char shown[RP_ESCAPED_BYTES(sizeof error->message + sizeof error->hint)];
    rp_escape(shown, sizeof shown, message, "");
    fprintf(stderr, "ringpack: error %s: %s\n", error_name(error->code), shown);
    rp_escape(shown, sizeof shown, hint, "");
    fprintf(stderr, "  next: %s\n", shown);
    return RP_EXIT_TROUBLE;
}

static int note_mistake(struct rp_error *error, const char *verb, const char *format,
                        va_list arguments)
{
    char mistake[sizeof error->message], hint[sizeof error->hint];
    vsnprintf(mistake, sizeof mistake, format, arguments);
    snprintf(hint, sizeof hint, "`ringpack help %s` lists its options", verb);
    return rp_fail(error, -RP_E_USAGE, hint, "%s: %s", verb, mistake);
}

int rp_cmd_mistake(struct rp_error *error, const char *verb, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int code = note_mistake(error, verb, format, arguments);
    va_end(arguments);
    return code;
}

int rp_cmd_misuse(const char *verb, const char *format, ...)
{
    struct rp_error error;
    va_list arguments;
    va_start(arguments, format);
    note_mistake(&error, verb, format, arguments);
    va_end(arguments);
    return rp_cmd_report(&error);
}

json_t *rp_cmd_json_text(const char *text)
{
    json_t *value = json_string(text);
    char *copy = value ? NULL : strdup(text);
    if (copy) {
        rp_text_make_utf8(copy);
        value = json_string(copy);
    }
    free(copy);
    return value ? value : json_null();
}

void rp_cmd_print_json(json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(value);
}

int rp_cmd_end_diff(int code, json_t *list, size_t count, const struct rp_error *error)
{
    if (code < 0) {
        json_decref(list);
        return rp_cmd_report(error);
    }
    if (list)
        rp_cmd_print_json(list);
    return count > 0 ? RP_EXIT_DIFFERS : RP_EXIT_FINE;
}

char *rp_cmd_bytes_text(uint64_t bytes, char text[RP_CMD_TEXT_BYTES])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(text, RP_CMD_TEXT_BYTES, "%" PRIu64 " B", bytes);
        return text;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < RP_ARRAY_COUNT(units); unit++)
        value /= 1024;
    snprintf(text, RP_CMD_TEXT_BYTES, "%.1f %s", value, units[unit]);
    return text;
}

char *rp_cmd_count_text(uint64_t count, char text[RP_CMD_TEXT_BYTES])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    char *out = text;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}

char *rp_cmd_short_text(double value, char text[RP_CMD_TEXT_BYTES])
{
    static const char *const units[] = {"", " k", " M", " G", " T", " P"};
    size_t unit = 0;
    for (; value >= 1000 && unit + 1 < RP_ARRAY_COUNT(units); unit++)
        value /= 1000;
    snprintf(text, RP_CMD_TEXT_BYTES, value >= 100 || unit == 0 ? "%.0f%s" : "%.1f%s", value,
             units[unit]);
    return text;
}

char *rp_cmd_seconds_text(double seconds, char text[RP_CMD_TEXT_BYTES])
{
    if (seconds < 1e-3)
        snprintf(text, RP_CMD_TEXT_BYTES, "%.0f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(text, RP_CMD_TEXT_BYTES, "%.0f ms", seconds * 1e3);
    else if (seconds < 100)
        snprintf(text, RP_CMD_TEXT_BYTES, "%.1f s", seconds);
    else
        snprintf(text, RP_CMD_TEXT_BYTES, "%.0f min %02.0f s", (double)((uint64_t)seconds / 60),
                 (double)((uint64_t)seconds % 60));
    return text;
}

void rp_cmd_progress_begin(struct rp_cmd_progress *progress, const char *label, bool bytes)
{
    *progress = (struct rp_cmd_progress){.label = label,
                                         .bytes = bytes,
                                         .shown = isatty(STDERR_FILENO) == 1,
                                         .started_ns = rp_now_ns()};
}

void rp_cmd_progress(void *context, uint64_t done, uint64_t total)
{
    struct rp_cmd_progress *progress = context;
    uint64_t now = rp_now_ns();
    if (!progress->shown || now - progress->drawn_ns < 100000000u)
        return;
    progress->drawn_ns = now;
    double seconds = (double)(now - progress->started_ns) / 1e9;
    uint64_t rate = seconds > 0 ? (uint64_t)((double)done / seconds) : 0;
    char done_text[RP_CMD_TEXT_BYTES], rate_text[RP_CMD_TEXT_BYTES], percent[16] = "", label[1024];
    if (total)
        snprintf(percent, sizeof percent, "%3.0f %%  ", 100.0 * (double)done / (double)total);
    if (progress->bytes) {
        rp_cmd_bytes_text(done, done_text);
        rp_cmd_bytes_text(rate, rate_text);
    } else {
        rp_cmd_short_text((double)done, done_text);
        rp_cmd_short_text((double)rate, rate_text);
    }
    rp_escape(label, sizeof label, progress->label, "");
    fprintf(stderr, "\r\033[K%s  %s%s  %s/s", label, percent, done_text, rate_text);
    fflush(stderr);
}

void rp_cmd_progress_end(struct rp_cmd_progress *progress)
{
    if (progress->shown && progress->drawn_ns)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
