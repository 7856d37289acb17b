/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bits.h"
#include "base/escape.h"

/* The digits at the start of `text`; *rest is the text after them. */
static bool leading_digits(const char *text, uint64_t *value, const char **rest)
{
    if (!isdigit((unsigned char)text[0])) /* strtoull accepts blanks and signs */
        return false;
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    *rest = end;
    return errno == 0;
}

bool rp_text_u64(const char *text, uint64_t *value)
{
    const char *rest;
    uint64_t number;
    if (!leading_digits(text, &number, &rest) || *rest)
        return false;
    *value = number;
    return true;
}

/* Skip one letter of "kmgt", and an i after it, which makes the base 1024. Returns base, base^2,
 * base^3 or base^4, or 1 without a letter. */
static uint64_t suffix_scale(const char **text, uint64_t base)
{
    static const char letters[] = "kmgt";
    const char *found = **text ? strchr(letters, tolower((unsigned char)**text)) : NULL;
    uint64_t scale = 1;
    if (found) {
        bool is_binary = (*text)[1] == 'i' || (*text)[1] == 'I';
        for (const char *letter = letters; letter <= found; letter++)
            scale *= is_binary ? 1024 : base;
        *text += is_binary ? 2 : 1;
    }
    return scale;
}

#define DIGITS "0123456789"
#define POWER_MAX 10000u /* greater ones are as this one */

/* *power is the exponent's, 0 without one. False if the text that follows is no exponent. */
static bool read_exponent(const char *text, int64_t *power)
{
    bool is_there = *text == 'e' || *text == 'E', is_negative = is_there && text[1] == '-';
    uint64_t number = 0;
    if (is_there && !rp_text_u64(text + 1 + (is_negative || text[1] == '+'), &number))
        return false;
    *power = (int64_t)rp_min_u64(number, POWER_MAX) * (is_negative ? -1 : 1);
    return is_there || !*text;
}

enum rp_decimal rp_text_decimal(const char *text, unsigned places, uint64_t *value)
{
    size_t whole = strspn(text, DIGITS), last = 0; /* last: of the digits, behind all but zeros */
    bool has_point = text[whole] == '.';
    size_t count = whole + (has_point ? strspn(text + whole + 1, DIGITS) : 0);
    int64_t power;
    if (count == 0 || !read_exponent(text + count + has_point, &power))
        return RP_DECIMAL_NONE;
    for (size_t i = 0; i < count; i++)
        if (text[i + (i >= whole)] != '0')
            last = i + 1;
    uint64_t number = 0;
    int64_t scale = last ? power + places + (int64_t)whole - (int64_t)last : 0;
    if (scale < 0)
        return RP_DECIMAL_PARTS;
    for (size_t i = 0; i < last; i++) {
        uint64_t digit = (uint64_t)(text[i + (i >= whole)] - '0');
        if (!rp_mul_u64(number, 10, &number) || !rp_add_u64(number, digit, &number))
            return RP_DECIMAL_LARGE;
    }
    for (; scale > 0; scale--)
        if (!rp_mul_u64(number, 10, &number))
            return RP_DECIMAL_LARGE;
    *value = number;
    return RP_DECIMAL_FINE;
}

static bool read_scaled(const char *text, uint64_t base, const char *unit, uint64_t *value)
{
    const char *rest;
    uint64_t number;
    if (rp_text_decimal(text, 0, value) == RP_DECIMAL_FINE)
        return true;
    if (!leading_digits(text, &number, &rest))
        return false;
    uint64_t scale = suffix_scale(&rest, base);
    return (!*rest || !strcasecmp(rest, unit)) && rp_mul_u64(number, scale, value);
}

bool rp_text_count(const char *text, uint64_t *value)
{
    return read_scaled(text, 1000, "", value);
}

bool rp_text_bytes(const char *text, uint64_t *value)
{
    return read_scaled(text, 1024, "b", value);
}

void rp_text_millionths(uint64_t number, char *text, size_t bytes)
{
    snprintf(text, bytes, "%" PRIu64 ".%06" PRIu64, number / 1000000, number % 1000000);
    size_t length = strlen(text);
    while (text[length - 1] == '0')
        length--;
    length -= text[length - 1] == '.';
    text[length] = '\0';
}

bool rp_text_has_suffix(const char *text, const char *suffix)
{
    size_t length = strlen(text), tail = strlen(suffix);
    return length > tail && !strcmp(text + length - tail, suffix);
}

int rp_text_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

size_t rp_text_sort(char **texts, size_t count)
{
    size_t kept = 0;
    if (count > 1)
        qsort(texts, count, sizeof *texts, rp_text_compare);
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && !strcmp(texts[kept - 1], texts[i]))
            free(texts[i]);
        else
            texts[kept++] = texts[i];
    }
    return kept;
}

