/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.c — see terminal.h. */
#include "terminal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/escape.h"

#define BUFFER_BYTES 4096
/* The begin of what may be a control character: a write may end within one. */
static char held[3];

/* Bytes at the end of a text that may begin a control character. */
static size_t begun_bytes(const char *text, size_t length)
{
    static const char *const begins[] = {"\xe2\x80", "\xe2\x81", "\xc2", "\xd8", "\xe2"};
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        size_t bytes = strlen(begins[i]);
        if (length >= bytes && !memcmp(text + length - bytes, begins[i], bytes))
            return bytes;
    }
    return 0;
}

static bool write_all(const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(STDOUT_FILENO, text, bytes);
        if (written < 0 && errno != EINTR)
            return false;
        text += written > 0 ? written : 0;
        bytes -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

/* Returns what stdio expects: the bytes that were taken, 0 after an error. */
static ssize_t put(void *cookie, const char *bytes, size_t count)
{
    char text[BUFFER_BYTES + sizeof held] = "", escaped[RP_ESCAPED_BYTES(sizeof text)];
    size_t part = count < BUFFER_BYTES ? count : BUFFER_BYTES, used = 0;
    (void)cookie;
    used = strlen(held);
    memcpy(text, held, used);
    for (size_t i = 0; i < part; i++)
        if (bytes[i]) /* a NUL ends the text, and a terminal shows none */
            text[used++] = bytes[i];
    size_t begun = begun_bytes(text, used);
    memcpy(held, text + used - begun, begun);
    held[begun] = '\0';
    text[used - begun] = '\0';
    rp_escape(escaped, sizeof escaped, text, "\n\t");
    return write_all(escaped, strlen(escaped)) ? (ssize_t)part : 0;
}

void rp_terminal_guard(void)
{
    static const cookie_io_functions_t functions = {.write = put};
    if (isatty(STDOUT_FILENO) != 1)
        return;
    FILE *guarded = fopencookie(NULL, "w", functions);
    if (!guarded)
        return; /* no memory: what follows says so */
    setvbuf(guarded, NULL, _IOLBF, BUFFER_BYTES);
    stdout = guarded;
}
