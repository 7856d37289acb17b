/* SPDX-License-Identifier: Apache-2.0 */
/* mds_header.c — the JSON of an MDS shard: {"format": "mds", "column_names": ["tokens"],
 * "column_encodings": ["ndarray:uint16"], "column_sizes": [null], …}. A size is null if each
 * sample has its own. Encodings that hold token ids:
 *
 *     bytes               bare ids, of a type that is written nowhere
 *     ndarray             type, shape, ids
 *     ndarray:TYPE        shape, ids
 *     ndarray:TYPE:SHAPE  ids */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/text.h"
#include "corpus/readers/mds.h"

#define COLUMN_BYTES_MAX (UINT64_C(1) << 32)

static const struct {
    const char *name;
    uint8_t number;
    enum rp_token_type type;
} types[] = {
    {"uint8", 8, RP_TOKEN_U8},    {"int8", 9, RP_TOKEN_I8},     {"uint16", 16, RP_TOKEN_U16},
    {"int16", 17, RP_TOKEN_I16},  {"uint32", 32, RP_TOKEN_U32}, {"int32", 33, RP_TOKEN_I32},
    {"uint64", 64, RP_TOKEN_U64}, {"int64", 65, RP_TOKEN_I64},
};

enum rp_token_type rp_mds_type_of(uint8_t number)
{
    for (size_t i = 0; i < RP_ARRAY_COUNT(types); i++)
        if (types[i].number == number)
            return types[i].type;
    return RP_TOKEN_NONE;
}

/* The best column so far. */
struct choice {
    const char *declared;
    enum rp_id_rank rank;
    unsigned count;       /* columns of that rank */
    const char *encoding; /* the newest one's, if it holds no ids; else NULL */
    const char *text;     /* a column of text; NULL: none */
    char columns[160];    /* all columns, for messages */
};

/* Read "ndarray", "ndarray:uint16" or "ndarray:uint16:2048". False: no array of integers. */
static bool parse_array(const char *encoding, struct rp_mds_column *column)
{
    static const char array[] = "ndarray";
    if (strncmp(encoding, array, sizeof array - 1))
        return false;
    const char *type = encoding + sizeof array - 1;
    column->has_type = *type == '\0';
    column->has_shape = !strchr(type + !column->has_type, ':');
    if (column->has_type)
        return true;
    size_t length = strcspn(type + 1, ":");
    for (size_t i = 0; i < RP_ARRAY_COUNT(types); i++)
        if (strlen(types[i].name) == length && !strncmp(type + 1, types[i].name, length))
            column->type = types[i].type;
    return *type == ':' && column->type != RP_TOKEN_NONE;
}

/* Choose a column if it is better than those before it; `column` has its place and size. */
static void consider(struct choice *choice, const char *name, const char *encoding,
                     struct rp_mds_column column, struct rp_mds_column *chosen)
{
    enum rp_id_rank rank = rp_readers_rank(name, choice->declared);
    size_t used = strlen(choice->columns);
    snprintf(choice->columns + used, sizeof choice->columns - used, "%s%s (%s)", used ? ", " : "",
             name, encoding);
    if (!strcmp(encoding, "str") && (!choice->text || !strcmp(name, "text")))
        choice->text = name;
    column.is_bytes = !strcmp(encoding, "bytes");
    bool holds_ids = column.is_bytes || parse_array(encoding, &column);
    if (rank == RP_ID_ANY && (!holds_ids || column.is_bytes)) /* bytes may be anything */
        rank = RP_ID_NONE;
    if (rank == RP_ID_NONE || rank < choice->rank || strlen(name) >= sizeof column.name)
        return;
    choice->count = rank == choice->rank ? choice->count + 1 : 1;
    choice->rank = rank;
    choice->encoding = holds_ids ? NULL : encoding;
    memcpy(column.name, name, strlen(name) + 1);
    *chosen = column;
}

static int fail_text(const struct rp_probe *probe, const char *column, struct rp_error *error)
{
    char hint[sizeof error->hint];
    snprintf(hint, sizeof hint,
             "convert it once: `ringpack convert --tokenizer tokenizer.json --column %s -o PREFIX "
             "%s`",
             RP_TEXT_SHELL_WORD(column), RP_HINT_PATH(probe->path));
    return rp_readers_refuse(probe, "an MDS shard of text", hint, error);
}

