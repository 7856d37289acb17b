/* SPDX-License-Identifier: Apache-2.0 */
/* npy — a true numpy .npy file of one dimension. numpy writes its header as the text of a
 * Python dict, always in the same form: {'descr': '<u2', 'fortran_order': False, 'shape': (1234,),
 * } padded with spaces and ended by a newline. That form and no other is read here; a Python parser
 * would accept more than anybody writes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "corpus/readers/eos_walk.h"

#define HEADER_BYTES_MAX 4096u

static const struct {
    const char *descr;
    enum rp_token_type type;
} types[] = {
    {"|u1", RP_TOKEN_U8},  {"<u2", RP_TOKEN_U16}, {"<u4", RP_TOKEN_U32},
    {"<i4", RP_TOKEN_I32}, {"<i8", RP_TOKEN_I64},
};

static int fail_header(const char *path, const char *expected, const char *found,
                       struct rp_error *error)
{
    return rp_fail(
        error, -RP_E_FORMAT,
        "save a flat array of u1, u2, u4, i4 or i8: `np.save(path, a.ravel().astype('<u2'))`",
        "%s: npy header: expected %s, found %.80s", path, expected, found);
}

/* `text` is the header's dict, terminated. */
static int parse_dict(const char *path, char *text, struct rp_layout *layout, uint64_t *count,
                      struct rp_error *error)
{
    char descr[8];
    int used = 0;
    text[strcspn(text, "\n")] = 0;
    if (sscanf(text, "{'descr': '%7[^']', 'fortran_order': %n", descr, &used) != 1 || used == 0)
        return fail_header(path, "{'descr': '…', 'fortran_order': …", text, error);
    layout->type = RP_TOKEN_NONE;
    for (size_t i = 0; i < RP_ARRAY_COUNT(types); i++)
        if (!strcmp(descr, types[i].descr))
            layout->type = types[i].type;
    if (layout->type == RP_TOKEN_NONE)
        return fail_header(path, "a dtype of |u1, <u2, <u4, <i4 or <i8", descr, error);
    const char *rest = text + used;
    static const char order[] = "False, 'shape': (";
    if (strncmp(rest, order, sizeof order - 1))
        return fail_header(path, "'fortran_order': False, 'shape': (", rest, error);
    rest += sizeof order - 1;
    uint64_t value = 0;
    size_t digits = strspn(rest, "0123456789");
    for (size_t i = 0; i < digits; i++)
        if (!rp_mul_u64(value, 10, &value) || !rp_add_u64(value, (uint64_t)(rest[i] - '0'), &value))
            return fail_header(path, "a size that fits 64 bits", rest, error);
    const char *end = rest + digits;
    if (digits == 0 || strncmp(end, ",), }", 5) || strspn(end + 5, " ") != strlen(end + 5))
        return fail_header(path, "one dimension: (N,), }", rest, error);
    *count = value;
    return 0;
}

static int read_header(const struct rp_probe *probe, struct rp_layout *layout,
                       struct rp_error *error)
{
    const char *path = probe->path;
    uint8_t head[12];
    char text[HEADER_BYTES_MAX + 1];
    int code = rp_file_read_at(probe->fd, path, head, sizeof head, 0, error);
    if (code < 0)
        return code;
    uint8_t major = head[6];
    if (memcmp(head, "\x93NUMPY", 6) || major < 1 || major > 3)
        return fail_header(path, "the magic of numpy and version 1, 2 or 3", "others", error);
    uint32_t prefix = major == 1 ? 10 : 12;
    uint32_t length = major == 1 ? rp_load_u16(head + 8) : rp_load_u32(head + 8);
    if (length > HEADER_BYTES_MAX || prefix + length > probe->bytes)
        return fail_header(path, "a header of at most 4096 bytes inside the file", "a longer one",
                           error);
    code = rp_file_read_at(probe->fd, path, text, length, prefix, error);
    if (code < 0)
        return code;
    text[length] = 0;
    uint64_t count = 0, bytes;
    code = parse_dict(path, text, layout, &count, error);
    if (code < 0)
        return code;
    layout->token_offset = prefix + length;
    uint32_t width = rp_token_width(layout->type);
    if (layout->token_offset % width != 0)
        return fail_header(path, "a header that ends at a multiple of the dtype", "another length",
                           error);
    if (!rp_mul_u64(count, width, &bytes) || bytes != probe->bytes - layout->token_offset)
        return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                       "%s: the header says %" PRIu64 " tokens of %u bytes, found %" PRIu64
                       " bytes after it",
                       path, count, width, probe->bytes - layout->token_offset);
    return 0;
}

static int claim(const struct rp_probe *probe, char why[256], struct rp_error *error)
{
    snprintf(why, 256, "it begins with the magic of a numpy .npy file");
    if (!memcmp(probe->head, "\x93NUMPY", 6))
        return 1;
    if (!probe->is_declared)
        return 0;
    return rp_readers_refuse(probe, "no numpy header, though it was declared npy",
                             "OLMo's .npy files have none: declare them olmo where a .csv.gz is "
                             "beside them, else raw, with dtype and eos",
                             error);
}

static int walk(const struct rp_probe *probe, const struct rp_reader_options *options,
                struct rp_sink *sink, struct rp_error *error)
{
    struct rp_layout layout = {.eos = options->eos};
    int code = read_header(probe, &layout, error);
    if (code == 0)
        code = rp_readers_check_type(probe->path, options->type, layout.type, error);
    return code < 0 ? code : rp_eos_walk(probe, &layout, false, options, sink, error);
}

const struct rp_reader rp_reader_npy = {
    .format = RP_FORMAT_NPY,
    .title = "a numpy .npy file",
    .reads_tokens = true,
    .holds_no_mask = true,
    .claim = claim,
    .walk = walk,
};
