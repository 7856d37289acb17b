/* SPDX-License-Identifier: Apache-2.0 */
/* read_npy — a column from a numpy .npy file of one dimension. numpy writes the header always in
 * one form, and no other is read, as the reader of tokens does. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "annotate/annotate.h"
#include "base/bits.h"
#include "base/file.h"
#include "base/text.h"
#include "interrupt.h"

#define HEADER_BYTES_MAX 4096u
#define READ_BYTES 65536u

static const struct {
    const char *descr;
    enum rp_index_column_type type;
    uint32_t width;
} types[] = {
    {"|b1", RP_INDEX_COLUMN_U8, 1},  {"|u1", RP_INDEX_COLUMN_U8, 1},
    {"<u2", RP_INDEX_COLUMN_U16, 2}, {"<u4", RP_INDEX_COLUMN_U32, 4},
    {"<u8", RP_INDEX_COLUMN_U64, 8}, {"|i1", RP_INDEX_COLUMN_I8, 1},
    {"<i2", RP_INDEX_COLUMN_I16, 2}, {"<i4", RP_INDEX_COLUMN_I32, 4},
    {"<i8", RP_INDEX_COLUMN_I64, 8}, {"<f4", RP_INDEX_COLUMN_F32, 4},
    {"<f8", RP_INDEX_COLUMN_F64, 8},
};

struct npy {
    enum rp_index_column_type type;
    uint32_t width;
    uint64_t at, rows;
};

static int fail_header(const char *path, const char *expected, const char *found,
                       struct rp_error *error)
{
    return rp_fail(error, -RP_E_FORMAT,
                   "save a flat array of numbers: `np.save(path, a.ravel().astype('<f4'))`",
                   "%s: npy header: expected %s, found %.80s", path, expected, found);
}

static int parse_header(const char *path, char *text, struct npy *npy, struct rp_error *error)
{
    static const char order[] = "False, 'shape': (";
    char descr[8];
    int used = 0;
    text[strcspn(text, "\n")] = 0;
    if (sscanf(text, "{'descr': '%7[^']', 'fortran_order': %n", descr, &used) != 1 || used == 0)
        return fail_header(path, "{'descr': '…', 'fortran_order': …", text, error);
    for (size_t i = 0; i < RP_ARRAY_COUNT(types); i++)
        if (!strcmp(descr, types[i].descr)) {
            npy->type = types[i].type;
            npy->width = types[i].width;
        }
    if (npy->type == RP_INDEX_COLUMN_NONE)
        return fail_header(path, "a dtype of bool, |u1 to <u8, |i1 to <i8, <f4 or <f8", descr,
                           error);
    char *rest = text + used;
    if (strncmp(rest, order, sizeof order - 1) != 0)
        return fail_header(path, "'fortran_order': False, 'shape': (", rest, error);
    rest += sizeof order - 1;
    char *end = rest + strspn(rest, "0123456789");
    bool has_one_dimension = end > rest && !strncmp(end, ",), }", 5);
    if (has_one_dimension)
        *end = 0;
    if (!has_one_dimension || !rp_text_u64(rest, &npy->rows))
        return fail_header(path, "one dimension: (N,), }", rest, error);
    return 0;
}

static int read_header(int fd, const char *path, uint64_t file_bytes, struct npy *npy,
                       struct rp_error *error)
{
    uint8_t head[12];
    char text[HEADER_BYTES_MAX + 1];
    uint64_t bytes;
    int code = rp_file_read_at(fd, path, head, sizeof head, 0, error);
    if (code < 0)
        return code;
    if (memcmp(head, "\x93NUMPY", 6) != 0 || head[6] < 1 || head[6] > 3)
        return fail_header(path, "the magic of numpy and version 1, 2 or 3", "others", error);
    uint32_t prefix = head[6] == 1 ? 10 : 12;
    uint32_t length = head[6] == 1 ? rp_load_u16(head + 8) : rp_load_u32(head + 8);
    if (length > HEADER_BYTES_MAX || prefix + length > file_bytes)
        return fail_header(path, "a header of at most 4096 bytes inside the file", "a longer one",
                           error);
    code = rp_file_read_at(fd, path, text, length, prefix, error);
    text[length] = 0;
    if (code == 0)
        code = parse_header(path, text, npy, error);
    npy->at = prefix + length;
    if (code == 0 && (!rp_mul_u64(npy->rows, npy->width, &bytes) || bytes != file_bytes - npy->at))
        code = rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                       "%s: the header says %" PRIu64 " numbers of %u bytes, found %" PRIu64
                       " bytes after it",
                       path, npy->rows, npy->width, file_bytes - npy->at);
    return code;
}

/* The number at `from` as 8 bytes. */
static uint64_t word_at(const struct npy *npy, const uint8_t *from)
{
    uint64_t word = 0;
    float narrow;
    memcpy(&word, from, npy->width);
    unsigned shift = 64 - 8 * npy->width;
    switch (npy->type) {
    case RP_INDEX_COLUMN_I8:
    case RP_INDEX_COLUMN_I16:
    case RP_INDEX_COLUMN_I32:
        return (uint64_t)((int64_t)(word << shift) >> shift);
    case RP_INDEX_COLUMN_F32: {
        memcpy(&narrow, from, sizeof narrow);
        double wide = (double)narrow;
        memcpy(&word, &wide, sizeof word);
        return word;
    }
    default:
        return word;
    }
}

static int read_rows(struct rp_gathered *values, int fd, const char *path, const struct npy *npy,
                     struct rp_error *error)
{
    uint8_t bytes[READ_BYTES];
    int code = 0;
    for (uint64_t row = 0; code == 0 && row < npy->rows;) {
        uint64_t some = rp_min_u64(READ_BYTES / npy->width, npy->rows - row);
        code = rp_interrupt_check(RP_ANNOTATE_IS_SAFE, error);
        if (code == 0)
            code = rp_file_read_at(fd, path, bytes, (size_t)some * npy->width,
                                   npy->at + row * npy->width, error);
        for (uint64_t i = 0; code == 0 && i < some; i++, row++)
            code = rp_gathered_add(values, npy->type, word_at(npy, bytes + i * npy->width), path,
                                   row, error);
    }
    return code;
}

int rp_annotate_read_npy(struct rp_gathered *values, const char *path, struct rp_error *error)
{
    uint64_t bytes = 0;
    struct npy npy = {.type = RP_INDEX_COLUMN_NONE};
    int fd = rp_file_open_read(path, &bytes, error);
    if (fd < 0)
        return fd;
    int code = read_header(fd, path, bytes, &npy, error);
    if (code == 0)
        code = read_rows(values, fd, path, &npy, error);
    close(fd);
    return code;
}