static int fail_choice(const struct rp_probe *probe, const struct choice *choice,
                       const struct rp_mds_column *ids, struct rp_error *error)
{
    const char *encoding = choice->count == 1 ? choice->encoding : NULL;
    if (encoding && !strcmp(encoding, "pkl"))
        return rp_fail(error, -RP_E_FORMAT,
                       "write the shards again with `ndarray:uint16` or `ndarray:uint32`",
                       "%s: column `%s` is a pickle, which runs whatever program it holds when it "
                       "is loaded, so it never is",
                       probe->path, ids->name);
    if (encoding && !strcmp(encoding, "json"))
        return rp_readers_convert(probe, "an MDS shard whose tokens are JSON", error);
    if (choice->text && !choice->declared && (choice->count == 0 || encoding))
        return fail_text(probe, choice->text, error);
    return rp_fail(error, -RP_E_FORMAT, "name the one with the token ids: `column:` (--column)",
                   "%s: expected a column %s of integers (ndarray) or bytes, found %s", probe->path,
                   choice->declared ? choice->declared : "`input_ids` or `tokens`, or one",
                   choice->columns[0] ? choice->columns : "none");
}

static int fail_header(const struct rp_probe *probe, const char *what, struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                   "%s: the JSON of an MDS shard: expected %s", probe->path, what);
}

/* Read the name, encoding and size of each column, and choose one. */
static int read_columns(const struct rp_probe *probe, const json_t *object, struct choice *choice,
                        struct rp_mds_header *header, struct rp_error *error)
{
    const json_t *names = json_object_get(object, "column_names");
    const json_t *encodings = json_object_get(object, "column_encodings");
    const json_t *sizes = json_object_get(object, "column_sizes");
    size_t count = json_array_size(names);
    if (json_array_size(encodings) != count || json_array_size(sizes) != count)
        return fail_header(probe, "as many encodings and sizes as names of columns", error);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        const char *encoding = json_string_value(json_array_get(encodings, i));
        const json_t *size = json_array_get(sizes, i);
        uint64_t bytes = (uint64_t)json_integer_value(size);
        if (!name || !encoding || !(json_is_null(size) || json_is_integer(size)))
            return fail_header(probe, "a name, an encoding and a size of every column", error);
        if (bytes > COLUMN_BYTES_MAX || header->fixed_bytes > COLUMN_BYTES_MAX)
            return fail_header(probe, "columns of at most 4 GiB", error);
        if (header->variable == RP_MDS_VARIABLE_MAX)
            return fail_header(probe, "at most 256 columns of variable size", error);
        const struct rp_mds_column column = {.is_variable = json_is_null(size),
                                             .variable_before = header->variable,
                                             .fixed_before = header->fixed_bytes,
                                             .fixed_bytes = bytes};
        consider(choice, name, encoding, column, &header->ids);
        header->variable += column.is_variable;
        header->fixed_bytes += bytes;
    }
    return 0;
}

static bool is_mds(const json_t *object)
{
    const char *format = json_string_value(json_object_get(object, "format"));
    return format && !strcmp(format, "mds") &&
           json_is_array(json_object_get(object, "column_names"));
}

bool rp_mds_is_header(const char *text, size_t bytes)
{
    json_t *object = json_loadb(text, bytes, 0, NULL);
    bool is = is_mds(object);
    json_decref(object);
    return is;
}

int rp_mds_read_header(const struct rp_probe *probe, const char *text, size_t bytes,
                       const char *declared, struct rp_mds_header *header, struct rp_error *error)
{
    struct choice choice = {.declared = declared};
    json_t *object = json_loadb(text, bytes, 0, NULL);
    *header = (struct rp_mds_header){0};
    int code = is_mds(object) ? read_columns(probe, object, &choice, header, error)
                              : fail_header(probe, "an object with the format mds", error);
    if (code == 0 && (choice.count != 1 || choice.encoding))
        code = fail_choice(probe, &choice, &header->ids, error);
    json_decref(object);
    return code;
}
