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
#define C1_FIRST_BYTE '\xc2' /* of two; a write may end between them */

static bool is_held; /* the first byte of what may be a control character */

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
    char text[BUFFER_BYTES + 2] = "", escaped[RP_ESCAPED_BYTES(sizeof text)];
    size_t part = count < BUFFER_BYTES ? count : BUFFER_BYTES, used = 0;
    (void)cookie;
    if (is_held)
        text[used++] = C1_FIRST_BYTE;
    for (size_t i = 0; i < part; i++)
        if (bytes[i]) /* a NUL ends the text, and a terminal shows none */
            text[used++] = bytes[i];
    is_held = used > 0 && text[used - 1] == C1_FIRST_BYTE;
    text[used - is_held] = '\0';
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
