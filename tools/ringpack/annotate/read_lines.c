/* SPDX-License-Identifier: Apache-2.0 */
/* read_lines.c — a column from JSON Lines: a field of each line, plain or compressed. A field
 * within an object is named with a point: `meta.score`. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "annotate/annotate.h"
#include "base/mem.h"
#include "convert/convert.h"
#include "interrupt.h"

#define READ_BYTES (1u << 20)

struct lines {
    struct rp_gathered *values;
    const char *path;
    uint64_t line, row; /* from 1, from 0 */
};

static int fail_line(const struct lines *lines, const char *expected, const char *found,
                     struct rp_error *error)
{
    return rp_fail(error, -RP_E_FORMAT, RP_ANNOTATE_MEND,
                   "%s:%" PRIu64 ": expected %s in `%s`, found %.200s", lines->path, lines->line,
                   expected, lines->values->field, found);
}

/* The field of that name, or the one at its path of words between points. */
static const json_t *find(const json_t *object, const char *field)
{
    const json_t *found = json_object_get(object, field);
    const char *point = strchr(field, '.');
    if (found || !point)
        return found;
    char *head = strndup(field, (size_t)(point - field));
    const json_t *inner = head ? json_object_get(object, head) : NULL;
    free(head);
    return inner ? find(inner, point + 1) : NULL;
}

static int add_value(struct lines *lines, const json_t *value, struct rp_error *error)
{
    static const char *const names[] = {"an object", "a list", "a text", "", "", "", "", "null"};
    enum rp_index_column_type type = RP_INDEX_COLUMN_I64;
    uint64_t word = 0;
    if (json_is_integer(value)) {
        word = (uint64_t)json_integer_value(value);
    } else if (json_is_real(value)) {
        double real = json_real_value(value);
        memcpy(&word, &real, sizeof word);
        type = RP_INDEX_COLUMN_F64;
    } else if (json_is_boolean(value)) {
        word = json_is_true(value);
        type = RP_INDEX_COLUMN_U8;
    } else {
        return fail_line(lines, "a number", value ? names[json_typeof(value)] : "nothing", error);
    }
    return rp_gathered_add(lines->values, type, word, lines->path, lines->row++, error);
}

static int add_line(struct lines *lines, const char *line, size_t bytes, struct rp_error *error)
{
    json_error_t reason;
    size_t blank = 0;
    lines->line++;
    while (blank < bytes && line[blank] && strchr(" \t\r", line[blank]))
        blank++;
    if (blank == bytes)
        return 0;
    json_t *object = json_loadb(line, bytes, JSON_ALLOW_NUL, &reason);
    int code = json_is_object(object) ? add_value(lines, find(object, lines->values->field), error)
                                      : fail_line(lines, "a JSON object with a number",
                                                  object ? "another value" : reason.text, error);
    json_decref(object);
    return code;
}

/* Every whole line of the buffer; *used becomes the bytes of the rest, which moves to its front. */
static int add_whole_lines(struct lines *lines, char *buffer, size_t *used, struct rp_error *error)
{
    size_t begin = 0;
    int code = 0;
    for (const char *end;
         code == 0 && (end = memchr(buffer + begin, '\n', *used - begin)) != NULL;) {
        size_t bytes = (size_t)(end - buffer) - begin;
        code = add_line(lines, buffer + begin, bytes, error);
        begin += bytes + 1;
    }
    *used -= begin;
    memmove(buffer, buffer + begin, *used);
    return code;
}

static int read_all(struct lines *lines, struct rp_plain *plain, struct rp_error *error)
{
    char *buffer = NULL;
    size_t used = 0, capacity = 0, got = 1;
    int code = 0;
    while (code == 0 && got > 0) {
        if (!RP_GROW(buffer, capacity, used + READ_BYTES)) {
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a line", lines->path);
            break;
        }
        code = rp_plain_read(plain, buffer + used, READ_BYTES, &got, error);
        used += code == 0 ? got : 0;
        if (code == 0)
            code = add_whole_lines(lines, buffer, &used, error);
        if (code == 0)
            code = rp_interrupt_check(RP_ANNOTATE_IS_SAFE, error);
    }
    if (code == 0 && used > 0) /* a last line without an end */
        code = add_line(lines, buffer, used, error);
    free(buffer);
    return code;
}

int rp_annotate_read_lines(struct rp_gathered *values, const char *path, struct rp_error *error)
{
    struct rp_plain plain;
    struct lines lines = {.values = values, .path = path};
    int code = rp_plain_open(&plain, path, 0, error);
    if (code == 0)
        code = read_all(&lines, &plain, error);
    rp_plain_close(&plain);
    return code;
}