size_t rp_text_stem(const char *text, const char *suffix)
{
    return strlen(text) - (rp_text_has_suffix(text, suffix) ? strlen(suffix) : 0);
}

/* The optimal string alignment distance. */
static size_t word_distance(const char *a, const char *b)
{
    size_t rows[3][RP_TEXT_WORD_MAX + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    size_t width = strlen(b);
    for (size_t j = 0; j <= width; j++)
        above[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
            size_t shifted = rp_min_u64(above[j], row[j - 1]) + 1;
            row[j] = rp_min_u64(replaced, shifted);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = rp_min_u64(row[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[width];
}

void rp_text_offer(struct rp_text_near *near, const char *candidate)
{
    size_t length = strlen(near->word);
    if (length > RP_TEXT_WORD_MAX || strlen(candidate) > RP_TEXT_WORD_MAX)
        return;
    size_t distance = word_distance(near->word, candidate);
    size_t allowed = length < 4 ? 1 : length / 3 + 1;
    if (distance <= allowed && (!near->best || distance < near->distance)) {
        near->best = candidate;
        near->distance = distance;
    }
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Bytes that are not ASCII are letters to a shell. */
static bool is_plain(const char *text)
{
    const char *at = text;
    while (*at && !rp_control_bytes(at) &&
           ((unsigned char)*at >= 0x80 || isalnum((unsigned char)*at) || strchr("%+,-./:=@_", *at)))
        at++;
    return at > text && !*at;
}

/* In the form of quotes that has escapes, which bash, zsh and ksh know. */
static const char *quote_controls(struct rp_text_shell *word, const char *before, const char *text)
{
    size_t bytes = sizeof word->text, used = (size_t)snprintf(word->text, bytes, "$'%s", before);
    while (*text && used + RP_ESCAPE_BYTES_MAX + 2 < bytes) {
        size_t controls = rp_control_bytes(text);
        for (size_t i = 0; i < controls; i++)
            used += (size_t)snprintf(word->text + used, bytes - used, "\\%03o",
                                     (unsigned char)text[i]);
        if (controls == 0)
            used += (size_t)snprintf(word->text + used, bytes - used,
                                     strchr("'\\", *text) ? "\\%c" : "%c", *text);
        text += controls ? controls : 1;
    }
    snprintf(word->text + used, bytes - used, "'");
    return word->text;
}

static const char *quote(struct rp_text_shell *word, const char *before, const char *text)
{
    size_t bytes = sizeof word->text, used;
    if (is_plain(text)) {
        snprintf(word->text, bytes, "%s%s", before, text);
        return word->text;
    }
    for (const char *at = text; *at; at++)
        if (rp_control_bytes(at))
            return quote_controls(word, before, text);
    used = (size_t)snprintf(word->text, bytes, "'%s", before);
    for (; *text && used + 6 < bytes; text++) /* a quote takes four bytes, and then the end two */
        used += (size_t)snprintf(word->text + used, bytes - used, *text == '\'' ? "'\\''" : "%c",
                                 *text);
    snprintf(word->text + used, bytes - used, "'");
    return word->text;
}

const char *rp_text_shell(struct rp_text_shell *word, const char *path)
{
    return quote(word, path[0] == '-' ? "./" : "", path);
}

const char *rp_text_hint_path(struct rp_text_shell *word, const char *path)
{
    const char *text = rp_text_shell(word, path);
    return strlen(text) <= RP_HINT_PATH_BYTES ? text : "PATH";
}

const char *rp_text_shell_word(struct rp_text_shell *word, const char *text)
{
    return quote(word, "", text);
}

size_t rp_text_character(const char *text, size_t left, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *at = (const unsigned char *)text;
    size_t bytes = at[0] < 0xc0 ? at[0] < 0x80 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    uint32_t value = bytes > 1 ? at[0] & (0x7fu >> bytes) : at[0];
    if (bytes == 0 || at[0] >= 0xf8 || bytes > left)
        return 0;
    for (size_t i = 1; i < bytes; i++) {
        if (at[i] >> 6 != 2)
            return 0;
        value = value << 6 | (at[i] & 0x3f);
    }
    if (value < least[bytes] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 0;
    *code = value;
    return bytes;
}

void rp_text_make_utf8(char *text)
{
    uint32_t code;
    while (*text) {
        size_t bytes = rp_text_character(text, SIZE_MAX, &code); /* its NUL ends a character */
        if (bytes == 0)
            *text = '?';
        text += bytes ? bytes : 1;
    }
}
