/* SPDX-License-Identifier: Apache-2.0 */
/* read_npy.c — a column from a numpy .npy file of one dimension. */
#include <string.h>
#include <unistd.h>

#include "annotate/annotate.h"
#include "base/bits.h"
#include "base/file.h"
#include "corpus/numpy.h"
#include "interrupt.h"

#define READ_BYTES 65536u

static const struct {
    const char *descr;
    enum rp_index_column_type type;
} types[] = {
    {"|b1", RP_INDEX_COLUMN_U8},  {"|u1", RP_INDEX_COLUMN_U8},  {"<u2", RP_INDEX_COLUMN_U16},
    {"<u4", RP_INDEX_COLUMN_U32}, {"<u8", RP_INDEX_COLUMN_U64}, {"|i1", RP_INDEX_COLUMN_I8},
    {"<i2", RP_INDEX_COLUMN_I16}, {"<i4", RP_INDEX_COLUMN_I32}, {"<i8", RP_INDEX_COLUMN_I64},
    {"<f4", RP_INDEX_COLUMN_F32}, {"<f8", RP_INDEX_COLUMN_F64},
};

struct npy {
    enum rp_index_column_type type;
    uint32_t width;
    uint64_t at, rows;
};

static int read_header(int fd, const char *path, uint64_t file_bytes, struct npy *npy,
                       struct rp_error *error)
{
    struct rp_numpy header;
    uint64_t shape[2];
    int code = rp_numpy_begin(
        &header, fd, path, file_bytes,
        "save a flat array of numbers: `np.save(path, a.ravel().astype('<f4'))`", error);
    if (code < 0)
        return code;
    for (size_t i = 0; i < RP_ARRAY_COUNT(types); i++)
        if (!strcmp(header.descr, types[i].descr))
            npy->type = types[i].type;
    if (npy->type == RP_INDEX_COLUMN_NONE)
        return rp_numpy_fail(&header, "a dtype of bool, |u1 to <u8, |i1 to <i8, <f4 or <f8",
                             header.descr, error);
    code = rp_numpy_shape(&header, false, shape, error);
    npy->width = rp_index_column_width(npy->type);
    npy->rows = shape[0];
    npy->at = header.at;
    return code < 0 ? code : rp_numpy_check_size(&header, npy->rows, "numbers", npy->width, error);
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
