/* SPDX-License-Identifier: Apache-2.0 */
#include "terminal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/escape.h"

#define BUFFER_BYTES 4096
#define MESSAGE_BYTES (64u << 10)
/* The begin of a possible control character: a write may end within one. */
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

static bool write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno != EINTR)
            return false;
        text += written > 0 ? written : 0;
        bytes -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

static bool put_part(const char *bytes, size_t part)
{
    char text[BUFFER_BYTES + sizeof held] = "", escaped[RP_ESCAPED_BYTES(sizeof text)];
    size_t used = strlen(held);
    memcpy(text, held, used);
    for (size_t i = 0; i < part; i++)
        if (bytes[i]) /* a NUL ends the text, and a terminal shows none */
            text[used++] = bytes[i];
    size_t begun = begun_bytes(text, used);
    memcpy(held, text + used - begun, begun);
    held[begun] = '\0';
    text[used - begun] = '\0';
    rp_escape(escaped, sizeof escaped, text, "\n\t");
    return write_all(STDOUT_FILENO, escaped, strlen(escaped));
}

/* stdio takes a short count for an error: all are taken, or none. */
static ssize_t put(void *cookie, const char *bytes, size_t count)
{
    size_t done = 0;
    (void)cookie;
    while (done < count && put_part(bytes + done, (size_t)rp_min_u64(count - done, BUFFER_BYTES)))
        done += (size_t)rp_min_u64(count - done, BUFFER_BYTES);
    return done == count ? (ssize_t)count : 0;
}

void rp_terminal_guard(bool is_for_programs)
{
    static const cookie_io_functions_t functions = {.write = put};
    bool is_terminal = isatty(STDOUT_FILENO) == 1;
    if (!is_terminal && is_for_programs)
        return;
    FILE *guarded = fopencookie(NULL, "w", functions);
    if (!guarded)
        return; /* no memory: the next allocation reports it */
    setvbuf(guarded, NULL, is_terminal ? _IOLBF : _IOFBF, BUFFER_BYTES);
    stdout = guarded;
}
