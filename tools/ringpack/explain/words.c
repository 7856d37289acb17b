/* SPDX-License-Identifier: Apache-2.0 */
/* words.c — text of strangers: documents may hold anything, and so may the names of files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "explain/explain.h"

#define REPLACEMENT 0xfffdu

struct character {
    uint32_t code;
    uint32_t bytes; /* 1 if it is no UTF-8 */
    bool is_valid;
};

/* The first character of a text that is not empty. */
static struct character character_at(const char *text, size_t left)
{
    struct character c = {REPLACEMENT, 1, false};
    size_t bytes = rp_text_character(text, left, &c.code);
    return bytes ? (struct character){c.code, (uint32_t)bytes, true} : c;
}

/* Control characters, and those that change the direction of a line or cannot be seen. */
static bool is_hidden(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x200b && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) ||
           code == 0xfeff || (code >= 0xfff9 && code <= 0xfffb) || (code & 0xfffe) == 0xfffe ||
           (code >= 0xe0000 && code <= 0xe0fff);
}

/* Columns that terminals give a character: two for East Asian ones and pictures. */
static uint32_t columns_of(uint32_t code)
{
    static const uint32_t wide[][2] = {{0x1100, 0x115f}, {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
                                       {0xf900, 0xfaff}, {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                                       {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd}};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (code >= wide[i][0] && code <= wide[i][1])
            return 2;
    return 1;
}

/* The text of a character, and its columns. */
static uint32_t escape(const struct character *c, const char *text, char out[16])
{
    static const char *const names[] = {['\t'] = "\\t", ['\n'] = "\\n", ['\r'] = "\\r"};
    if (!c->is_valid) {
        snprintf(out, 16, "\xef\xbf\xbd");
        return 1;
    }
    if (!is_hidden(c->code)) {
        snprintf(out, 16, "%.*s", (int)c->bytes, text);
        return columns_of(c->code);
    }
    if (c->code < sizeof names / sizeof *names && names[c->code])
        return (uint32_t)snprintf(out, 16, "%s", names[c->code]);
    const char *form = c->code < 0x100 ? "\\x%02x" : "\\u%04x";
    return (uint32_t)snprintf(out, 16, form, c->code);
}

uint32_t rp_words_terminal(FILE *out, const char *text, uint32_t columns)
{
    uint32_t used = 0;
    for (size_t left = strlen(text); left > 0;) {
        char one[16];
        struct character c = character_at(text, left);
        uint32_t width = escape(&c, text, one);
        bool is_last = left == c.bytes;
        if (used + width + !is_last > columns) {
            if (used < columns)
                fputs("…", out);
            return columns;
        }
        fputs(one, out);
        used += width;
        text += c.bytes;
        left -= c.bytes;
    }
    return used;
}

void rp_words_html(FILE *out, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        char one[16];
        struct character c = character_at(text, left);
        switch (c.is_valid ? c.code : REPLACEMENT) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        case '\n':
            fputc('\n', out);
            break;
        default:
            escape(&c, text, one);
            fputs(one, out);
        }
        text += c.bytes;
        left -= c.bytes;
    }
}

const char *rp_words_after(const char *text, uint64_t limit)
{
    size_t left = strlen(text);
    for (; left > 0 && limit > 0; limit--) {
        struct character c = character_at(text, left);
        text += c.bytes;
        left -= c.bytes;
    }
    return text;
}

char *rp_words_utf8(const char *text, size_t bytes)
{
    char *copy = malloc(3 * bytes + 1), *to = copy;
    for (size_t at = 0; copy && at < bytes;) {
        struct character c = character_at(text + at, bytes - at);
        const char *from = c.is_valid && c.code != 0 ? text + at : "\xef\xbf\xbd";
        size_t length = c.is_valid && c.code != 0 ? c.bytes : 3;
        memcpy(to, from, length);
        to += length;
        at += c.bytes;
    }
    if (copy)
        *to = '\0';
    return copy;
}

const char *rp_words_tail(const char *path, size_t bytes)
{
    size_t length = strlen(path);
    path += length > bytes ? length - bytes : 0;
    while (length > bytes && ((unsigned char)*path & 0xc0) == 0x80) /* inside of a character */
        path++;
    return path;
}

void rp_words_column(const struct rp_explained_entries *column, size_t bytes,
                     char words[RP_COLUMN_WORDS_BYTES])
{
    if (column->file) {
        const char *tokenizer = column->tokenizer ? column->tokenizer->name : "";
        const char *before = column->tokenizer ? ", ids of " : "";
        size_t fixed = strlen(column->name) + sizeof ": , byte 1234567890, 512 each" +
                       strlen(before) + strlen(tokenizer);
        const char *file = rp_words_tail(column->file, bytes > fixed + 16 ? bytes - fixed : 16);
        snprintf(words, RP_COLUMN_WORDS_BYTES, "%s: %s%s, byte %" PRIu64 ", %" PRIu32 " each%s%s",
                 column->name, file == column->file ? "" : "…", file, column->byte_offset,
                 column->bytes, before, tokenizer);
    } else if (column->is_real) {
        snprintf(words, RP_COLUMN_WORDS_BYTES, "%s: %.17g", column->name, column->real);
    } else {
        snprintf(words, RP_COLUMN_WORDS_BYTES, "%s: %" PRId64, column->name, column->integer);
    }
}
