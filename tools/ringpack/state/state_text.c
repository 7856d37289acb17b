/* SPDX-License-Identifier: Apache-2.0 */
/* state_text.c — the forms whose description is JSON: JSON itself, and safetensors.
 *
 * JSON: the object {"ringpack_state": base64} anywhere in the text, as a trainer saves it within
 * its own state. safetensors: 8 bytes with the length of the description, the description, the
 * arrays. The token is the U8 array of that name, or of a name with dots that ends with it, or
 * base64 in the metadata. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "state/state_fields.h"
#include "state/state_search.h"

#define FIELD_PREFIX "ringpack."
#define METADATA "__metadata__"
#define ARRAYS_AT 8u /* in safetensors: the description begins here */
/* A description of more bytes is not written by anybody, and JSON of more is no state. */
#define TEXT_BYTES_MAX (100u << 20)

static int fail_json(const struct rp_saved_search *search, const json_error_t *found,
                     struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT, "write the file again", "%s: no JSON: line %d: %.120s",
                   search->path, found->line, found->text);
}

static int fail_memory(struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "no memory to write a state token");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static bool claim_json(const uint8_t *data, uint64_t bytes)
{
    uint64_t at = 0;
    while (at < bytes && strchr(" \t\r\n", data[at]) && data[at])
        at++;
    return at < bytes && data[at] == '{' && bytes <= TEXT_BYTES_MAX &&
           memmem(data, (size_t)bytes, "\"" RP_STATE_KEY "\"", sizeof RP_STATE_KEY + 1) != NULL;
}

static int take_object(struct rp_saved_search *search, const json_t *object, struct rp_error *error)
{
    const json_t *text = json_object_get(object, RP_STATE_KEY);
    const json_t *fields = json_object_get(object, RP_STATE_FIELDS_KEY);
    if (!text)
        return 0;
    if (!json_is_string(text))
        return rp_fail(error, -RP_E_CORRUPT, "give the return value of state_dict(text=True)",
                       "%s: %s is not text", search->path, RP_STATE_KEY);
    int code = rp_saved_take_text(search, json_string_value(text), error);
    return code < 0 || !fields ? code
                               : rp_saved_fields_check(fields, search->token, search->token_bytes,
                                                       search->path, error);
}

/* The depth is bounded by the parser. */
static int search_json(struct rp_saved_search *search, json_t *value, struct rp_error *error)
{
    const char *name;
    json_t *inner;
    size_t i;
    int code = json_is_object(value) ? take_object(search, value, error) : 0;
    json_object_foreach(value, name, inner) code = code < 0 ? code
                                                            : search_json(search, inner, error);
    json_array_foreach(value, i, inner) code = code < 0 ? code : search_json(search, inner, error);
    return code;
}

static int read_json(struct rp_saved_search *search, struct rp_error *error)
{
    json_error_t found;
    json_t *value = json_loadb((const char *)search->data, (size_t)search->bytes, JSON_ALLOW_NUL,
                               &found); /* other texts of a trainer may have "\u0000" */
    if (!value)
        return fail_json(search, &found, error);
    int code = search_json(search, value, error);
    json_decref(value);
    return code;
}

static int write_json(const void *token, size_t bytes, uint8_t **file_out, size_t *file_bytes,
                      struct rp_error *error)
{
    json_t *fields = rp_saved_fields(token, bytes, error);
    char *text = rp_base64_encode(token, bytes);
    if (!fields || !text) {
        json_decref(fields);
        free(text);
        return fields ? fail_memory(error) : error->code;
    }
    json_t *value = json_pack("{s:s, s:o}", RP_STATE_KEY, text, RP_STATE_FIELDS_KEY, fields);
    char *file = value ? json_dumps(value, JSON_INDENT(2)) : NULL;
    json_decref(value);
    free(text);
    *file_bytes = file ? strlen(file) : 0;
    *file_out = (uint8_t *)file;
    return file ? 0 : fail_memory(error);
}

const struct rp_saved_form rp_saved_form_json = {".json", "JSON", claim_json, read_json,
                                                 write_json};

/* ---- safetensors ----------------------------------------------------------------------------- */

static uint64_t description_bytes(const uint8_t *data, uint64_t bytes)
{
    uint64_t length = bytes > ARRAYS_AT ? rp_load_u64(data) : 0;
    return length <= TEXT_BYTES_MAX && length <= bytes - ARRAYS_AT ? length : 0;
}

static bool claim_safetensors(const uint8_t *data, uint64_t bytes)
{
    uint64_t length = description_bytes(data, bytes);
    return length > 2 && data[ARRAYS_AT] == '{' &&
           memmem(data + ARRAYS_AT, (size_t)length, RP_STATE_KEY, strlen(RP_STATE_KEY)) != NULL;
}

