/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hide.h"

int(rp_fail)(struct rp_error *error, int code, const char *hint, const char *format, ...)
{
    RP_ASSERT(code < 0);
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
        snprintf(error->hint, sizeof error->hint, "%s", hint ? hint : "");
        rp_hide_in_sentence(error->message);
        rp_hide_in_sentence(error->hint);
        error->code = code;
    }
    return code;
}

int rp_fail_context(struct rp_error *error, int code, const char *format, ...)
{
    if (!error)
        return code;
    char prefix[256], message[sizeof error->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    rp_hide_in_sentence(prefix);
    memcpy(message, error->message, sizeof message);
    snprintf(error->message, sizeof error->message, "%s: %.500s", prefix, message);
    return error->code;
}

void rp_assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "ringpack: assertion failed: %s (%s:%d)\n", expression, file, line);
    abort();
}

const char *rp_strerror(int code)
{
    switch (-code) {
#define RP_ERROR_CASE(name, value, text)                                                           \
    case value:                                                                                    \
        return text;
        RP_ERROR_CODES(RP_ERROR_CASE)
#undef RP_ERROR_CASE
    default:
        return code < 0 && code >= -4095 ? strerror(-code) : "unknown error";
    }
}
