/* SPDX-License-Identifier: Apache-2.0 */
#include "base/record.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"

static bool is_sign(char c)
{
    return c == '=' || c == '~' || c == ':';
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '[' || c == ']' ||
           c == '.';
}

static bool is_value_byte(char c)
{
    return c >= 0x20 && c <= 0x7e;
}

static int compare_names(const struct rp_field *a, const struct rp_field *b)
{
    int order = memcmp(a->name, b->name, rp_min_u64(a->name_bytes, b->name_bytes));
    if (order != 0)
        return order;
    return (a->name_bytes > b->name_bytes) - (a->name_bytes < b->name_bytes);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Parse the line at the beginning of `text`. Returns its length with the newline, 0 if it is
 * malformed. */
static size_t parse_line(const char *text, size_t bytes, struct rp_field *field)
{
    size_t name = 0, end;
    while (name < bytes && name <= RP_RECORD_NAME_MAX && is_name_byte(text[name]))
        name++;
    if (name == 0 || name > RP_RECORD_NAME_MAX || name == bytes || !is_sign(text[name]))
        return 0;
    for (end = name + 1; end < bytes && is_value_byte(text[end]); end++)
        ;
    if (end == bytes || text[end] != '\n' || end - name - 1 > RP_RECORD_VALUE_MAX)
        return 0;
    *field = (struct rp_field){.name = text,
                               .value = text + name + 1,
                               .name_bytes = (uint32_t)name,
                               .value_bytes = (uint32_t)(end - name - 1),
                               .sign = text[name]};
    return end + 1;
}

int rp_record_open(struct rp_record *record, const char *text, size_t bytes, struct rp_error *error)
{
    struct rp_field last = {0}, field;
    size_t line = 1;
    for (size_t at = 0, used; at < bytes; at += used, line++, last = field) {
        used = parse_line(text + at, bytes - at, &field);
        if (used == 0 || (line > 1 && compare_names(&last, &field) >= 0))
            return rp_fail(error, -RP_E_CORRUPT, NULL,
                           "line %zu of a record is not `name=value`, or its name does not ascend",
                           line);
    }
    *record = (struct rp_record){text, bytes};
    return 0;
}

bool rp_record_next(const struct rp_record *record, size_t *at, struct rp_field *field)
{
    RP_ASSERT(*at <= record->bytes);
    if (*at == record->bytes)
        return false;
    size_t used = parse_line(record->text + *at, record->bytes - *at, field);
    RP_ASSERT(used > 0); /* rp_record_open has checked it, or rp_record_add has made it */
    *at += used;
    return true;
}

bool rp_record_find(const struct rp_record *record, const char *name, struct rp_field *field)
{
    for (size_t at = 0; rp_record_next(record, &at, field);)
        if (strlen(name) == field->name_bytes && memcmp(name, field->name, field->name_bytes) == 0)
            return true;
    return false;
}

struct rp_hash128 rp_record_hash(const struct rp_record *record)
{
    struct rp_hasher hasher;
    struct rp_field field;
    rp_hasher_begin(&hasher);
    for (size_t at = 0, line = 0; rp_record_next(record, &at, &field); line = at)
        if (field.sign != ':')
            rp_hasher_add(&hasher, record->text + line, at - line);
    return rp_hasher_finish(&hasher);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Read the line with the next name in either record, from both records if both have it; false at
 * the end. */
static bool next_line(struct rp_record_pair *pair)
{
    size_t at[2] = {pair->at[0], pair->at[1]};
    for (unsigned i = 0; i < 2; i++)
        pair->has[i] = rp_record_next(pair->of[i], &at[i], &pair->field[i]);
    if (pair->has[0] && pair->has[1]) {
        int order = compare_names(&pair->field[0], &pair->field[1]);
        pair->has[0] = order <= 0;
        pair->has[1] = order >= 0;
    }
    for (unsigned i = 0; i < 2; i++)
        if (pair->has[i])
            pair->at[i] = at[i];
    return pair->has[0] || pair->has[1];
}

static bool differs(const struct rp_record_pair *pair)
{
    const struct rp_field *a = &pair->field[0], *b = &pair->field[1];
    if (!pair->has[0] || !pair->has[1])
        return (pair->has[0] ? a : b)->sign == '=';
    if (a->sign == ':' && b->sign == ':')
        return false;
    return a->value_bytes != b->value_bytes || memcmp(a->value, b->value, a->value_bytes) != 0;
}

bool rp_record_next_difference(struct rp_record_pair *pair)
{
    while (next_line(pair))
        if (differs(pair))
            return true;
    return false;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put(struct rp_record_writer *writer, const char *text, size_t bytes)
{
    if (writer->out_of_memory)
        return;
    if (!RP_GROW(writer->text, writer->capacity, writer->bytes + bytes + 1)) {
        writer->out_of_memory = true;
        return;
    }
    memcpy(writer->text + writer->bytes, text, bytes);
    writer->bytes += bytes;
    writer->text[writer->bytes] = '\0';
}

/* A byte that a value cannot hold is written as a backslash and two hexadecimal digits. */
static void put_value(struct rp_record_writer *writer, const char *value)
{
    char text[RP_RECORD_VALUE_MAX];
    size_t bytes = 0;
    for (; *value; value++) {
        bool is_plain = is_value_byte(*value) && *value != '\\';
        size_t needed = is_plain ? 1 : 3;
        if (sizeof text - bytes < needed)
            break;
        if (is_plain) {
            text[bytes] = *value;
        } else {
            static const char digits[] = "0123456789abcdef";
            text[bytes] = '\\';
            text[bytes + 1] = digits[(unsigned char)*value >> 4];
            text[bytes + 2] = digits[*value & 15];
        }
        bytes += needed;
    }
    put(writer, text, bytes);
}

void rp_record_add(struct rp_record_writer *writer, char sign, const char *name, const char *format,
                   ...)
{
    char value[RP_RECORD_VALUE_MAX + 1];
    struct rp_field last, field;
    size_t line = writer->bytes;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    put(writer, name, strlen(name));
    put(writer, &sign, 1);
    put_value(writer, value);
    put(writer, "\n", 1);
    if (writer->out_of_memory)
        return;
    size_t used = parse_line(writer->text + line, writer->bytes - line, &field);
    RP_ASSERT(used == writer->bytes - line);
    if (line > writer->last) {
        used = parse_line(writer->text + writer->last, line - writer->last, &last);
        RP_ASSERT(used > 0 && compare_names(&last, &field) < 0);
    }
    writer->last = line;
}

void rp_record_end(struct rp_record_writer *writer)
{
    put(writer, "\n", 1);
    writer->last = writer->bytes;
}
