/* SPDX-License-Identifier: Apache-2.0 */
/* hide.c — the text of a config without the rights that its URLs carry.
 *
 * A value has many spellings (quotes, escapes, folded lines, blocks), so libyaml reads it, and its
 * scalars are searched. If the text has the value as it is, asterisks take the place of the rights
 * in it; else a quoted value takes the place of its text. Comments are no values: the text after a
 * URL's scheme in one, or after a question mark before an equals sign, is hidden up to the end of
 * the line. */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/hide.h"
#include "base/mem.h"
#include "config/config.h"

#define ESCAPE_BYTES 6 /* one byte of a value as \u00XX */

/* A text that is copied in parts. Marks of libyaml count characters. */
struct copy {
    const char *text;
    size_t at, characters; /* the place that has been reached, in bytes and in characters */
    char *out;             /* NULL when out of memory */
    size_t bytes, room;
};

static void put(struct copy *copy, const char *text, size_t bytes)
{
    if (copy->out && !RP_GROW(copy->out, copy->room, copy->bytes + bytes + 1)) {
        free(copy->out);
        copy->out = NULL;
    }
    if (!copy->out)
        return;
    memcpy(copy->out + copy->bytes, text, bytes);
    copy->bytes += bytes;
    copy->out[copy->bytes] = '\0';
}

/* The first byte of a character at the reached place or after it. */
static size_t byte_of(const struct copy *copy, size_t character)
{
    size_t at = copy->at, characters = copy->characters;
    while (copy->text[at] && characters < character) {
        at++;
        while ((copy->text[at] & 0xc0) == 0x80)
            at++;
        characters++;
    }
    return at;
}

/* Text between values: of it only comments can hold anything that was written by hand. */
static void put_between(struct copy *copy, const char *text, size_t bytes)
{
    size_t from = copy->bytes;
    put(copy, text, bytes);
    for (char *line = copy->out ? copy->out + from : NULL; line && *line;) {
        char *end = line + strcspn(line, "\r\n"),
             *comment = memchr(line, '#', (size_t)(end - line));
        size_t length = comment ? (size_t)(end - comment) : 0;
        char *scheme = comment ? memmem(comment, length, "://", 3) : NULL;
        char *query = comment ? memchr(comment, '?', length) : NULL;
        if (query && !memchr(query, '=', (size_t)(end - query)))
            query = NULL;
        char *begin = scheme && (!query || scheme < query) ? scheme + 3 : query ? query + 1 : NULL;
        if (begin)
            memset(begin, '*', (size_t)(end - begin));
        line = end + strspn(end, "\r\n");
    }
}

/* A value in double quotes, on one line. */
static void put_quoted(struct copy *copy, const char *value)
{
    put(copy, "\"", 1);
    for (; *value; value++) {
        char escaped[ESCAPE_BYTES + 2];
        unsigned char c = (unsigned char)*value;
        int bytes = c < 0x20 || c == 0x7f ? snprintf(escaped, sizeof escaped, "\\x%02x", c)
                                          : snprintf(escaped, sizeof escaped, "%s%c",
                                                     strchr("\"\\", c) ? "\\" : "", c);
        put(copy, escaped, (size_t)bytes);
    }
    put(copy, "\"", 1);
}

static void put_value(struct copy *copy, const char *raw, size_t bytes, const char *value)
{
    bool is_block = bytes && (*raw == '|' || *raw == '>');
    size_t header = is_block ? strcspn(raw, "\n") : 0; /* which may end with a comment */
    char *hidden = strdup(value);
    if (!hidden) {
        free(copy->out);
        copy->out = NULL;
        return;
    }
    if (header > bytes)
        header = bytes;
    if (!rp_hide_in_value(hidden)) {
        put_between(copy, raw, header);
        put(copy, raw + header, bytes - header);
    } else {
        const char *found = memmem(raw, bytes, value, strlen(value));
        if (found) {
            put_between(copy, raw, (size_t)(found - raw));
            put(copy, hidden, strlen(hidden));
            put(copy, found + strlen(value), bytes - (size_t)(found - raw) - strlen(value));
        } else {
            put_quoted(copy, hidden);
            if (bytes && raw[bytes - 1] == '\n') /* the end of a YAML block */
                put(copy, "\n", 1);
        }
    }
    rp_free_secret(hidden);
}

/* Copy up to the end of a value, which may be text without a meaning to the config. */
static void take_scalar(struct copy *copy, const yaml_token_t *token)
{
    size_t begin = byte_of(copy, token->start_mark.index);
    put_between(copy, copy->text + copy->at, begin - copy->at);
    copy->at = begin;
    copy->characters = token->start_mark.index;
    size_t end = byte_of(copy, token->end_mark.index);
    put_value(copy, copy->text + begin, end - begin, (const char *)token->data.scalar.value);
    copy->at = end;
    copy->characters = token->end_mark.index;
}

char *rp_config_hide_yaml(const char *text)
{
    struct copy copy = {.text = text, .out = strdup(""), .room = 1};
    yaml_parser_t parser;
    size_t mark = strncmp(text, "\xef\xbb\xbf", 3) ? 0 : 3; /* as it is read */
    if (!yaml_parser_initialize(&parser)) {
        free(copy.out);
        return NULL;
    }
    put(&copy, text, mark);
    copy.text += mark;
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)copy.text, strlen(copy.text));
    bool ends = false;
    while (!ends) {
        yaml_token_t token;
        ends = !yaml_parser_scan(&parser, &token); /* then the rest is not kept */
        if (ends)
            break;
        if (token.type == YAML_SCALAR_TOKEN)
            take_scalar(&copy, &token);
        ends = token.type == YAML_STREAM_END_TOKEN;
        if (ends)
            put_between(&copy, copy.text + copy.at, strlen(copy.text + copy.at));
        yaml_token_delete(&token);
    }
    yaml_parser_delete(&parser);
    return copy.out;
}

void rp_config_hide_options(char *lines)
{
    for (char *line = lines; *line;) {
        char *end = strchrnul(line, '\n'), saved = *end;
        *end = '\0';
        (void)rp_hide_in_value(line);
        *end = saved;
        line = end + (saved != '\0');
    }
}