static bool is_state_name(const char *name)
{
    return strcmp(name, RP_STATE_KEY) == 0 || rp_text_has_suffix(name, "." RP_STATE_KEY);
}

static int take_array(struct rp_saved_search *search, const json_t *array, struct rp_error *error)
{
    const json_t *places = json_object_get(array, "data_offsets");
    const char *type = json_string_value(json_object_get(array, "dtype"));
    json_int_t begin = json_integer_value(json_array_get(places, 0));
    json_int_t end = json_integer_value(json_array_get(places, 1));
    uint64_t base = ARRAYS_AT + description_bytes(search->data, search->bytes);
    if (!type || strcmp(type, "U8") != 0 || begin < 0 || end < begin ||
        (uint64_t)end > search->bytes - base)
        return rp_fail(error, -RP_E_CORRUPT, "save what state_dict() returned again",
                       "%s: the array %s is none of bytes (U8) within the file", search->path,
                       RP_STATE_KEY);
    return rp_saved_take(search, search->data + base + begin, (size_t)(end - begin), error);
}

/* Metadata have no objects: the fields are those whose names begin with a prefix. */
static int check_metadata(struct rp_saved_search *search, json_t *metadata, struct rp_error *error)
{
    json_t *fields = json_object(), *value;
    const char *name;
    json_object_foreach(metadata, name, value)
    {
        if (strncmp(name, FIELD_PREFIX, strlen(FIELD_PREFIX)) == 0)
            json_object_set(fields, name + strlen(FIELD_PREFIX), value);
    }
    int code = json_object_size(fields) && search->token
                   ? rp_saved_fields_check(fields, search->token, search->token_bytes, search->path,
                                           error)
                   : 0;
    json_decref(fields);
    return code;
}

static int read_safetensors(struct rp_saved_search *search, struct rp_error *error)
{
    json_error_t found;
    const char *name;
    json_t *value, *description = json_loadb((const char *)search->data + ARRAYS_AT,
                                             (size_t)description_bytes(search->data, search->bytes),
                                             JSON_ALLOW_NUL, &found);
    int code = description ? 0 : fail_json(search, &found, error);
    json_object_foreach(description, name, value)
    {
        if (code == 0 && is_state_name(name))
            code = take_array(search, value, error);
    }
    json_t *metadata = json_object_get(description, METADATA);
    const char *text = json_string_value(json_object_get(metadata, RP_STATE_KEY));
    if (code == 0 && text)
        code = rp_saved_take_text(search, text, error);
    if (code == 0)
        code = check_metadata(search, metadata, error);
    json_decref(description);
    return code;
}

/* The description of a file with one array, padded with spaces to a multiple of 8 bytes. NULL after
 * a failure. */
static char *describe(const void *token, size_t bytes, struct rp_error *error)
{
    json_t *fields = rp_saved_fields(token, bytes, error), *value;
    if (!fields)
        return NULL;
    json_t *metadata = json_object();
    const char *name;
    json_object_foreach(fields, name, value)
    {
        char *full = rp_asprintf(FIELD_PREFIX "%s", name);
        if (full)
            json_object_set(metadata, full, value);
        free(full);
    }
    json_decref(fields);
    json_t *description = json_pack("{s:o, s:{s:s, s:[I], s:[I, I]}}", METADATA, metadata,
                                    RP_STATE_KEY, "dtype", "U8", "shape", (json_int_t)bytes,
                                    "data_offsets", (json_int_t)0, (json_int_t)bytes);
    char *text = description ? json_dumps(description, JSON_COMPACT) : NULL;
    json_decref(description);
    char *padded = text ? rp_asprintf("%s%*s", text, (int)((8 - strlen(text) % 8) % 8), "") : NULL;
    free(text);
    if (!padded)
        fail_memory(error);
    return padded;
}

static int write_safetensors(const void *token, size_t bytes, uint8_t **file_out,
                             size_t *file_bytes, struct rp_error *error)
{
    char *text = describe(token, bytes, error);
    size_t length = text ? strlen(text) : 0;
    uint8_t *file = text ? malloc(ARRAYS_AT + length + bytes) : NULL;
    if (!file) {
        free(text);
        return text ? fail_memory(error) : error->code;
    }
    rp_store_u64(file, length);
    memcpy(file + ARRAYS_AT, text, length);
    memcpy(file + ARRAYS_AT + length, token, bytes);
    free(text);
    *file_out = file;
    *file_bytes = ARRAYS_AT + length + bytes;
    return 0;
}

const struct rp_saved_form rp_saved_form_safetensors = {
    ".safetensors", "safetensors", claim_safetensors, read_safetensors, write_safetensors};
