/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c — a tensor of a file: u64 bytes of a header of JSON, which has for each tensor its
 * type, its shape and its place in the rest of the file. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "column/values.h"
#include "convert/value_type.h"

#define HEADER_BYTES_MAX (100u << 20) /* as the format's own library */

static const struct {
    const char *name;
    uint32_t dtype, width;
} types[] = {
    {"BOOL", RP_DTYPE_U8, 1}, {"U8", RP_DTYPE_U8, 1},   {"I8", RP_DTYPE_I8, 1},
    {"U16", RP_DTYPE_U16, 2}, {"I16", RP_DTYPE_I16, 2}, {"F16", RP_DTYPE_F16, 2},
    {"I32", RP_DTYPE_I32, 4}, {"F32", RP_DTYPE_F32, 4}, {"BF16", RP_DTYPE_BF16, 2},
    {"I64", RP_DTYPE_I64, 8}, {"F64", RP_DTYPE_F64, 8},
};

static int fail_tensor(const struct rp_values *values, const char *name, const char *expected,
                       const char *found, struct rp_error *error)
{
    return rp_fail(error, -RP_E_FORMAT,
                   "save a tensor of one or two dimensions, a row for each token; "
                   "`--column NAME=FILE.safetensors:TENSOR` names it",
                   "%s: tensor `%s`: expected %s, found %.200s", values->path, name, expected,
                   found);
}

static int take_tensor(struct rp_values *values, const char *name, json_t *tensor,
                       uint64_t data_bytes, struct rp_error *error)
{
    const char *type = json_string_value(json_object_get(tensor, "dtype"));
    json_t *shape = json_object_get(tensor, "shape");
    json_t *place = json_object_get(tensor, "data_offsets");
    json_int_t rows = json_integer_value(json_array_get(shape, 0));
    json_int_t count = json_array_size(shape) < 2 ? 1
                                                  : json_integer_value(json_array_get(shape, 1));
    json_int_t first = json_integer_value(json_array_get(place, 0));
    json_int_t last = json_integer_value(json_array_get(place, 1));
    uint32_t width = 0;
    uint64_t bytes;
    for (size_t i = 0; type && i < RP_ARRAY_COUNT(types); i++)
        if (!strcmp(type, types[i].name)) {
            values->type.dtype = types[i].dtype;
            width = types[i].width;
        }
    if (width == 0)
        return fail_tensor(values, name,
                           "a type of U8, I8, U16, I16, I32, I64, F16, BF16, F32, F64",
                           type ? type : "none", error);
    if (json_array_size(shape) < 1 || json_array_size(shape) > 2 || rows < 0 || count < 1 ||
        count > RP_SIDE_ENTRY_BYTES)
        return fail_tensor(values, name, "one or two dimensions, at most 512 bytes for a token",
                           "another shape", error);
    int code = rp_value_type_repeat(&values->type, (uint32_t)count, width, values->path, error);
    if (code < 0)
        return code;
    values->rows = (uint64_t)rows;
    values->at += (uint64_t)first;
    if (first < 0 || last < first || (uint64_t)last > data_bytes ||
        !rp_mul_u64(values->rows, values->type.bytes, &bytes) || bytes != (uint64_t)(last - first))
        return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                       "%s: tensor `%s`: its place in the file has other bytes than its shape",
                       values->path, name);
    return 0;
}

static int find_tensor(struct rp_values *values, const char *name, const json_t *header,
                       uint64_t data_bytes, struct rp_error *error)
{
    json_t *tensor = json_object_get(header, name);
    char names[160] = "no tensor";
    size_t used = 0;
    const char *key;
    json_t *value;
    if (json_is_object(tensor))
        return take_tensor(values, name, tensor, data_bytes, error);
    json_object_foreach((json_t *)(uintptr_t)header, key,
                        value) if (strcmp(key, "__metadata__") != 0 &&
                                   used + strlen(key) + 3 < sizeof names)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", key);
    return fail_tensor(values, name, "a tensor of this name", names, error);
}

int rp_values_open_safetensors(struct rp_values *values, const char *name, struct rp_error *error)
{
    uint64_t bytes = 0;
    uint8_t head[8];
    values->fd = rp_file_open_read(values->path, &bytes, error);
    int code = values->fd < 0
                   ? values->fd
                   : rp_file_read_at(values->fd, values->path, head, sizeof head, 0, error);
    if (code < 0)
        return code;
    uint64_t length = rp_load_u64(head);
    if (length > HEADER_BYTES_MAX || length > bytes - sizeof head)
        return rp_fail(error, -RP_E_FORMAT, "does its format match its name?",
                       "%s: expected a header of safetensors, found %" PRIu64
                       " bytes of it in %" PRIu64,
                       values->path, length, bytes);
    char *text = malloc((size_t)length + 1);
    if (!text)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its header", values->path);
    code = rp_file_read_at(values->fd, values->path, text, (size_t)length, sizeof head, error);
    json_error_t reason;
    json_t *header = code == 0 ? json_loadb(text, (size_t)length, 0, &reason) : NULL;
    values->at = sizeof head + length;
    if (code == 0)
        code = json_is_object(header)
                   ? find_tensor(values, name, header, bytes - values->at, error)
                   : rp_fail(error, -RP_E_FORMAT, "does its format match its name?",
                             "%s: its header is no JSON: %s", values->path, reason.text);
    json_decref(header);
    free(text);
    return code;
}
